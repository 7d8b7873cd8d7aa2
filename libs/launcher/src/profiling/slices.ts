import { randomInt } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { NATIVE_PROTOCOL, type TrainerConfig } from "@internevo/contracts";
import { buildMesh, layerModules, rooflineSeconds, type DevicePeak } from "@internevo/cost-model";
import {
  disturbancesOf,
  formatCounted,
  stepsOf,
  type Failure,
  type HostUse,
  type LaneStep,
  type MeasuredSlice,
  type Model,
  type Plan,
  type SliceParts,
  type SliceRequest,
  type SliceShape,
} from "@internevo/domain";
import { encodeHeader } from "../dataset/token-file.ts";
import type { LaunchOptions, LaunchOutcome } from "../launch-options.ts";
import { launchRanks } from "../launchers.ts";
import type { Trainer } from "../programs.ts";
import { rankWaits } from "./rank-waits.ts";
import { passesSeconds, stepParts, type StepParts } from "./step-parts.ts";
import { readTimeline } from "./read-timeline.ts";

/** So many are run of a slice where they are short. */
const MOST_MICRO_BATCHES = 2;
/** Every slice is run as often, one after the other, so that what else a machine does for a while spoils one round of it. The round between counts. */
export const SLICE_ROUNDS = 3;
const LEAST_STEPS = 2;
const MOST_STEPS = 8;
/** At this part of the device's peak a step is expected when it is decided how many fit the time. */
const EXPECTED_PEAK_FRACTION = 0.5;
const TIMEOUT_SECONDS = 300;
const OPTIMIZER: TrainerConfig["optimizer"] = {
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

const quantile = (sorted: readonly number[], q: number): number => {
  const at = q * (sorted.length - 1);
  const low = sorted[Math.floor(at)] as number;
  return low + (at - Math.floor(at)) * ((sorted[Math.ceil(at)] as number) - low);
};
const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** A step of all ranks: the mean of each part over the ranks, stretched to the rank that took longest for its passes: the others wait for it. */
function ofAllRanks(ranks: readonly LaneStep[]): { readonly parts: StepParts; readonly seconds: number } {
  const each = ranks.map(stepParts);
  const lengths = ranks.map(passesSeconds);
  const seconds = Math.max(...lengths);
  const stretch = seconds / mean(lengths);
  const parts = Object.fromEntries(
    Object.keys(each[0] as StepParts).map((name) => [
      name,
      stretch * mean(each.map((one) => one[name as keyof StepParts])),
    ]),
  ) as StepParts;
  return { parts, seconds };
}

/** The parts of a slice from the measured steps of all ranks. @throws Error when the ranks recorded different steps, or none. */
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
        steps.map(({ parts }) => parts[segment]).sort((a, b) => a - b),
        0.5,
      ) / times_,
    );
  const layer = (segment: keyof StepParts): number => median(segment, layers * microBatches);
  const once = (segment: keyof StepParts): number => median(segment, microBatches);
  const parts: SliceParts = {
    forward: [
      layer("forward qkv"),
      layer("forward attention output"),
      layer("forward gate and up"),
      layer("forward down"),
    ],
    forwardAttention: layer("forward attention"),
    forwardCommunication: layer("forward communication"),
    backward: [
      layer("backward qkv"),
      layer("backward attention output"),
      layer("backward gate and up"),
      layer("backward down"),
    ],
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

export type SlicesOutcome =
  | { readonly status: "measured"; readonly slices: SliceOfRounds[]; readonly notes: string[] }
  | { readonly status: "stopped" }
  | { readonly status: "failed"; readonly failure: Failure };

export interface MeasureSlicesOptions extends Omit<LaunchOptions<Trainer>, "program" | "config" | "onEvent"> {
  readonly trainer: Trainer;
  readonly slices: readonly SliceRequest[];
  readonly device: DevicePeak;
  /** About so long each is measured in a round. */
  readonly secondsPerSlice: number;
  /** Share of a host's processor time from which on others count as a disturbance of a round. */
  readonly mostOthersPercent: number;
  /** One was run, once in every round. */
  readonly onSlice: (shape: SliceShape) => void;
}

/** Tokens at random, as in a text all rows of the embedding are read. */
async function writeTokens(path: string, shape: SliceShape, sequences: number): Promise<void> {
  const tokenCount = sequences * shape.sequenceLengthTokens + 1;
  const bytesPerToken = shape.vocabularySize <= 2 ** 16 ? 2 : 4;
  const tokens = bytesPerToken === 2 ? new Uint16Array(tokenCount) : new Uint32Array(tokenCount);
  for (let at = 0; at < tokenCount; at += 1) tokens[at] = randomInt(shape.vocabularySize);
  await writeFile(
    path,
    Buffer.concat([
      encodeHeader({ bytesPerToken, tokenCount, vocabularySize: shape.vocabularySize }),
      Buffer.from(tokens.buffer),
    ]),
  );
}

const modelOf = (
  { hiddenSize, heads, kvHeads, ffnHiddenSize, vocabularySize }: SliceShape,
  layers: number,
): Omit<Model, "name"> => ({
  hiddenSize,
  heads,
  kvHeads,
  ffnHiddenSize,
  vocabularySize,
  layers,
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  initStandardDeviation: 0.02,
});

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

/** Runs one slice once. */
async function runSlice(
  { shape, layers }: SliceRequest,
  path: string,
  options: MeasureSlicesOptions,
): Promise<SliceOfRounds | Exclude<LaunchOutcome, { readonly status: "completed" }>> {
  const {
    trainer,
    ranks,
    runDirectory,
    slices: _slices,
    device,
    secondsPerSlice,
    mostOthersPercent,
    onSlice: _onSlice,
    ...place
  } = options;
  const timelinePath = join(runDirectory, "slice.json");
  const {
    precision,
    microBatchSize,
    sequenceLengthTokens,
    sequenceParallel,
    tensorParallel,
    contextParallel,
  } = shape;
  const dataParallel = ranks / sequenceParallel;
  const { microBatches, steps } = extentOf(shape, layers, device, secondsPerSlice);
  await writeTokens(path, shape, microBatchSize * microBatches * dataParallel);
  const plan: Plan = {
    microBatchSize,
    microBatches,
    recompute: false,
    pipelineParallel: 1,
    dataParallel,
    tensorParallel,
    sequenceParallel,
    contextParallel,
    parameterSharding: 1,
    gradientSharding: 1,
    optimizerStateSharding: 1,
    forwardOverlap: "none",
    backwardOverlap: "none",
  };
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
      tensorParallel,
      sequenceParallel,
      ...(contextParallel > 1 ? { contextParallel } : {}),
      parameterSharding: 1,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    },
    mesh: buildMesh(plan),
    optimizer: OPTIMIZER,
    data: { path, format: "own" },
    seed: 0,
    steps: steps + 2,
    checkpoint: null,
    memoryLimitBytes: null,
    threadsPerRank: place.threadsPerRank,
    deterministic: true,
    gradientDumpPath: null,
    // The first step is not counted; of the recorded ones the first says where the next begins.
    timeline: { path: timelinePath, firstStep: 2, steps: steps + 1 },
  };
  const hosts: HostUse[] = [];
  const outcome = await launchRanks({
    ...place,
    ranks,
    runDirectory,
    program: trainer,
    config,
    timeoutSeconds: TIMEOUT_SECONDS,
    onEvent: (event) => event.event === "hosts" && hosts.push(...event.hosts),
  });
  if (outcome.status !== "completed") return outcome;
  const timeline = (await readTimeline(timelinePath)).map(stepsOf);
  const measured = slicePartsOf(timeline, layers, microBatches);
  const waits = sequenceParallel === 1 && ranks > 1 ? rankWaits(timeline) : undefined;
  return {
    shape,
    layers,
    microBatches,
    ...measured,
    ...(waits ? { waits } : {}),
    disturbances: disturbancesOf(hosts, mostOthersPercent),
  };
}

