import { NATIVE_PROTOCOL, type TrainerConfig } from "@internevo/contracts";
import { layerModules, rooflineSeconds, UNIT_PRODUCTS, type DevicePeak } from "@internevo/cost-model";
import {
  disturbancesOf,
  formatCounted,
  PLAIN_PLAN,
  shortSplit,
  splitOf,
  stepsOf,
  usesGpus,
  withoutSplit,
  type Cluster,
  type HostUse,
  type LaneEvent,
  type LaneStep,
  type MeasuredSlice,
  type Model,
  type Plan,
  type SliceParts,
  type SliceRequest,
  type SliceShape,
} from "@internevo/domain";
import { buildMesh } from "@internevo/plan";
import { rankWaits } from "./rank-waits.ts";
import { MEASURING_OPTIMIZER, type TokensOfRun } from "./runtime.ts";
import { passesSeconds, passSegment, stepParts, type StepParts } from "./step-parts.ts";

/** So many are run of a slice where they are short. */
const MOST_MICRO_BATCHES = 2;
/**
 * Every slice is run as often, one after the other, so that what else a machine does for a while spoils one
 * round of it. The round between counts. Tests of what measuring does around it ask for fewer.
 */
export const DEFAULT_SLICE_ROUNDS = 3;
const LEAST_STEPS = 2;
const MOST_STEPS = 8;
/** At this part of the device's peak a step is expected when it is decided how many fit the time. */
const EXPECTED_PEAK_FRACTION = 0.5;
const quantile = (sorted: readonly number[], q: number): number => {
  const at = q * (sorted.length - 1);
  const low = sorted[Math.floor(at)] as number;
  return low + (at - Math.floor(at)) * ((sorted[Math.ceil(at)] as number) - low);
};
const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * A step of all ranks: the mean of each part over the ranks, stretched to the rank that took longest for its
 * passes: the others wait for it.
 */
function ofAllRanks(ranks: readonly LaneStep[]): { readonly parts: StepParts; readonly seconds: number } {
  const each = ranks.map(stepParts);
  const lengths = ranks.map(passesSeconds);
  const seconds = Math.max(...lengths);
  const stretch = seconds / mean(lengths);
  const parts = Object.fromEntries(
    Object.keys(each[0] as StepParts).map((name) => [
      name,
      stretch * mean(each.map((one) => one[name as keyof StepParts] as number)),
    ]),
  ) as StepParts;
  return { parts, seconds };
}

/**
 * The parts of a slice from the measured steps of all ranks. @throws Error when the ranks recorded different
 * steps, or none.
 */
export function slicePartsOf(
  ranks: readonly (readonly LaneStep[])[],
  layers: number,
  microBatches: number,
): Pick<MeasuredSlice, "parts" | "medianSeconds" | "p10Seconds" | "p90Seconds" | "samples"> {
  const count = ranks[0]?.length ?? 0;
  if (count === 0 || ranks.some((steps) => steps.length !== count))
    throw new Error("the ranks of a slice did not record the same steps");
  const steps = Array.from({ length: count }, (_, step) =>
    ofAllRanks(ranks.map((own) => own[step] as LaneStep)),
  );
  const times = steps.map(({ seconds }) => seconds / microBatches).sort((a, b) => a - b);
  const median = (segment: keyof StepParts, times_: number): number =>
    Math.max(
      0,
      quantile(
        steps.map(({ parts }) => parts[segment] as number).sort((a, b) => a - b),
        0.5,
      ) / times_,
    );
  const layer = (segment: keyof StepParts): number => median(segment, layers * microBatches);
  const once = (segment: keyof StepParts): number => median(segment, microBatches);
  const parts: SliceParts = {
    forward: UNIT_PRODUCTS.map((name) => layer(passSegment("forward", name))),
    forwardAttention: layer("forward attention"),
    forwardCommunication: layer("forward communication"),
    backward: UNIT_PRODUCTS.map((name) => layer(passSegment("backward", name))),
    backwardAttention: layer("backward attention"),
    backwardCommunication: layer("backward communication"),
    embedding: once("embedding"),
    embeddingCommunication: once("embedding communication"),
    head: once("head"),
    headCommunication: once("head communication"),
  };
  return {
    parts,
    medianSeconds: quantile(times, 0.5),
    p10Seconds: quantile(times, 0.1),
    p90Seconds: quantile(times, 0.9),
    samples: count,
  };
}

/** A slice, and why its time may be wrong: empty where a round of it was not disturbed. */
export type SliceOfRounds = MeasuredSlice & { readonly disturbances: readonly string[] };

/** The model of a slice: all that its shape says but how much of it runs, and how ranks share that. */
function modelOf(shape: SliceShape, layers: number): Omit<Model, "name"> {
  const {
    precision: _precision,
    microBatchSize: _size,
    sequenceLengthTokens: _length,
    ...model
  } = withoutSplit(shape);
  return {
    ...model,
    layers,
    tiedEmbeddings: false,
    ropeTheta: 10_000,
    normEpsilon: 1e-5,
    initStandardDeviation: 0.02,
  };
}

