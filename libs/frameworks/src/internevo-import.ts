import { MODEL_DEFAULTS, type Model, type Optimizer, type Plan, type Precision } from "@internevo/domain";
import { Fields } from "./fields.ts";
import {
  FRAMEWORK_VERSIONS,
  normalPlan,
  stageLayers,
  type FrameworkFile,
  type FrameworkWarning,
  type ImportedConfiguration,
  type Launch,
  type TakenAs,
} from "./framework.ts";
import { erring, taken } from "./judgements.ts";
import { HARMLESS_OPTIONS, OPTIONS, SEQUENCE_JUDGES, withoutEffect } from "./internevo-options.ts";
import { RANKS_FIELD, ranksInText } from "./launch.ts";
import { LeftOut } from "./left-out.ts";
import { Faults, quotient, repeated, sharedEvenly } from "./problems.ts";
import { NeedsRun, pythonOptions } from "./python.ts";

/** A size that may stand alone or in a record, as InternEvo takes it. */
function sized(parallel: Fields, name: string): Fields {
  const value = parallel.value(name);
  return new Fields(
    typeof value === "number" ? { size: value } : value,
    parallel.faults,
    parallel.path(name),
  );
}

/** What InternEvo's decoders have where nothing is said. */
const OWN_RATIO = 4;
const OWN_MULTIPLE = 256;

/** What a model's type makes of it beyond its sizes. */
function readType(
  model: Fields,
  type: string,
  { heads, kvHeads }: Pick<Model, "heads" | "kvHeads">,
  takenAs: TakenAs[],
): void {
  const { faults } = model;
  if (!/^(?:LLAMA2|INTERNLM|INTERNLM2|INTERNLM2_PUBLIC)$/.test(type))
    faults.add("model_type", type, "is no decoder that is planned for", "use LLAMA2, INTERNLM or INTERNLM2");
  else if (type !== "LLAMA2")
    takenAs.push({
      option: "model_type",
      value: type,
      as: `a LLaMA decoder of the same sizes${type === "INTERNLM" ? ", without biases" : ""}`,
    });
  if (type === "INTERNLM") {
    if (kvHeads !== heads)
      faults.add(
        model.path("num_kv_attention_heads"),
        kvHeads,
        `has no effect with model_type INTERNLM: it has ${heads}`,
        "leave it out, or use model_type INTERNLM2 or LLAMA2",
      );
    return;
  }
  // Attention has biases unless it is said that it has none.
  if (model.boolean("no_bias") !== true)
    takenAs.push({
      option: model.path("no_bias"),
      value: model.value("no_bias") ?? "missing",
      as: "True: without biases",
    });
}

function readModel(model: Fields, type: string, takenAs: TakenAs[]): Model {
  const { faults } = model;
  const hiddenSize = model.needed("hidden_size");
  const heads = model.needed("num_attention_heads");
  const multiple = model.integer("multiple_of") ?? OWN_MULTIPLE;
  const ratio = model.number("mlp_ratio", 0) ?? OWN_RATIO;
  const ffnHiddenSize = multiple * Math.ceil(Math.floor(hiddenSize * ratio) / multiple);
  const kvHeads = model.integer("num_kv_attention_heads") ?? heads;
  if (hiddenSize % heads !== 0)
    faults.add(
      model.path("num_attention_heads"),
      heads,
      `does not divide hidden_size ${hiddenSize}`,
      "give heads that divide it",
    );
  if (heads % kvHeads !== 0)
    faults.add(
      model.path("num_kv_attention_heads"),
      kvHeads,
      `does not divide num_attention_heads ${heads}`,
      "give a divisor",
    );
  readType(model, type, { heads, kvHeads }, takenAs);
  const norm = model.text("norm_type") ?? "rmsnorm";
  if (norm !== "rmsnorm") takenAs.push({ option: model.path("norm_type"), value: norm, as: "RMSNorm" });
  return {
    name: "imported",
    hiddenSize,
    layers: model.needed("num_layers"),
    heads,
    kvHeads,
    ffnHiddenSize,
    vocabularySize: model.needed("vocab_size"),
    tiedEmbeddings: false,
    ropeTheta: model.number("rope_base", 1) ?? MODEL_DEFAULTS.ropeTheta,
    normEpsilon: model.number("layer_norm_epsilon") ?? MODEL_DEFAULTS.normEpsilon,
    initStandardDeviation: MODEL_DEFAULTS.initStandardDeviation,
  };
}

