import { NATIVE_PROTOCOL, type TrainerConfig } from "@internevo/contracts";
import { PLAIN_PLAN, usesGpus, type Cluster, type Plan } from "@internevo/domain";
import { buildMesh } from "@internevo/plan";

const MODEL: TrainerConfig["model"] = {
  hiddenSize: 16,
  layers: 1,
  heads: 2,
  kvHeads: 2,
  ffnHiddenSize: 16,
  vocabularySize: 256,
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  initStandardDeviation: 0.02,
};
/** Runs that measure learn nothing: any optimizer will do. */
export const MEASURING_OPTIMIZER: TrainerConfig["optimizer"] = {
  peakLearningRate: 1e-3,
  minLearningRate: 1e-4,
  warmupSteps: 0,
  decaySteps: 1,
  weightDecay: 0,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  clipGlobalNorm: 1,
};
const SEQUENCE_LENGTH_TOKENS = 16;

/**
 * So much more than was measured may another start of the program take on processors: the kernel maps pages of it and
 * of its libraries around those that it reads, and not always the same. Five starts took 18,259,968 to 18,460,672
 * bytes, others lay 0.4 MB apart.
 */
const STARTS_APART_BYTES = 512 * 1024;

/**
 * What plans count for the program itself, where one start of it has taken so many bytes: enough for any other start.
 * On GPUs it is the device's memory, which every start takes alike.
 */
export const plannedRuntimeBytes = (measuredBytes: number, cluster: Pick<Cluster, "device">): number =>
  usesGpus(cluster) ? measuredBytes : measuredBytes + STARTS_APART_BYTES;

/** The tokens of a run that measures: any below the vocabulary's size. */
export interface TokensOfRun {
  readonly count: number;
  readonly vocabularySize: number;
}

/**
 * A step of a tiny model, whose trainer says what a rank takes beside its arena. It hardly depends on the
 * plan; one with all kinds of threads and groups is taken.
 */
export function runtimeRun(options: {
  readonly ranks: number;
  readonly threadsPerRank: number;
  readonly cluster: Pick<Cluster, "device">;
  readonly dataPath: string;
}): { readonly config: TrainerConfig; readonly tokens: TokensOfRun } {
  const { ranks, threadsPerRank, cluster, dataPath } = options;
  const plan: Plan = {
    ...PLAIN_PLAN,
    dataParallel: ranks,
    parameterSharding: ranks,
    forwardOverlap: "inter-layer",
    backwardOverlap: "intra-layer",
  };
  const config: TrainerConfig = {
    protocol: NATIVE_PROTOCOL,
    model: MODEL,
    sequenceLengthTokens: SEQUENCE_LENGTH_TOKENS,
    precision: "fp32",
    plan,
    mesh: buildMesh(plan),
    optimizer: MEASURING_OPTIMIZER,
    data: { path: dataPath, format: "own" },
    seed: 0,
    steps: 1,
    checkpoint: null,
    memoryLimitBytes: null,
    threadsPerRank,
    deterministic: true,
    gradientDumpPath: null,
    ...(usesGpus(cluster) ? { device: "cuda" as const } : {}),
  };
  return {
    config,
    tokens: { count: SEQUENCE_LENGTH_TOKENS * ranks + 1, vocabularySize: MODEL.vocabularySize },
  };
}
