import { MODEL_DEFAULTS, plainModel, type Model, type Optimizer } from "@internevo/domain";
import type { Argument, Options } from "./command-line.ts";
import { isEvaluated, plainNumber } from "./decoder-data.ts";
import type { ExportedJob, FrameworkWarning, TakenAs } from "./framework.ts";
import { keepsAll, notEvaluated, otherBatches, type FieldDecisions, type Unsaid } from "./job-fields.ts";
import type { LeftOut } from "./left-out.ts";
import { judgesOf, KERNELS, PLANNED_OPTIMIZER, refused, taken, type Judges } from "./judgements.ts";
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

/** Schedules of the learning rate, as both programs name them; wsd only Megatron-LM has. */
const DECAY_STYLES = { cosine: "cosine", linear: "linear", constant: "constant", wsd: "WSD" } as const;

function scheduleArguments(
  { schedule = "cosine", annealingSteps = 0 }: Optimizer,
  knowsWsd: boolean,
): Argument[] {
  if (schedule === "wsd" && !knowsWsd) return [["--lr-decay-style", DECAY_STYLES.cosine]];
  const style: Argument = ["--lr-decay-style", DECAY_STYLES[schedule]];
  if (schedule !== "wsd") return [style];
  return [style, ["--lr-wsd-decay-style", "linear"], ["--lr-wsd-decay-iters", annealingSteps]];
}

/** A seed that both programs refuse. */
const otherSeed: Unsaid = ({ seed }) =>
  seed >= SMALLEST_SEED
    ? null
    : {
        field: "seed",
        value: seed,
        nearest: SMALLEST_SEED,
        reason: "the program ends at its start with a seed that is not positive",
      };

/** A warm-up that both programs refuse. */
const shorterWarmup: Unsaid = ({ optimizer }) =>
  optimizer.warmupSteps === warmupOf(optimizer)
    ? null
    : {
        field: "optimizer.warmupSteps",
        value: optimizer.warmupSteps,
        nearest: warmupOf(optimizer),
        reason: `the program ends at its start unless warm-up is shorter than its ${optimizer.decaySteps} steps of decay`,
      };

/** What both programs say of a job in the same options. */
export const DECODER_FIELDS = {
  "model.hiddenSize": "said",
  "model.layers": "said",
  "model.heads": "said",
  "model.kvHeads": "said",
  "model.ffnHiddenSize": "said",
  "model.vocabularySize": "said",
  "model.tiedEmbeddings": "said",
  "model.ropeTheta": "said",
  "model.normEpsilon": "said",
  "model.initStandardDeviation": "said",
  "model.headSize": "said",
  "model.queryKeyNorm": "said",
  "model.queryKeyValueBias": "said",
  "model.slidingWindowTokens": "said",
  "model.ropeScaling": "said",
  sequenceLengthTokens: "said",
  globalBatchTokens: "said",
  precision: "said",
  "optimizer.peakLearningRate": "said",
  "optimizer.minLearningRate": "said",
  "optimizer.warmupSteps": shorterWarmup,
  "optimizer.decaySteps": "said",
  "optimizer.weightDecay": "said",
  "optimizer.beta1": "said",
  "optimizer.beta2": "said",
  "optimizer.epsilon": "said",
  "optimizer.clipGlobalNorm": "said",
  "data.path": "with data.format",
  "data.paths": "with data.format",
  "data.sources": "with data.format",
  steps: "said",
  seed: otherSeed,
  "cluster.nodes": "said",
  "cluster.gpusPerNode": "said",
  "validation.data": notEvaluated(
    isEvaluated,
    "held-out data must be in the format of tools/preprocess_data.py, and data with it",
  ),
  "validation.everySteps": "with validation.data",
  "validation.batches": otherBatches(
    isEvaluated,
    null,
    "each evaluation takes the next batches of the held-out data, and none is before training",
  ),
  "checkpointing.everySteps": "said",
  "checkpointing.keepLast": keepsAll,
} as const satisfies Partial<FieldDecisions>;