function recomputation(
  model: Fields,
  layers: number,
  takenAs: TakenAs[],
): Pick<Plan, "recompute" | "recomputeLayers"> {
  const given = model.value("checkpoint");
  const share = typeof given === "boolean" ? Number(given) : (model.number("checkpoint", 0) ?? 0);
  if (share > 1)
    model.faults.add(
      model.path("checkpoint"),
      given,
      "is more than 1",
      "give False, True, or a share of the layers",
    );
  if (share === 1) return { recompute: true };
  const chunks = model.integer("num_chunks") ?? 1;
  const count = Math.floor((layers / chunks) * share) * chunks;
  if (share > 0 && chunks > 1)
    takenAs.push({ option: model.path("checkpoint"), value: share, as: `${count} layers of a stage` });
  return count >= layers ? { recompute: true } : { recompute: false, recomputeLayers: count };
}

/** How its β2 rises where the schedule of it does not say. */
const OWN_RISE = 0.8;

/** A job's β2 is one number; InternEvo goes on with that of its schedule after the first step, and may let it rise. */
function readBeta2(root: Fields, given: number | undefined, takenAs: TakenAs[]): number | undefined {
  if (!root.has("beta2_scheduler")) return given;
  const schedule = root.section("beta2_scheduler");
  const first = schedule.number("init_beta2", 0) ?? given;
  if (given !== undefined && first !== given)
    takenAs.push({
      option: "adam.adam_beta2",
      value: given,
      as: `${first}, beta2_scheduler.init_beta2, with which InternEvo goes on after the first step`,
    });
  if ((schedule.number("c") ?? OWN_RISE) > 0)
    takenAs.push({
      option: schedule.path("c"),
      value: schedule.value("c") ?? "missing",
      as: `0: β2 stays ${first ?? "the job's own"}, where InternEvo lets it rise with the steps`,
    });
  return first;
}

/** Its Adam has no defaults, its schedule has, and clips nothing where nothing is said. */
function readOptimizer(root: Fields, leftOut: LeftOut, takenAs: TakenAs[]): Partial<Optimizer> {
  const adam = root.section("adam");
  const schedule = root.section("lr_scheduler");
  const zero = root.section("hybrid_zero_optimizer");
  const needed = (name: string): number | undefined => leftOut.none(adam.number(name, 0), adam.path(name));
  const own = (of: Fields, name: string): number => leftOut.own(of.number(name, 0), of.path(name), 0);
  const decaySteps = leftOut.none(schedule.integer("total_steps"), schedule.path("total_steps"));
  const warmup = own(schedule, "warmup_ratio");
  // A share of nothing is nothing, whatever the steps are.
  const warmupSteps = warmup === 0 ? 0 : decaySteps && Math.floor(decaySteps * warmup);
  const peakLearningRate = needed("lr");
  const minLearningRate = own(schedule, "eta_min");
  const late = schedule.integer("init_steps", 0) ?? 0;
  if (late > 0)
    takenAs.push({
      option: schedule.path("init_steps"),
      value: late,
      as: "0: warm-up begins with the first step",
    });
  // It has a cosine alone; one that does not fall is constant, and says of no decay when it ends.
  const isConstant = peakLearningRate !== undefined && minLearningRate === peakLearningRate;
  const values: Record<Exclude<keyof Optimizer, "schedule" | "annealingSteps">, number | undefined> = {
    peakLearningRate,
    minLearningRate,
    warmupSteps,
    decaySteps: isConstant ? undefined : decaySteps,
    weightDecay: needed("weight_decay"),
    beta1: needed("adam_beta1"),
    beta2: readBeta2(root, needed("adam_beta2"), takenAs),
    epsilon: needed("adam_eps"),
    clipGlobalNorm: own(zero, "clip_grad_norm"),
  };
  return {
    ...(isConstant ? { schedule: "constant" as const } : {}),
    ...Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)),
  };
}

function precisionOf(model: Fields, takenAs: TakenAs[]): Precision {
  const type =
    model.choice("dtype", [
      "torch.bfloat16",
      "torch.float16",
      "torch.half",
      "torch.float32",
      "torch.tf32",
    ] as const) ?? "torch.float16";
  if (type === "torch.tf32")
    takenAs.push({
      option: model.path("dtype"),
      value: type,
      ...erring(
        "fp32 without TF32, with which InternEvo multiplies matrices many times faster on GPUs that have it",
        { time: "too long" },
      ),
    });
  if (type === "torch.float32" || type === "torch.tf32") return "fp32";
  if (type !== "torch.bfloat16")
    takenAs.push({ option: model.path("dtype"), value: type, as: "bf16 of as many bytes" });
  // Gradients are kept in the precision of the parameters.
  return "bf16-grad16";
}

