import { recomputedLayers, type TimeBreakdown } from "@internevo/domain";
import type { GateUp, OverlapChoice } from "@internevo/plan";
import {
  againSeconds,
  copySeconds,
  layerPart,
  layerWaits,
  outerPart,
  overlapsAny,
  stagingOf,
  updateSeconds,
  type LayerKind,
  type LayerWaits,
  type Part,
} from "./layer-step.ts";
import type { SliceTime } from "./layer-time.ts";
import type { ShardTime } from "./shard-time.ts";

/**
 * A step in the closed form of the paper (section "Execution Simulator"), with the stages of a pipeline as
 * they differ.
 */
export interface StepShape {
  readonly microBatches: number;
  readonly pipelineParallel: number;
  /** v: interleaved 1F1B with more than one; the bubble is 1/v of the plain one. */
  readonly chunks: number;
  /** L. */
  readonly layers: number;
  readonly recompute: boolean;
  /** Layers of a stage that are recomputed when `recompute` is false. */
  readonly recomputeLayers?: number;
  /** What its other layers do with gate and up; kept where it is left out. */
  readonly gateUp?: GateUp;
  /** s_gs > 1: gradients are reduced after every micro-batch, not once a step. */
  readonly reduceEveryMicroBatch: boolean;
  /** One message over a stage boundary; 0 without a pipeline. */
  readonly boundarySeconds: number;
  readonly overlap: OverlapChoice;
}

const plus = (a: Part, b: Part, times = 1): Part => ({
  compute: a.compute + times * b.compute,
  recompute: a.recompute + times * b.recompute,
  sequence: a.sequence + times * b.sequence,
  parameters: a.parameters + times * b.parameters,
  reduction: a.reduction + times * b.reduction,
  copies: a.copies + times * b.copies,
});

const NOTHING: Part = { compute: 0, recompute: 0, sequence: 0, parameters: 0, reduction: 0, copies: 0 };

const lengthOf = (part: Part): number =>
  part.compute + part.recompute + part.sequence + part.parameters + part.copies;

/** One micro-batch on the slowest stage, and on all stages one after the other. */
interface Stages {
  readonly slowest: Part;
  readonly all: Part;
}

/**
 * The first stages have ⌈L/s_pp⌉ layers, the first of them the embedding; the last has ⌊L/s_pp⌋ and the head.
 * No stage between is slower than the first.
 */
function stagesOf(slice: SliceTime, shard: ShardTime, waits: LayerWaits, step: StepShape): Stages {
  const { pipelineParallel: pp, layers, reduceEveryMicroBatch: every } = step;
  const kept = layerPart(slice, shard, waits, step.overlap, every, step.gateUp ?? "kept");
  const recomputed = layerPart(slice, shard, waits, step.overlap, every, "recomputed");
  const stack = (count: number): Part => {
    const again = recomputedLayers(step, count);
    return plus(plus(NOTHING, recomputed, again), kept, count - again);
  };
  const embedding = outerPart("embedding", slice, shard, every);
  const head = outerPart("head", slice, shard, every);
  if (pp === 1) {
    const only = plus(plus(embedding, head), stack(layers));
    return { slowest: only, all: only };
  }
  const longest = stack(Math.ceil(layers / pp));
  const shortest = stack(Math.floor(layers / pp));
  const longer = layers % pp;
  const all = plus(plus(plus(embedding, head), longest, longer), shortest, pp - longer);
  const first = plus(embedding, longest);
  const last = plus(head, shortest);
  return { slowest: inStep(first, step) > inStep(last, step) ? first : last, all };
}

/**
 * How much a stage adds to the step by being the slowest; without overlap the reduction once a step is
 * counted for all stages together.
 */
function inStep(part: Part, step: StepShape): number {
  const reduceOnce =
    !step.reduceEveryMicroBatch && step.overlap.backwardOverlap !== "none" ? part.reduction : 0;
  return (step.microBatches - 1 / step.chunks) * microBatchLength(part, step) + reduceOnce;
}