export function trainingArguments(
  { optimizer: o, steps, seed }: ExportedJob,
  { knowsWsd }: { readonly knowsWsd: boolean },
): Argument[] {
  return [
    ["--train-iters", steps],
    ["--lr", o.peakLearningRate],
    ["--min-lr", o.minLearningRate],
    ...scheduleArguments(o, knowsWsd),
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

/** Rows that the programs give the embedding, where they are more than tensor ranks share out anyway. */
function paddedVocabulary(options: Options, written: number, added: number, takenAs: TakenAs[]): number {
  const vocabulary = written + added;
  if (options.has("--no-pad-vocab-size") || options.has("--disable-pad-vocab-size")) return vocabulary;
  const tp = options.integer("--tensor-model-parallel-size") ?? 1;
  const multiple = tp * (options.integer("--make-vocab-size-divisible-by") ?? OWN_VOCABULARY_MULTIPLE);
  const padded = Math.ceil(vocabulary / multiple) * multiple;
  if (!options.has("--vocab-size") || padded === Math.ceil(vocabulary / tp) * tp) return vocabulary;
  takenAs.push({
    option: "--vocab-size",
    value: written,
    as: `${padded}: ${added > 0 ? "with the token that NullTokenizer adds, " : ""}a multiple of ${multiple}, --make-vocab-size-divisible-by times the tensor ranks`,
  });
  return padded;
}
const OWN_VOCABULARY_MULTIPLE = 128;

/** Both programs drop out a tenth where nothing is said. */
function missingDropout(options: Options, takenAs: TakenAs[]): void {
  for (const option of ["--attention-dropout", "--hidden-dropout"])
    if (!options.has(option))
      takenAs.push({ option, value: "missing", as: "0, where the program's default is 0.1" });
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
  missingDropout(options, takenAs);
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
  // Megatron-LM alone has it, and takes it as it is.
  const rows = options.integer("--padded-vocab-size", 2);
  if (vocabulary === undefined && rows === undefined && !options.has("--vocab-size"))
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
    vocabularySize: rows ?? paddedVocabulary(options, vocabulary ?? 2, added, takenAs),
    tiedEmbeddings: !options.has("--untie-embeddings-and-output-weights"),
    ropeTheta: options.number(dialect.rotaryBase, 1) ?? MODEL_DEFAULTS.ropeTheta,
    normEpsilon: options.number(dialect.normEpsilon) ?? MODEL_DEFAULTS.normEpsilon,
    initStandardDeviation: options.number("--init-method-std") ?? MODEL_DEFAULTS.initStandardDeviation,
    ...(channels === undefined ? {} : { headSize: channels }),
    ...dialect.readFields(options),
  });
}

/** What both programs have where a script says nothing. */
const OWN_OPTIMIZER = [
  ["minLearningRate", "--min-lr", 0],
  ["beta1", "--adam-beta1", 0.9],
  ["beta2", "--adam-beta2", 0.999],
  ["epsilon", "--adam-eps", 1e-8],
] as const;
const OWN_WEIGHT_DECAY = 0.01;
const OWN_CLIP = 1;
const OWN_SEED = 1234;
const OWN_DECAY_STYLE = "linear";

/** What a step takes. */
interface StepSize {
  readonly sequences: number;
  readonly sequenceLengthTokens: number;
}

/** Steps of something that is counted in samples or in tokens. */
function countedSteps(
  options: Options,
  name: string,
  perStep: number,
  takenAs: TakenAs[],
): number | undefined {
  const count = options.integer(name, 0);
  if (count === undefined) return undefined;
  const steps = Math.floor(count / perStep);
  takenAs.push({ option: name, value: count, as: `${steps} steps` });
  return steps;
}