/** Ranks that share a sequence, as a ring and by heads, or as tensor ranks. */
function sequence(
  parallel: Fields,
  takenAs: TakenAs[],
  ignored: string[],
): { tp: number; sp: number; ring: number; isp: boolean } {
  const { faults } = parallel;
  const tensor = sized(parallel, "tensor");
  tensor.rest("size mode", "");
  const size = tensor.integer("size") ?? 1;
  const mode = tensor.choice("mode", ["mtp", "msp", "fsp", "isp"] as const) ?? "mtp";
  const isp = mode === "isp";
  if (mode === "mtp" && size > 1)
    faults.add(
      tensor.path("mode"),
      mode,
      "keeps activations whole on every tensor rank, which is not planned for",
      "use msp, fsp or isp",
    );
  const two = parallel.section("sequence_2D");
  ignored.push(
    ...two.rest(
      "enable head_size context_size",
      "window_size device_placement_strategy",
      {},
      two.boolean("enable") === true ? SEQUENCE_JUDGES : {},
      takenAs,
    ),
  );
  if (two.boolean("enable") !== true) return { tp: isp ? 1 : size, sp: size, ring: 1, isp };
  const ring = two.needed("context_size");
  const heads = two.needed("head_size");
  if (!isp) faults.add(two.path("enable"), true, `needs mode isp; it is ${mode}`, "use mode isp");
  if (ring * heads !== size)
    faults.add(
      two.path("context_size"),
      ring,
      `times head_size ${heads} is not tensor.size ${size}`,
      "mend one of them",
    );
  return { tp: 1, sp: size, ring, isp };
}

/** What the file sets; what is needed of it must be values that are known without running it. */
function rootOf(file: FrameworkFile, faults: Faults): Fields {
  const values = pythonOptions(file.text, OPTIONS, HARMLESS_OPTIONS);
  for (const name of ["data", "model", "parallel"]) {
    const value = values[name];
    if (value === undefined)
      faults.add(
        name,
        null,
        "is missing",
        "write it as dict(...) of numbers, texts and variables of this file",
      );
    if (value instanceof NeedsRun)
      faults.add(name, value.expression, value.fault.message, value.fault.remedy);
  }
  faults.end();
  return new Fields(values, faults);
}

/** Refuses schedules that split the backward pass: no plan stands for them. */
function assertOneForwardOneBackward(pipeline: Fields): void {
  const mode = pipeline.text("mode") ?? "1F1B";
  const message = "is a schedule that is not planned for";
  if (mode.toUpperCase() !== "1F1B")
    pipeline.faults.add(pipeline.path("mode"), mode, message, 'use mode="1F1B"');
  if (pipeline.boolean("zero_bubble") === true)
    pipeline.faults.add(pipeline.path("zero_bubble"), true, message, "set it to False");
}

function pipelineOf(
  model: Fields,
  parallel: Fields,
  takenAs: TakenAs[],
  ignored: string[],
): { readonly pp: number; readonly chunks: number } {
  const { faults } = model;
  const pipeline = sized(parallel, "pipeline");
  const pp = pipeline.integer("size") ?? 1;
  const chunks = model.integer("num_chunks") ?? 1;
  if (chunks > 1 && pipeline.boolean("interleaved_overlap") !== true)
    faults.add(
      pipeline.path("interleaved_overlap"),
      pipeline.value("interleaved_overlap"),
      `must be True with model.num_chunks ${chunks}`,
      "set it to True",
    );
  ignored.push(
    ...pipeline.rest(
      "size interleaved_overlap",
      "zero_bubble batch_p2p_comm mode",
      {},
      pp > 1 ? { batch_p2p_comm: taken("the executor's own way of sending", false) } : {},
      takenAs,
    ),
  );
  if (pp > 1) assertOneForwardOneBackward(pipeline);
  return { pp, chunks };
}

/** Ranks that share the optimizer's states of a parameter shard. */
function optimizerShards(weight: Fields, zero: Fields, replicas: number, ps: number): number {
  const { faults } = weight;
  const shards = sharedEvenly(
    faults,
    weight.path("size"),
    ps,
    replicas,
    "the ranks that hold the same slice of the model",
  );
  const wanted = zero.number("size") ?? -1;
  const oss = wanted <= 0 ? shards : wanted;
  if (shards % oss !== 0)
    faults.add(
      zero.path("size"),
      oss,
      `does not divide the ${shards} replicas of a parameter shard`,
      "give a divisor, or -1 for all",
    );
  return oss;
}