const microBatchLength = (part: Part, step: StepShape): number =>
  lengthOf(part) + (step.reduceEveryMicroBatch ? part.reduction : 0);

/**
 * How much longer a step takes because a message takes m over a stage boundary. Messages travel during
 * computation (native/src/trainer/pipeline_link.h), but what they carry is waited for. 1F1B has s_pp
 * micro-batches in flight, so the first stage goes on with the next only when one has been to the last stage
 * and back: every micro-batch waits 2m·(s_pp − 1)/s_pp. Interleaved, more are in flight: the way to the last
 * chunk and back counts once, and what is longer than the forward pass of a chunk (a third of it and its
 * backward pass) in every turn.
 */
export function messageSeconds(
  step: Pick<StepShape, "microBatches" | "pipelineParallel" | "boundarySeconds">,
  chunks: number,
  stageSeconds: number,
  boundarySeconds = step.boundarySeconds,
): number {
  const { microBatches: n, pipelineParallel: pp } = step;
  if (pp === 1) return 0;
  if (chunks === 1) return 2 * boundarySeconds * (pp - 1 + Math.floor(((n - 1) * (pp - 1)) / pp));
  return (
    2 * boundarySeconds * (pp * chunks - 1) +
    (n - pp) * Math.max(0, chunks * boundarySeconds - stageSeconds / 3)
  );
}

/**
 * Seconds of one step by cause: the slowest stage runs n micro-batches, and waits while a micro-batch passes
 * the other stages: (s_pp − 1)/v of one where all stages are equal.
 */
export function stepBreakdown(
  slice: SliceTime,
  shard: ShardTime,
  step: StepShape,
  waits: LayerWaits = layerWaits(slice, shard),
): TimeBreakdown {
  const { slowest: part, all } = stagesOf(slice, shard, waits, step);
  const { microBatches: n, pipelineParallel: pp, chunks } = step;
  // What overlaps is reduced behind the last backward pass, unit by unit.
  const reduceOnce = step.overlap.backwardOverlap === "none" ? shard.reduceOnceSeconds : part.reduction;
  const length = microBatchLength(part, step);
  return {
    computeSeconds: n * part.compute,
    recomputeSeconds: n * part.recompute,
    sequenceCommunicationSeconds: n * part.sequence,
    parameterCommunicationSeconds: n * part.parameters,
    gradientCommunicationSeconds:
      (step.reduceEveryMicroBatch ? n * part.reduction : reduceOnce) + shard.shareOnceSeconds,
    pipelineBubbleSeconds: pp === 1 ? 0 : Math.max(0, microBatchLength(all, step) - length) / chunks,
    pipelineCommunicationSeconds: messageSeconds(step, chunks, length),
    ...(step.gateUp === "host" ? { hostCopySeconds: n * part.copies } : {}),
    updateSeconds: updateSeconds(slice, shard, step.overlap, Math.ceil(step.layers / pp)),
  };
}

/** The causes of a step, added in a fixed order. */
export function totalSeconds(time: TimeBreakdown): number {
  return (
    time.computeSeconds +
    time.recomputeSeconds +
    time.sequenceCommunicationSeconds +
    time.parameterCommunicationSeconds +
    time.gradientCommunicationSeconds +
    time.pipelineBubbleSeconds +
    time.pipelineCommunicationSeconds +
    (time.hostCopySeconds ?? 0) +
    time.updateSeconds
  );
}

/**
 * What a search needs of a step to have its time for every number of recomputed layers and every number of
 * chunks by a few sums.
 */