/** Steps of the run, of its decay and its warm-up, in whatever they are counted. */
function readSteps(
  options: Options,
  { sequences, sequenceLengthTokens }: StepSize,
  { leftOut, takenAs }: Reading,
) {
  const { faults } = options;
  const bySamples = options.has("--train-samples");
  for (const name of ["--train-iters", "--lr-decay-iters", "--lr-warmup-iters"])
    if (bySamples && options.has(name) && options.text(name) !== "0")
      faults.add(name, options.text(name), "contradicts --train-samples", "count in one of them");
  for (const name of ["--lr-decay-samples", "--lr-warmup-samples"])
    if (!bySamples && options.has(name))
      faults.add(name, options.text(name), "needs --train-samples", "count in iterations");
  const counted = (name: string, perStep = sequences) => countedSteps(options, name, perStep, takenAs);
  const tokens = sequences * sequenceLengthTokens;
  const run = [
    options.integer("--train-iters"),
    counted("--train-samples"),
    counted("--train-tokens", tokens),
  ];
  const all = run.filter((steps) => steps !== undefined);
  const steps = leftOut.none(all.length === 0 ? undefined : Math.min(...all), "--train-iters");
  if (steps !== undefined && steps < 1)
    faults.add(
      options.has("--train-tokens") ? "--train-tokens" : "--train-samples",
      options.text("--train-tokens") ?? options.text("--train-samples"),
      `is less than one step takes: ${sequences} samples of ${sequenceLengthTokens} tokens`,
      "give more",
    );
  const decaySteps =
    counted("--lr-decay-tokens", tokens) ??
    counted("--lr-decay-samples") ??
    options.integer("--lr-decay-iters");
  const fraction = options.number("--lr-warmup-fraction", 0);
  const warmupSteps =
    counted("--lr-warmup-tokens", tokens) ??
    counted("--lr-warmup-samples") ??
    options.integer("--lr-warmup-iters", 0);
  const annealingSteps = bySamples
    ? counted("--lr-wsd-decay-samples")
    : options.integer("--lr-wsd-decay-iters", 0);
  const counts = { steps, decaySteps, annealingSteps };
  if (fraction === undefined) {
    const name = bySamples ? "--lr-warmup-samples" : "--lr-warmup-iters";
    return { ...counts, warmupSteps: leftOut.own(warmupSteps, name, 0) };
  }
  if (warmupSteps !== undefined && warmupSteps > 0)
    faults.add("--lr-warmup-fraction", fraction, "contradicts the steps of a warm-up", "give one of them");
  const decay = decaySteps ?? steps;
  const warmup = decay === undefined ? undefined : Math.floor(fraction * decay);
  const as = warmup === undefined ? "a job's own warm-up: no steps are said" : `${warmup} steps`;
  takenAs.push({ option: "--lr-warmup-fraction", value: fraction, as });
  return { ...counts, warmupSteps: warmup };
}

/** The steps over which the learning rate falls at the end of WSD. */
function annealing(
  options: Options,
  steps: number | undefined,
  takenAs: TakenAs[],
): Pick<Optimizer, "schedule" | "annealingSteps"> {
  const name = options.has("--train-samples") ? "--lr-wsd-decay-samples" : "--lr-wsd-decay-iters";
  if (steps === undefined && !options.has(name))
    options.faults.add(name, null, "is missing, with --lr-decay-style WSD", `add ${name}`);
  const style = options.choice("--lr-wsd-decay-style", [
    "exponential",
    "linear",
    "cosine",
    "minus_sqrt",
  ] as const);
  if (style === undefined)
    takenAs.push({
      option: "--lr-wsd-decay-style",
      value: "missing",
      as: "linear, where the program's default is exponential",
    });
  else if (style !== "linear")
    takenAs.push({ option: "--lr-wsd-decay-style", value: style, as: "linear: a job's wsd has no other" });
  return { schedule: "wsd", ...(steps === undefined ? {} : { annealingSteps: steps }) };
}

/** How the learning rate goes on behind its warm-up; a cosine is what a job has where it says none. */
function readSchedule(
  options: Options,
  knowsWsd: boolean,
  annealingSteps: number | undefined,
  { leftOut, takenAs }: Reading,
): Pick<Optimizer, "schedule" | "annealingSteps"> {
  const styles = ["constant", "linear", "cosine", "inverse-square-root"] as const;
  const style = leftOut.own(
    options.choice("--lr-decay-style", knowsWsd ? [...styles, DECAY_STYLES.wsd] : styles),
    "--lr-decay-style",
    OWN_DECAY_STYLE,
  );
  switch (style) {
    case "constant":
    case "linear":
      return { schedule: style };
    case "cosine":
      return {};
    case "inverse-square-root":
      takenAs.push({
        option: "--lr-decay-style",
        value: style,
        as: "cosine: a job has no schedule that falls with the root of the steps",
      });
      return {};
    case "WSD":
      return annealing(options, annealingSteps, takenAs);
  }
}