/**
 * The round whose time is in the middle, of an even number the faster of the two, with the spread of all: what a machine does between rounds is
 * part of it. Rounds that were disturbed count only where all were.
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

/**
 * Runs slices with the trainer itself: a model of the asked widths, unsharded, on all ranks of the cluster, and takes the
 * parts of a layer from its timeline. Modules that are measured one by one, on data that are still in the caches and without the waits of
 * ranks for one another, say less than a step needs.
 * A slice that does not fit the memory is left out, with a note.
 */
export async function measureSlices(options: MeasureSlicesOptions): Promise<SlicesOutcome> {
  const { runDirectory, slices, onSlice } = options;
  await mkdir(runDirectory, { recursive: true });
  const rounds = slices.map((): SliceOfRounds[] => []);
  const withoutRoom = new Set<SliceRequest>();
  const begin = performance.now();
  for (let round = 0; round < SLICE_ROUNDS; round += 1) {
    for (const [index, slice] of slices.entries()) {
      if (!withoutRoom.has(slice)) {
        const run = await runSlice(slice, join(runDirectory, "slice.tokens"), options);
        if ("shape" in run) rounds[index]?.push(run);
        else if (run.status === "stopped") return { status: "stopped" };
        else if (run.failure.code === "out-of-memory") withoutRoom.add(slice);
        else return { status: "failed", failure: run.failure };
      }
      onSlice(slice.shape);
    }
  }
  const measured = rounds.filter((own) => own.length > 0).map(ofRounds);
  const notes = [...withoutRoom].map(
    ({ shape: { microBatchSize, sequenceLengthTokens, sequenceParallel } }) =>
      `no room for a micro-batch of ${formatCounted(microBatchSize, "sequence")} of ${formatCounted(sequenceLengthTokens, "token")} over ${formatCounted(sequenceParallel, "rank")}`,
  );
  if (measured.length > 0)
    notes.push(
      `${formatCounted(measured.length, "micro-batch", "micro-batches")} in the trainer, ${SLICE_ROUNDS} times each, took ${((performance.now() - begin) / 1000).toFixed(1)} s`,
    );
  return { status: "measured", slices: measured, notes };
}