export interface StepCosts {
  /** One micro-batch: a layer that is not recomputed, or is, embedding, head. */
  readonly kept: number;
  readonly recomputed: number;
  readonly embedding: number;
  readonly head: number;
  /**
   * Reduction once a step that the slowest stage pays, of the same; 0 where it is part of the above, or
   * counted for all together.
   */
  readonly keptOnce: number;
  readonly recomputedOnce: number;
  readonly embeddingOnce: number;
  readonly headOnce: number;
  /** Whatever else a step takes once. */
  readonly once: number;
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

/**
 * The costs of the steps of a sharding on a slice, for every choice of overlap and of gate and up. A search asks
 * millions of times and mostly for a bound: then they are written into a row that is used again.
 */
export type CostsOf = (
  waits: LayerWaits,
  overlap: OverlapChoice,
  gateUp: GateUp,
  into?: Mutable<StepCosts>,
) => StepCosts;

/** A row to write costs into. It begins with fractions: whole numbers would change how the engine keeps its fields. */
export const costsRow = (): Mutable<StepCosts> => ({
  kept: 0.5,
  recomputed: 0.5,
  embedding: 0.5,
  head: 0.5,
  keptOnce: 0.5,
  recomputedOnce: 0.5,
  embeddingOnce: 0.5,
  headOnce: 0.5,
  once: 0.5,
});

/**
 * What is the same for every choice of overlap is added up once; `stageLayers` are those of the longest
 * stage.
 */
export function stepCosting(
  slice: SliceTime,
  shard: ShardTime,
  reduceEveryMicroBatch: boolean,
  stageLayers: number,
): CostsOf {
  const every = reduceEveryMicroBatch;
  const staging = stagingOf(shard, every);
  const layer =
    slice.forwardSeconds +
    slice.backwardSeconds +
    staging.layer +
    slice.forwardCommunicationSeconds +
    slice.backwardCommunicationSeconds;
  const withAgain = (kind: LayerKind): number => {
    const { compute, sequence } = againSeconds(slice, kind);
    return layer + compute + sequence + copySeconds(slice, kind);
  };
  const layers = {
    kept: layer,
    again: withAgain("again"),
    host: withAgain("host"),
    recomputed: withAgain("recomputed"),
  };
  const { gather, scatter, reduce } = shard;
  const embedding =
    slice.embeddingSeconds +
    staging.embedding +
    slice.embeddingCommunicationSeconds +
    gather.embedding +
    scatter.embedding +
    (every ? reduce.embedding : 0);
  const head =
    slice.headSeconds +
    staging.head +
    slice.headCommunicationSeconds +
    gather.head +
    scatter.head +
    (every ? reduce.head : 0);
  const [waited, beside] = [
    updateSeconds(slice, shard, NOT_OVERLAPPING, stageLayers),
    updateSeconds(slice, shard, OVERLAPPING, stageLayers),
  ];
  return (waits, overlap, gateUp, into = costsRow()) => {
    const forward = waits.forward[overlap.forwardOverlap];
    const kept = waits[gateUp][overlap.backwardOverlap];
    const recomputed = waits.recomputed[overlap.backwardOverlap];
    const hidden = !every && overlap.backwardOverlap !== "none";
    into.kept = layers[gateUp] + forward + kept.parameters + (every ? kept.reduction : 0);
    into.recomputed =
      layers.recomputed + forward + recomputed.parameters + (every ? recomputed.reduction : 0);
    into.embedding = embedding;
    into.head = head;
    into.keptOnce = hidden ? kept.reduction : 0;
    into.recomputedOnce = hidden ? recomputed.reduction : 0;
    into.embeddingOnce = hidden ? reduce.embedding : 0;
    into.headOnce = hidden ? reduce.head : 0;
    into.once =
      (every || hidden ? 0 : shard.reduceOnceSeconds) +
      shard.shareOnceSeconds +
      (overlapsAny(overlap) ? beside : waited);
    return into;
  };
}

const NOT_OVERLAPPING: OverlapChoice = { forwardOverlap: "none", backwardOverlap: "none" };
const OVERLAPPING: OverlapChoice = { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" };

/**
 * The costs of a slice alone: with them a step is a lower bound for every sharding, because every term grows
 * with each of its own.
 */
export function sliceCosts(slice: SliceTime): StepCosts {
  const kept =
    slice.forwardSeconds +
    slice.backwardSeconds +
    slice.forwardCommunicationSeconds +
    slice.backwardCommunicationSeconds;
  return {
    kept,
    recomputed: kept + slice.recomputeSeconds + slice.recomputeCommunicationSeconds,
    embedding: slice.embeddingSeconds + slice.embeddingCommunicationSeconds,
    head: slice.headSeconds + slice.headCommunicationSeconds,
    keptOnce: 0,
    recomputedOnce: 0,
    embeddingOnce: 0,
    headOnce: 0,
    once: 0,
  };
}

/** What a step's time depends on beside its costs, chunks and recomputed layers. */
export type StepSize = Pick<StepShape, "microBatches" | "pipelineParallel" | "layers" | "boundarySeconds">;

/** The time of {@link stepBreakdown} up to rounding, for k recomputed layers of each stage. */
export const secondsOf = (costs: StepCosts, k: number, step: StepSize, chunks: number): number =>
  secondsWith(costs, costs.kept, costs.keptOnce, k, step, chunks, step.boundarySeconds);

/** `kept` and `keptOnce` stand for those of the costs: a search asks too often to copy these. */
function secondsWith(
  costs: StepCosts,
  kept: number,
  keptOnce: number,
  k: number,
  step: StepSize,
  chunks: number,
  boundarySeconds: number,
): number {
  const { pipelineParallel: pp, layers, microBatches: n } = step;
  const most = Math.ceil(layers / pp);
  const again = Math.min(k, most);
  const longest = again * costs.recomputed + (most - again) * kept;
  const longestOnce = again * costs.recomputedOnce + (most - again) * keptOnce;
  if (pp === 1)
    return (
      n * (longest + costs.embedding + costs.head) +
      longestOnce +
      costs.embeddingOnce +
      costs.headOnce +
      costs.once
    );
  const least = Math.floor(layers / pp);
  const few = Math.min(k, least);
  const shortest = few * costs.recomputed + (least - few) * kept;
  const shortestOnce = few * costs.recomputedOnce + (least - few) * keptOnce;
  const longer = layers % pp;
  const all = costs.embedding + costs.head + longer * longest + (pp - longer) * shortest;
  const turns = n - 1 / chunks;
  const first = turns * (costs.embedding + longest) + longestOnce + costs.embeddingOnce;
  const last = turns * (costs.head + shortest) + shortestOnce + costs.headOnce;
  const slowest = first > last ? costs.embedding + longest : costs.head + shortest;
  return (
    Math.max(first, last) + all / chunks + messageSeconds(step, chunks, slowest, boundarySeconds) + costs.once
  );
}

/**
 * A lower bound of {@link secondsOf} for every number of recomputed layers from the one given, and every
 * number of chunks from the fewest to the most.
 */
export function leastSecondsOf(
  costs: StepCosts,
  step: StepSize,
  fewest: number,
  most: number,
  recomputed = 0,
): number {
  const kept = Math.min(costs.kept, costs.recomputed);
  const keptOnce = Math.min(costs.keptOnce, costs.recomputedOnce);
  const { pipelineParallel: pp, boundarySeconds } = step;
  if (fewest === most) return secondsWith(costs, kept, keptOnce, recomputed, step, fewest, boundarySeconds);
  // The bubble is smallest with most chunks, the way of messages shortest with the fewest; of 1 and 2 it may
  // be either.
  const way =
    fewest === 1
      ? Math.min(messageSeconds(step, 1, 0), 2 * boundarySeconds * (2 * pp - 1))
      : 2 * boundarySeconds * (pp * fewest - 1);
  return secondsWith(costs, kept, keptOnce, recomputed, step, most, 0) + way;
}