/** Weight decay, which a job has as one number. */
function readWeightDecay(options: Options, { leftOut, takenAs }: Reading): number | undefined {
  const style = options.choice("--weight-decay-incr-style", ["constant", "linear", "cosine"] as const);
  const ends = ["--start-weight-decay", "--end-weight-decay"] as const;
  if (style === undefined || style === "constant") {
    for (const name of ends)
      if (options.has(name))
        options.faults.add(
          name,
          options.text(name),
          "needs a --weight-decay-incr-style other than constant",
          "give --weight-decay",
        );
    return leftOut.own(options.number("--weight-decay", 0), "--weight-decay", OWN_WEIGHT_DECAY);
  }
  for (const name of ends)
    if (!options.has(name))
      options.faults.add(name, null, `is missing, with --weight-decay-incr-style ${style}`, "add it");
  const [, end] = ends.map((name) => options.number(name, 0));
  takenAs.push({
    option: "--weight-decay-incr-style",
    value: style,
    as: `constant: ${end}, with which it ends`,
  });
  return end;
}

/** The norm that Megatron-LM clips gradients to. */
export const readClip = (options: Options, leftOut: LeftOut): number =>
  leftOut.own(options.number("--clip-grad", 0), "--clip-grad", OWN_CLIP);

/** Where what is read of a script is told. */
interface Reading {
  readonly leftOut: LeftOut;
  readonly takenAs: TakenAs[];
  readonly ignored: string[];
}

/** Options that say when and whereto the learning rate falls, which with a constant one it does not. */
const OF_DECAY =
  "--min-lr --lr-decay-iters --lr-decay-samples --lr-decay-tokens --lr-wsd-decay-style --lr-wsd-decay-iters --lr-wsd-decay-samples".split(
    " ",
  );
const OF_WSD = OF_DECAY.filter((name) => name.includes("wsd"));

/** A job ends with its last step; the programs may end before it, at the first multiple of a number of steps. */
function readExit(options: Options, steps: number | undefined, { takenAs, ignored }: Reading): void {
  const name = "--exit-interval";
  if (!options.has(name)) return;
  const interval = plainNumber(options, name, Number.MAX_SAFE_INTEGER, 0);
  if (interval === 0 || (interval !== undefined && steps !== undefined && interval >= steps))
    return void ignored.push(name);
  const when = interval === undefined ? "" : `, not after step ${interval}`;
  takenAs.push({ option: name, value: options.text(name), as: `${UNTIL_THE_END}${when}` });
}
/** How options that end a run early are taken. */
export const UNTIL_THE_END = "never: training ends with its last step";

/** What is trained with and how long; the norm that gradients are clipped to apart. */
export function readTraining(
  options: Options,
  size: StepSize,
  { knowsWsd }: { readonly knowsWsd: boolean },
  reading: Reading,
): { optimizer: Partial<Optimizer>; steps?: number; seed: number } {
  const { leftOut, ignored } = reading;
  const peakLearningRate = leftOut.none(options.number("--lr", 0), "--lr");
  const { steps, decaySteps, warmupSteps, annealingSteps } = readSteps(options, size, reading);
  readExit(options, steps, reading);
  const schedule = readSchedule(options, knowsWsd, annealingSteps, reading);
  const isConstant = schedule.schedule === "constant";
  const own = OWN_OPTIMIZER.filter(([field]) => !isConstant || field !== "minLearningRate").map(
    ([field, name, value]) => [field, leftOut.own(options.number(name, 0), name, value)] as const,
  );
  const without = isConstant ? OF_DECAY : OF_WSD;
  if (schedule.schedule !== "wsd") ignored.push(...without.filter((name) => options.has(name)));
  const values: Partial<Record<keyof Optimizer, number | string | undefined>> = {
    peakLearningRate,
    weightDecay: readWeightDecay(options, reading),
    warmupSteps,
    // The rate is never any other, and a job has no decay that ends elsewhere.
    ...(isConstant ? { minLearningRate: peakLearningRate, decaySteps: steps } : { decaySteps }),
    ...Object.fromEntries(own),
    ...schedule,
  };
  return {
    optimizer: Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)),
    ...(steps === undefined ? {} : { steps }),
    seed: leftOut.own(options.integer("--seed", 0), "--seed", OWN_SEED),
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
  one: `--make-vocab-size-divisible-by --train-samples --lr-decay-samples --lr-warmup-samples --lr-warmup-fraction
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --seq-length --max-position-embeddings --normalization --kv-channels
    --init-method-std --tokenizer-type --vocab-size --train-iters --lr --min-lr --lr-decay-style --lr-decay-iters --lr-warmup-iters --weight-decay
    --weight-decay-incr-style --start-weight-decay --end-weight-decay --adam-beta1
    --adam-beta2 --adam-eps --clip-grad --seed --micro-batch-size --global-batch-size --tensor-model-parallel-size
    --exit-interval --pipeline-model-parallel-size --recompute-granularity --recompute-method --recompute-num-layers`,
} as const;

