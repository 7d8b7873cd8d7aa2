import { MODEL_DEFAULTS, plainModel, type Model, type Optimizer } from "@internevo/domain";
import type { Argument, Options } from "./command-line.ts";
import type { ExportedJob, Inexpressible, FrameworkWarning, TakenAs } from "./framework.ts";
import { checkedHeadSize, fieldArguments } from "./model-fields.ts";

/** How the two programs that descend from one another name what a decoder is made of. */
export interface DecoderDialect {
  readonly normEpsilon: string;
  readonly rotaryBase: string;
  readonly normalization: string;
  /** Options that make positions rotary. */
  readonly rotary: Argument;
  readonly keyValueHeads: (kvHeads: number) => readonly Argument[];
  readonly readKeyValueHeads: (options: Options) => number | undefined;
  /** What a model has beyond LLaMA, of the program's options; heads of their own size apart. */
  readonly readFields: (options: Options) => Partial<Model>;
  /** Tokens that the program adds to --vocab-size with the tokenizer that has no files. */
  readonly addedTokens: number;
}

export function decoderArguments(
  { model, sequenceLengthTokens }: ExportedJob,
  dialect: DecoderDialect,
): Argument[] {
  return [
    ["--num-layers", model.layers],
    ["--hidden-size", model.hiddenSize],
    ["--ffn-hidden-size", model.ffnHiddenSize],
    ["--num-attention-heads", model.heads],
    ...(model.kvHeads === model.heads ? [] : dialect.keyValueHeads(model.kvHeads)),
    ["--seq-length", sequenceLengthTokens],
    ["--max-position-embeddings", sequenceLengthTokens],
    dialect.rotary,
    [dialect.rotaryBase, model.ropeTheta],
    ...fieldArguments(model),
    ["--swiglu"],
    ["--normalization", dialect.normalization],
    [dialect.normEpsilon, model.normEpsilon],
    ["--disable-bias-linear"],
    ...(model.tiedEmbeddings ? [] : [["--untie-embeddings-and-output-weights"] as const]),
    ["--init-method-std", model.initStandardDeviation],
    ["--attention-dropout", 0],
    ["--hidden-dropout", 0],
    ["--tokenizer-type", "NullTokenizer"],
    ["--vocab-size", model.vocabularySize - dialect.addedTokens],
    ["--make-vocab-size-divisible-by", 1],
  ];
}

/** Both programs end at once with a seed that is not positive. */
const SMALLEST_SEED = 1;

/** Both programs end at once with a warm-up that does not end before the decay does. */
const warmupOf = ({ warmupSteps, decaySteps }: Optimizer): number => Math.min(warmupSteps, decaySteps - 1);

/** What both programs have no option for. */
export function inexpressibleTraining({ seed, optimizer }: ExportedJob): Inexpressible[] {
  const found: Inexpressible[] = [];
  if (seed < SMALLEST_SEED)
    found.push({
      field: "seed",
      value: seed,
      nearest: SMALLEST_SEED,
      reason: "the program ends at its start with a seed that is not positive",
    });
  const { warmupSteps, decaySteps } = optimizer;
  if (warmupSteps !== warmupOf(optimizer))
    found.push({
      field: "optimizer.warmupSteps",
      value: warmupSteps,
      nearest: warmupOf(optimizer),
      reason: `the program ends at its start unless the warm-up is shorter than the decay of ${decaySteps} steps`,
    });
  return found;
}

export function trainingArguments({ optimizer: o, steps, seed }: ExportedJob): Argument[] {
  return [
    ["--train-iters", steps],
    ["--lr", o.peakLearningRate],
    ["--min-lr", o.minLearningRate],
    ["--lr-decay-style", "cosine"],
    ["--lr-decay-iters", o.decaySteps],
    ["--lr-warmup-iters", warmupOf(o)],
    ["--weight-decay", o.weightDecay],
    ["--adam-beta1", o.beta1],
    ["--adam-beta2", o.beta2],
    ["--adam-eps", o.epsilon],
    ["--clip-grad", o.clipGlobalNorm],
    ["--seed", Math.max(seed, SMALLEST_SEED)],
  ];
}

/** Width that the programs give a gated MLP when none is given. */
const defaultWidth = (hiddenSize: number): number => Math.floor((4 * hiddenSize * 2) / 3 / 64) * 64;

