import { recomputedLayers, type Plan, type TimeBreakdown } from "@internevo/domain";
import type { SliceTime } from "./layer-time.ts";
import type { ShardTime, UnitTimes } from "./shard-time.ts";
import { together } from "./together.ts";

/** What the executor hides, and what hiding costs. */
export interface OverlapPolicy {
  readonly forward: Plan["forwardOverlap"];
  readonly backward: Plan["backwardOverlap"];
  /** R of the paper, at least 1: how much slower computation and communication of one length are together. */
  readonly forwardSlowdown: number;
  readonly backwardSlowdown: number;
}

/** A step in the closed form of the paper (section "Execution Simulator"), with the stages of a pipeline as they differ. */
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
  /** s_gs > 1: gradients are reduced after every micro-batch, not once a step. */
  readonly reduceEveryMicroBatch: boolean;
  /** One message over a stage boundary; 0 without a pipeline. */
  readonly boundarySeconds: number;
  readonly overlap: OverlapPolicy;
}

interface Part {
  readonly compute: number;
  readonly recompute: number;
  readonly sequence: number;
  readonly parameters: number;
  /** The reduction over the replicas, run once. */
  readonly reduction: number;
}

/** With gradient sharding a gradient is added to what is kept after its reduction, else after the reduce-scatter over s_ps. */
const stagingOf = (shard: ShardTime, step: StepShape): UnitTimes => (step.reduceEveryMicroBatch ? shard.stageReduced : shard.stage);

/** One layer, forward and backward, by cause. */
function layerPart(slice: SliceTime, shard: ShardTime, step: StepShape, recompute: boolean): Part {
  const { overlap } = step;
  const compute = slice.forwardSeconds + slice.backwardSeconds + stagingOf(shard, step).layer;
  const again = recompute ? slice.recomputeSeconds : 0;
  const sequence = slice.forwardCommunicationSeconds + slice.backwardCommunicationSeconds + (recompute ? slice.recomputeCommunicationSeconds : 0);
  const forwardGather = overlap.forward === "none"
    ? shard.gather.layer
    : together(slice.forwardSeconds, shard.gather.layer, overlap.forwardSlowdown) - slice.forwardSeconds;
  const moved = shard.gather.layer + shard.scatter.layer;
  if (overlap.backward === "none") {
    return { compute, recompute: again, sequence: sequence + slice.hideableCommunicationSeconds, parameters: forwardGather + moved, reduction: shard.reduce.layer };
  }
  const behind = slice.backwardSeconds + again;
  const hidden = (communication: number) => together(behind, communication, overlap.backwardSlowdown);
  const withTensor = hidden(slice.hideableCommunicationSeconds);
  const withParameters = hidden(slice.hideableCommunicationSeconds + moved);
  const withReduction = hidden(slice.hideableCommunicationSeconds + moved + shard.reduce.layer);
  return {
    compute,
    recompute: again,
    sequence: sequence + withTensor - behind,
    parameters: forwardGather + withParameters - withTensor,
    reduction: withReduction - withParameters,
  };
}

/** Embedding or head: the embedding is gathered before and reduced after all layers, so nothing hides it; the head is between them. */
function outerPart(unit: "embedding" | "head", slice: SliceTime, shard: ShardTime, step: StepShape): Part {
  const compute = slice[`${unit}Seconds`] + stagingOf(shard, step)[unit];
  return { compute, recompute: 0, sequence: slice[`${unit}CommunicationSeconds`], parameters: shard.gather[unit] + shard.scatter[unit], reduction: shard.reduce[unit] };
}

const plus = (a: Part, b: Part, times = 1): Part => ({
  compute: a.compute + times * b.compute,
  recompute: a.recompute + times * b.recompute,
  sequence: a.sequence + times * b.sequence,
  parameters: a.parameters + times * b.parameters,
  reduction: a.reduction + times * b.reduction,
});

const NOTHING: Part = { compute: 0, recompute: 0, sequence: 0, parameters: 0, reduction: 0 };

const lengthOf = (part: Part): number => part.compute + part.recompute + part.sequence + part.parameters;

/** One micro-batch on the slowest stage, and on all stages one after the other. */
interface Stages {
  readonly slowest: Part;
  readonly all: Part;
}

/**
 * The first stages have ⌈L/s_pp⌉ layers, the first of them the embedding; the last has ⌊L/s_pp⌋ and the head. No stage between
 * is slower than the first.
 */
function stagesOf(slice: SliceTime, shard: ShardTime, step: StepShape): Stages {
  const { pipelineParallel: pp, layers } = step;
  const kept = layerPart(slice, shard, step, false);
  const recomputed = layerPart(slice, shard, step, true);
  const stack = (count: number): Part => {
    const again = recomputedLayers(step, count);
    return plus(plus(NOTHING, recomputed, again), kept, count - again);
  };
  const embedding = outerPart("embedding", slice, shard, step);
  const head = outerPart("head", slice, shard, step);
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

/** How much a stage adds to the step by being the slowest; without overlap the reduction once a step is counted for all stages together. */
function inStep(part: Part, step: StepShape): number {
  const reduceOnce = !step.reduceEveryMicroBatch && step.overlap.backward !== "none" ? part.reduction : 0;
  return (step.microBatches - 1 / step.chunks) * microBatchLength(part, step) + reduceOnce;
}

const microBatchLength = (part: Part, step: StepShape): number => lengthOf(part) + (step.reduceEveryMicroBatch ? part.reduction : 0);

/**
 * Seconds of one step by cause: the slowest stage runs n micro-batches, and waits while a micro-batch passes the other stages:
 * (s_pp − 1)/v of one where all stages are equal.
 */
export function stepBreakdown(slice: SliceTime, shard: ShardTime, step: StepShape): TimeBreakdown {
  const { slowest: part, all } = stagesOf(slice, shard, step);
  const { microBatches: n, pipelineParallel: pp, chunks } = step;
  // What overlaps is reduced behind the last backward pass, unit by unit.
  const reduceOnce = step.overlap.backward === "none" ? shard.reduceOnceSeconds : part.reduction;
  return {
    computeSeconds: n * part.compute,
    recomputeSeconds: n * part.recompute,
    sequenceCommunicationSeconds: n * part.sequence,
    parameterCommunicationSeconds: n * part.parameters,
    gradientCommunicationSeconds: (step.reduceEveryMicroBatch ? n * part.reduction : reduceOnce) + shard.shareOnceSeconds,
    pipelineBubbleSeconds: pp === 1 ? 0 : Math.max(0, microBatchLength(all, step) - microBatchLength(part, step)) / chunks,
    pipelineCommunicationSeconds: pp === 1 ? 0 : (n * chunks + pp - 1) * 2 * step.boundarySeconds,
    updateSeconds: shard.updateSeconds,
  };
}

/** The causes of a step, added in a fixed order. */
export function totalSeconds(time: TimeBreakdown): number {
  return (
    time.computeSeconds + time.recomputeSeconds + time.sequenceCommunicationSeconds + time.parameterCommunicationSeconds +
    time.gradientCommunicationSeconds + time.pipelineBubbleSeconds + time.pipelineCommunicationSeconds + time.updateSeconds
  );
}