function overlapOf(weight: Fields): Pick<Plan, "forwardOverlap" | "backwardOverlap"> {
  const overlap = weight.boolean("overlap") ?? false;
  const granularity = weight.choice("forward_overlap_per", ["layer", "module"] as const) ?? "layer";
  if (!overlap) return { forwardOverlap: "none", backwardOverlap: "none" };
  return {
    forwardOverlap: granularity === "module" ? "intra-layer" : "inter-layer",
    backwardOverlap: "intra-layer",
  };
}

/** Its command line's own seed. */
const OWN_SEED = 1024;

function readTraining(root: Fields, data: Fields, takenAs: TakenAs[]) {
  const leftOut = new LeftOut("InternEvo", takenAs);
  const optimizer = readOptimizer(root, leftOut, takenAs);
  const steps = leftOut.none(data.integer("total_steps"), data.path("total_steps"));
  const seed = leftOut.own(root.integer("seed", 0), "seed", OWN_SEED);
  return {
    optimizer: {
      ...optimizer,
      ...(optimizer.schedule === "constant" && steps !== undefined ? { decaySteps: steps } : {}),
    },
    ...(steps === undefined ? {} : { steps }),
    seed,
  };
}

/** Without a pipeline InternEvo refuses another number than micro_num; with one it does not read it. */
function batchWarnings(data: Fields, n: number, pp: number): FrameworkWarning[] {
  const given = data.isKnown("gradient_accumulation") ? data.value("gradient_accumulation") : undefined;
  if (pp > 1 || given === undefined || given === n) return [];
  return [
    {
      field: data.path("gradient_accumulation"),
      value: repeated(given),
      message: `is not micro_num ${n}, which counts: InternEvo refuses it without a pipeline`,
      remedy: `give ${n}, or leave it out`,
    },
  ];
}

/** Reads an InternEvo configuration. @throws ProblemError `bad-request`. */
export function importInternEvo(
  files: readonly FrameworkFile[],
  asked: Launch | null,
): ImportedConfiguration {
  const [file] = files as readonly [FrameworkFile];
  const faults = new Faults(`the InternEvo configuration ${file.name}`);
  const root = rootOf(file, faults);
  const takenAs: TakenAs[] = [];
  const model = root.section("model");
  const data = root.section("data");
  const parallel = root.section("parallel");
  const weight = sized(parallel, "weight");
  const ignored = withoutEffect({ root, model, data, parallel, weight }, takenAs);
  const { launch, launchOrigin } = ranksInText(file.text, asked, faults);
  const read = readModel(model, root.text("model_type") ?? "INTERNLM", takenAs);
  const { tp, sp, ring, isp } = sequence(parallel, takenAs, ignored);
  const { pp, chunks } = pipelineOf(model, parallel, takenAs, ignored);
  const ps = weight.integer("size") ?? 1;
  if (ps > 1 && !isp)
    faults.add(weight.path("size"), ps, "needs parallel.tensor.mode isp", "use mode isp, or size 1");
  const overlaps = overlapOf(weight);
  const zero = sized(parallel, "zero1");
  ignored.push(...zero.rest("size", "", { fsdp: "is another sharding; use mode isp with parallel.weight" }));
  faults.end();
  const dp = quotient(
    faults,
    RANKS_FIELD,
    launch.nodes * launch.gpusPerNode,
    pp * sp,
    "pipeline.size times tensor.size",
  );
  const oss = optimizerShards(weight, zero, (dp * sp) / tp, ps);
  const b = data.needed("micro_bsz");
  const n = data.integer("micro_num") ?? 1;
  const sequenceLengthTokens = data.needed("seq_len");
  const recompute = recomputation(
    model,
    stageLayers({ layers: read.layers }, { pipelineParallel: pp }),
    takenAs,
  );
  const training = readTraining(root, data, takenAs);
  const precision = precisionOf(model, takenAs);
  faults.end();
  const plan: Plan = {
    microBatchSize: b,
    microBatches: n,
    ...recompute,
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    sequenceParallel: sp,
    contextParallel: ring,
    parameterSharding: ps,
    gradientSharding: 1,
    optimizerStateSharding: oss,
    pipelineChunks: chunks,
    ...overlaps,
  };
  return {
    framework: "internevo",
    version: FRAMEWORK_VERSIONS.internevo,
    launch,
    launchOrigin,
    model: read,
    sequenceLengthTokens,
    globalBatchTokens: b * n * dp * sequenceLengthTokens,
    precision,
    ...training,
    plan: normalPlan(plan, read),
    takenAs,
    warnings: batchWarnings(data, n, pp),
    ignored,
  };
}