/** Names that both programs know, and that change neither time nor memory as they are predicted. */
export const DECODER_IGNORED = {
  flag: `--use-flash-attn --no-load-optim --no-load-rng --no-save-optim --no-save-rng --no-masked-softmax-fusion --no-bias-gelu-fusion
    --no-bias-dropout-fusion --no-gradient-accumulation-fusion --log-params-norm --log-num-zeros-in-grad --log-timers-to-tensorboard
    --log-batch-size-to-tensorboard --log-memory-to-tensorboard --log-validation-ppl-to-tensorboard --log-world-size-to-tensorboard
    --no-async-tensor-model-parallel-allreduce --attention-softmax-in-fp32 --apply-layernorm-1p --finetune
    --no-log-learnig-rate-to-tensorboard --no-log-loss-scale-to-tensorboard --override-opt_param-scheduler --use-checkpoint-opt_param-scheduler
    --no-persist-layer-norm --exit-signal-handler --profile
    --reset-position-ids --reset-attention-mask --eod-mask-loss`,
  one: `--attention-dropout --hidden-dropout --optimizer --save --load
    --save-interval --log-interval --eval-interval --eval-iters --tensorboard-dir --tensorboard-log-interval --tensorboard-queue-size
    --tokenizer-model --vocab-file --merge-file --data-cache-path --split --num-workers --dataloader-type --distributed-backend
    --distributed-timeout-minutes --exit-duration-in-mins --wandb-project --wandb-exp-name --wandb-save-dir
    --adlr-autoresume-interval --timing-log-level
    --profile-step-start --profile-step-end --rotary-percent`,
  some: "--data-path --train-data-path --valid-data-path --test-data-path --profile-ranks",
} as const;

/** What options are taken as that keep documents apart, where the data is not known. */
export const NO_BORDERS = "sequences without borders between documents; a job says them by data.packing";

/** Those of {@link DECODER_IGNORED} that have an effect with some values. */
export const DECODER_JUDGES: Judges = {
  ...judgesOf(
    `--no-masked-softmax-fusion --no-bias-dropout-fusion --no-persist-layer-norm
      --no-gradient-accumulation-fusion --attention-softmax-in-fp32`,
    taken(KERNELS),
  ),
  ...judgesOf("--reset-position-ids --reset-attention-mask", taken(NO_BORDERS)),
  ...judgesOf("--log-params-norm --log-num-zeros-in-grad", taken("not computed")),
  ...judgesOf("--attention-dropout --hidden-dropout", taken("0", 0)),
  "--exit-duration-in-mins": taken(UNTIL_THE_END),
  "--dataloader-type": taken("single: each sample once before one comes again", "single"),
  "--eod-mask-loss": taken("not given: the last token of a document counts in the loss"),
  "--timing-log-level": taken("0: without barriers around what is timed", 0),
  "--distributed-backend": taken("nccl", "nccl"),
  "--optimizer": refused(PLANNED_OPTIMIZER, "use --optimizer adam", "adam"),
  "--rotary-percent": refused(
    "leaves a part of each head without positions, which is not planned for",
    "give 1.0",
    1,
  ),
};

/** Names that both programs know, and that make of a step what is not planned for. */
export const DECODER_REFUSED: Readonly<Record<string, string>> = {
  "--use-checkpoint-args": "takes sizes from a checkpoint in place of the options, and no checkpoint is read",
  "--rampup-batch-size": "changes the batch as training goes on",
  "--num-experts": "makes a mixture of experts; dense decoders are planned for",
  "--expert-model-parallel-size": "shares out experts; dense decoders are planned for",
  "--batch-size": "is no longer an option of this program: it has --micro-batch-size",
  "--model-parallel-size": "is no longer an option of this program: it has --tensor-model-parallel-size",
};