/** How many micro-batches and steps fit the time, about. */
function extentOf(
  shape: SliceShape,
  layers: number,
  device: DevicePeak,
  seconds: number,
): { readonly microBatches: number; readonly steps: number } {
  const { forward, backward } = layerModules(
    { name: "slice", ...modelOf(shape, layers) },
    shape,
    shape.precision,
  );
  const layer = [...forward, ...backward].reduce(
    (sum, one) => sum + one.count * rooflineSeconds(one.shape, device),
    0,
  );
  const microBatch = (layers * layer) / EXPECTED_PEAK_FRACTION;
  const microBatches = MOST_MICRO_BATCHES * microBatch * LEAST_STEPS <= seconds ? MOST_MICRO_BATCHES : 1;
  return {
    microBatches,
    steps: Math.min(MOST_STEPS, Math.max(LEAST_STEPS, Math.round(seconds / (microBatches * microBatch)))),
  };
}

export interface SliceRunOptions {
  readonly ranks: number;
  readonly threadsPerRank: number;
  readonly cluster: Pick<Cluster, "device">;
  readonly device: DevicePeak;
  /** About so long the slice is measured. */
  readonly seconds: number;
  /** The token file, and where the timeline is to be written. */
  readonly dataPath: string;
  readonly timelinePath: string;
}

/** A run of the trainer that measures a slice: what it reads, and how its timeline is divided. */
export interface SliceRun {
  readonly config: TrainerConfig;
  readonly tokens: TokensOfRun;
  readonly microBatches: number;
}

/**
 * The trainer's configuration for one run of a slice: a model of the asked widths, unsharded, on all ranks.
 */
export function sliceRun({ shape, layers }: SliceRequest, options: SliceRunOptions): SliceRun {
  const { ranks, threadsPerRank, cluster, device, seconds, dataPath, timelinePath } = options;
  const { precision, microBatchSize, sequenceLengthTokens } = shape;
  const split = splitOf(shape);
  const dataParallel = ranks / split.sequenceParallel;
  const { microBatches, steps } = extentOf(shape, layers, device, seconds);
  const plan: Plan = { ...PLAIN_PLAN, microBatchSize, microBatches, dataParallel, ...split };
  const config: TrainerConfig = {
    protocol: NATIVE_PROTOCOL,
    model: modelOf(shape, layers),
    sequenceLengthTokens,
    precision,
    plan: {
      microBatchSize,
      microBatches,
      recompute: false,
      pipelineParallel: 1,
      dataParallel,
      ...shortSplit(split),
      parameterSharding: 1,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    },
    mesh: buildMesh(plan),
    optimizer: MEASURING_OPTIMIZER,
    data: { path: dataPath, format: "own" },
    seed: 0,
    steps: steps + 2,
    checkpoint: null,
    memoryLimitBytes: null,
    threadsPerRank,
    deterministic: true,
    gradientDumpPath: null,
    ...(usesGpus(cluster) ? { device: "cuda" as const } : {}),
    // The first step is not counted; of the recorded ones the first says where the next begins.
    timeline: { path: timelinePath, firstStep: 2, steps: steps + 1 },
  };
  return {
    config,
    microBatches,
    tokens: {
      count: microBatchSize * microBatches * dataParallel * sequenceLengthTokens + 1,
      vocabularySize: shape.vocabularySize,
    },
  };
}

/**
 * A slice by the timeline of a run of it, and what the hosts did meanwhile.
 * @param timeline the events of every rank. @throws Error when the ranks recorded different steps, or none.
 */
export function measuredSlice(
  { shape, layers }: SliceRequest,
  microBatches: number,
  timeline: readonly (readonly LaneEvent[])[],
  hosts: readonly HostUse[],
  mostOthersPercent: number,
): SliceOfRounds {
  const steps = timeline.map(stepsOf);
  const waits = shape.sequenceParallel === 1 && steps.length > 1 ? rankWaits(steps) : undefined;
  return {
    shape,
    layers,
    microBatches,
    ...slicePartsOf(steps, layers, microBatches),
    ...(waits ? { waits } : {}),
    disturbances: disturbancesOf(hosts, mostOthersPercent),
  };
}

/** What a profile's notes say of a slice that has no room. */
export const noRoomNote = ({
  shape: { microBatchSize, sequenceLengthTokens, sequenceParallel },
}: SliceRequest): string =>
  `no room for a micro-batch of ${formatCounted(microBatchSize, "sequence")} of ` +
  `${formatCounted(sequenceLengthTokens, "token")} over ${formatCounted(sequenceParallel, "rank")}`;

/**
 * The round whose time is in the middle, of an even number the faster of the two, with the spread of all:
 * what a machine does between rounds is part of it. Rounds that were disturbed count only where all were.
 */
export function ofRounds(all: readonly SliceOfRounds[]): SliceOfRounds {
  const quiet = all.filter(({ disturbances }) => disturbances.length === 0);
  const rounds = quiet.length > 0 ? quiet : all;
  const middle = [...rounds].sort((a, b) => a.medianSeconds - b.medianSeconds)[
    Math.floor((rounds.length - 1) / 2)
  ] as SliceOfRounds;
  return {
    ...middle,
    p10Seconds: Math.min(...rounds.map(({ p10Seconds, medianSeconds }) => p10Seconds ?? medianSeconds)),
    p90Seconds: Math.max(...rounds.map(({ p90Seconds, medianSeconds }) => p90Seconds ?? medianSeconds)),
    samples: rounds.reduce((sum, { samples = 0 }) => sum + samples, 0),
  };
}