/** The size of heads, where it is given; heads without one divide the hidden size. */
function headSizeOf(options: Options, hiddenSize: number, heads: number): number | undefined {
  const { faults } = options;
  const channels = options.integer("--kv-channels");
  if (channels === undefined && hiddenSize % heads !== 0)
    faults.add(
      "--num-attention-heads",
      heads,
      `does not divide --hidden-size ${hiddenSize}`,
      "give heads that divide it, or --kv-channels",
    );
  return checkedHeadSize(channels, "--kv-channels", faults);
}

/**
 * The model of a configuration; what has no counterpart in a LLaMA decoder is said, or is a fault where it
 * changes what is computed by much.
 */
export function readDecoder(options: Options, dialect: DecoderDialect, takenAs: TakenAs[]): Model {
  const { faults } = options;
  const hiddenSize = options.needed("--hidden-size");
  const heads = options.needed("--num-attention-heads");
  const kvHeads = dialect.readKeyValueHeads(options) ?? heads;
  const width = options.integer("--ffn-hidden-size");
  if (!options.has("--swiglu"))
    faults.add(
      "--swiglu",
      null,
      "is missing: an MLP without gate is not planned for",
      "add --swiglu with the --ffn-hidden-size that the gated MLP is to have",
    );
  const channels = headSizeOf(options, hiddenSize, heads);
  if (heads % kvHeads !== 0)
    faults.add(
      dialect.keyValueHeads(1).at(-1)?.[0] ?? "",
      kvHeads,
      `does not divide --num-attention-heads ${heads}`,
      "give a divisor",
    );
  const normalization = options.text("--normalization") ?? "LayerNorm";
  if (normalization !== dialect.normalization)
    takenAs.push({ option: "--normalization", value: normalization, as: "RMSNorm" });
  if (!options.has("--disable-bias-linear"))
    takenAs.push({ option: "--disable-bias-linear", value: "missing", as: "without biases" });
  const positions = options.text("--position-embedding-type");
  if (positions === "yarn")
    faults.add(
      "--position-embedding-type",
      positions,
      "scales positions by options that are not read",
      "use rope, or write the job with model.ropeScaling of kind yarn",
    );
  else if (!options.has("--use-rotary-position-embeddings") && positions !== "rope")
    takenAs.push({
      option: "--position-embedding-type",
      value: positions ?? "learned_absolute",
      as: "rotary positions",
    });
  const added = options.text("--tokenizer-type") === "NullTokenizer" ? dialect.addedTokens : 0;
  const vocabulary = options.integer("--vocab-size", 2 - added);
  if (vocabulary === undefined && !options.has("--vocab-size"))
    faults.add(
      "--vocab-size",
      null,
      "is missing",
      "add the size of the vocabulary: that of a tokenizer's files is not known here",
    );
  return plainModel({
    name: "imported",
    hiddenSize,
    layers: options.needed("--num-layers"),
    heads,
    kvHeads,
    ffnHiddenSize: width ?? defaultWidth(hiddenSize),
    vocabularySize: (vocabulary ?? 2) + added,
    tiedEmbeddings: !options.has("--untie-embeddings-and-output-weights"),
    ropeTheta: options.number(dialect.rotaryBase, 1) ?? MODEL_DEFAULTS.ropeTheta,
    normEpsilon: options.number(dialect.normEpsilon) ?? MODEL_DEFAULTS.normEpsilon,
    initStandardDeviation: options.number("--init-method-std") ?? MODEL_DEFAULTS.initStandardDeviation,
    ...(channels === undefined ? {} : { headSize: channels }),
    ...dialect.readFields(options),
  });
}

const OPTIMIZER: readonly (readonly [keyof Optimizer, string])[] = [
  ["peakLearningRate", "--lr"],
  ["minLearningRate", "--min-lr"],
  ["decaySteps", "--lr-decay-iters"],
  ["warmupSteps", "--lr-warmup-iters"],
  ["weightDecay", "--weight-decay"],
  ["beta1", "--adam-beta1"],
  ["beta2", "--adam-beta2"],
  ["epsilon", "--adam-eps"],
  ["clipGlobalNorm", "--clip-grad"],
];

const STEPS: ReadonlySet<keyof Optimizer> = new Set(["decaySteps", "warmupSteps"]);

export function readTraining(options: Options): {
  optimizer: Partial<Optimizer>;
  steps?: number;
  seed?: number;
} {
  const optimizer = OPTIMIZER.flatMap(([field, name]) => {
    const value = STEPS.has(field)
      ? options.integer(name, field === "decaySteps" ? 1 : 0)
      : options.number(name, 0);
    return value === undefined ? [] : [[field, value] as const];
  });
  const steps = options.integer("--train-iters");
  const seed = options.integer("--seed", 0);
  return {
    optimizer: Object.fromEntries(optimizer),
    ...(steps === undefined ? {} : { steps }),
    ...(seed === undefined ? {} : { seed }),
  };
}

