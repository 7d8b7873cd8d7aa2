import type { Plan, TimeBreakdown } from "@internevo/domain";
import type { SliceTime } from "./layer-time.ts";
import type { ShardTime, UnitTimes } from "./shard-time.ts";

/** What the executor hides, and what hiding costs. */
export interface OverlapPolicy {
  readonly forward: Plan["forwardOverlap"];
  readonly backward: Plan["backwardOverlap"];
  /** R of the paper, at least 1: how much slower computation and communication of one length are together. */
  readonly forwardSlowdown: number;
  readonly backwardSlowdown: number;
}

/**
 * Time of computation c and communication m side by side. Both slow down by R while they run together, for the length of
 * the shorter, so the time is max + (R − 1)·min. The paper takes R·max throughout, which is the same where they are equal
 * and charges a slow-down for communication that is already over where they are not.
 */
export function together(compute: number, communication: number, slowdown: number): number {
  return Math.max(compute, communication) + (slowdown - 1) * Math.min(compute, communication);
}

/** A step in the closed form of the paper (section "Execution Simulator"): (n + s_pp − 1) · one micro-batch + update. */
export interface StepShape {
  readonly microBatches: number;
  readonly pipelineParallel: number;
  /** ⌈L / s_pp⌉. */
  readonly layers: number;
  readonly recompute: boolean;
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
function layerPart(slice: SliceTime, shard: ShardTime, step: StepShape): Part {
  const { overlap, recompute } = step;
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
function outerPart(unit: keyof UnitTimes, seconds: number, shard: ShardTime, step: StepShape): Part {
  const compute = seconds + stagingOf(shard, step)[unit];
  return { compute, recompute: 0, sequence: 0, parameters: shard.gather[unit] + shard.scatter[unit], reduction: shard.reduce[unit] };
}

const plus = (a: Part, b: Part, times = 1): Part => ({
  compute: a.compute + times * b.compute,
  recompute: a.recompute + times * b.recompute,
  sequence: a.sequence + times * b.sequence,
  parameters: a.parameters + times * b.parameters,
  reduction: a.reduction + times * b.reduction,
});

const lengthOf = (part: Part): number => part.compute + part.recompute + part.sequence + part.parameters;

/** How often a step runs a part, bubble included. */
const slotsOf = (step: StepShape): number => step.microBatches + step.pipelineParallel - 1;
/** How often a micro-batch's own reduction counts; without overlap the one at the end of a step is counted for all stages together. */
const reductionsOf = (step: StepShape): number => (step.reduceEveryMicroBatch ? slotsOf(step) : step.overlap.backward === "none" ? 0 : 1);

/** The micro-batch of the slowest stage: its layers, and embedding and head where it has them. */
function microBatchPart(slice: SliceTime, shard: ShardTime, step: StepShape): Part {
  const embedding = outerPart("embedding", slice.embeddingSeconds, shard, step);
  const head = outerPart("head", slice.headSeconds, shard, step);
  const inStep = (part: Part) => slotsOf(step) * lengthOf(part) + reductionsOf(step) * part.reduction;
  const outer = step.pipelineParallel === 1 ? plus(embedding, head) : inStep(embedding) > inStep(head) ? embedding : head;
  return plus(outer, layerPart(slice, shard, step), step.layers);
}

/** Seconds of one step by cause. */
export function stepBreakdown(slice: SliceTime, shard: ShardTime, step: StepShape): TimeBreakdown {
  const part = microBatchPart(slice, shard, step);
  const n = step.microBatches;
  // What overlaps is reduced behind the last backward pass, unit by unit.
  const reduceOnce = step.overlap.backward === "none" ? shard.reduceOnceSeconds : part.reduction;
  const microBatch = lengthOf(part) + (step.reduceEveryMicroBatch ? part.reduction : 0);
  return {
    computeSeconds: n * part.compute,
    recomputeSeconds: n * part.recompute,
    sequenceCommunicationSeconds: n * part.sequence,
    parameterCommunicationSeconds: n * part.parameters,
    gradientCommunicationSeconds: step.reduceEveryMicroBatch ? n * part.reduction : reduceOnce,
    pipelineBubbleSeconds: (step.pipelineParallel - 1) * microBatch,
    pipelineCommunicationSeconds: slotsOf(step) * 2 * step.boundarySeconds,
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