/** What both programs refuse, or do not do, though a plan stands for it. */
export function decoderWarnings(
  options: Options,
  program: string,
  { tp, sequenceLengthTokens }: { readonly tp: number; readonly sequenceLengthTokens: number },
): FrameworkWarning[] {
  const warnings: FrameworkWarning[] = [];
  const warmup = options.integer("--lr-warmup-iters", 0) ?? 0;
  const decay = options.integer("--lr-decay-iters") ?? options.integer("--train-iters");
  if (decay !== undefined && warmup >= decay)
    warnings.push({
      field: "--lr-warmup-iters",
      value: warmup,
      message: `is not less than the ${decay} iterations of the decay, which ${program} refuses`,
      remedy: `give at most ${decay - 1}`,
    });
  const positions = options.integer("--max-position-embeddings");
  if (positions !== undefined && positions < sequenceLengthTokens)
    warnings.push({
      field: "--max-position-embeddings",
      value: positions,
      message: `is less than --seq-length ${sequenceLengthTokens}, which ${program} refuses`,
      remedy: `give ${sequenceLengthTokens} or more`,
    });
  if (tp === 1 && options.has("--sequence-parallel"))
    warnings.push({
      field: "--sequence-parallel",
      value: true,
      message: `has no effect: ${program} switches it off with --tensor-model-parallel-size 1`,
      remedy: "leave it out, or give more tensor ranks",
    });
  return warnings;
}

/** Names that both programs read. */
export const DECODER_OPTIONS = {
  flag: "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --bf16 --fp16 --sequence-parallel",
  one: `--num-layers --hidden-size --ffn-hidden-size --num-attention-heads --seq-length --max-position-embeddings --normalization --kv-channels
    --init-method-std --tokenizer-type --vocab-size --train-iters --lr --min-lr --lr-decay-iters --lr-warmup-iters --weight-decay --adam-beta1
    --adam-beta2 --adam-eps --clip-grad --seed --micro-batch-size --global-batch-size --tensor-model-parallel-size
    --pipeline-model-parallel-size --recompute-granularity --recompute-method --recompute-num-layers`,
} as const;

/** Names that both programs know, and that change neither time nor memory as they are predicted. */
export const DECODER_IGNORED = {
  flag: `--use-flash-attn --no-load-optim --no-load-rng --no-save-optim --no-save-rng --no-masked-softmax-fusion --no-bias-gelu-fusion
    --no-bias-dropout-fusion --no-gradient-accumulation-fusion --log-params-norm --log-num-zeros-in-grad --log-timers-to-tensorboard
    --log-batch-size-to-tensorboard --log-memory-to-tensorboard --log-validation-ppl-to-tensorboard --log-world-size-to-tensorboard
    --no-async-tensor-model-parallel-allreduce --attention-softmax-in-fp32 --apply-layernorm-1p --finetune --use-checkpoint-args
    --no-log-learnig-rate-to-tensorboard --no-log-loss-scale-to-tensorboard --override-opt_param-scheduler --use-checkpoint-opt_param-scheduler
    --no-persist-layer-norm --exit-signal-handler --profile`,
  one: `--attention-dropout --hidden-dropout --make-vocab-size-divisible-by --lr-decay-style --optimizer --save --load
    --save-interval --log-interval --eval-interval --eval-iters --tensorboard-dir --tensorboard-log-interval --tensorboard-queue-size
    --tokenizer-model --vocab-file --merge-file --data-cache-path --split --num-workers --dataloader-type --distributed-backend
    --distributed-timeout-minutes --exit-interval --exit-duration-in-mins --wandb-project --wandb-exp-name --wandb-save-dir
    --train-samples --lr-decay-samples --lr-warmup-samples --lr-warmup-fraction --adlr-autoresume-interval --timing-log-level
    --profile-step-start --profile-step-end --rotary-percent`,
  some: "--data-path --train-data-path --valid-data-path --test-data-path --profile-ranks",
} as const;

/** Names that both programs know, and that make of a step what is not planned for. */
export const DECODER_REFUSED: Readonly<Record<string, string>> = {
  "--rampup-batch-size": "changes the batch as training goes on",
  "--num-experts": "makes a mixture of experts; dense decoders are planned for",
  "--expert-model-parallel-size": "shares out experts; dense decoders are planned for",
  "--batch-size": "is no longer an option of this program: it has --micro-batch-size",
  "--model-parallel-size": "is no longer an option of this program: it has --tensor-model-parallel-size",
};
