import {
  besideSeconds,
  partsOf,
  unitParameters,
  up,
  updateSeconds,
  type CostModel,
} from "@internevo/cost-model";
import { chunksOf, planValue, recomputedLayers } from "@internevo/domain";
import { groupGeometry, nodesTouched, type GroupGeometry, type PlanOfJob } from "@internevo/plan";
import { runLanes, type Span } from "./lanes.ts";
import { stepProgram } from "./step-program.ts";
import type { EndWork, Link, StepWork } from "./step-work.ts";

export interface SimulatedStep {
  readonly stepTimeSeconds: number;
  /** Of the stage that is busiest, the share of the step in which it computes. */
  readonly computeShare: number;
  readonly spans: readonly Span[];
}

/** Layers of every virtual stage: dealt as evenly as they go, the first (layers mod stages) have one more. */
export const layersByStage = (layers: number, stages: number): number[] =>
  Array.from(
    { length: stages },
    (_, index) => Math.floor(layers / stages) + (index < layers % stages ? 1 : 0),
  );

/** Where the slower part of a group's messages goes. */
const linkOf = (costs: CostModel, group: GroupGeometry): Link =>
  nodesTouched(group, costs.job.cluster.gpusPerNode) > 1 ? "inter-node" : "intra-node";

/** What a layer does in one micro-batch. @param stagedSeconds of its gradients on their way, behind its passes */
function layerWork(
  costs: CostModel,
  plan: PlanOfJob,
  elements: readonly number[],
  stagedSeconds: number,
): StepWork["layer"] {
  const slice = costs.sliceTime(plan.microBatchSize, plan);
  const beside = costs.tensorBeside(plan);
  const shard = costs.shardTime(plan, plan);
  const { forward, backward } = partsOf(slice);
  const ofLayer = elements.reduce((sum, one) => sum + one, 0);
  return {
    forward,
    forwardAttentionSeconds: slice.forwardAttentionSeconds,
    backward: backward.map(
      (seconds, unit) => seconds + (stagedSeconds * (elements[unit] as number)) / ofLayer,
    ),
    backwardAttentionSeconds: slice.backwardAttentionSeconds,
    forwardExposedSeconds: slice.forwardCommunicationSeconds,
    beside,
    // What is left of the collectives beside products shows where these end.
    backwardExposedSeconds: beside
      ? Math.max(0, slice.backwardCommunicationSeconds - besideSeconds(beside).waited)
      : slice.backwardCommunicationSeconds,
    recomputeSeconds: slice.recomputeSeconds,
    recomputeExposedSeconds: slice.recomputeCommunicationSeconds,
    gateUpSeconds: slice.gateUpSeconds,
    gateUpExposedSeconds: slice.gateUpCommunicationSeconds,
    toHostSeconds: slice.toHostSeconds,
    toDeviceSeconds: slice.toDeviceSeconds,
    gather: shard.gatherModules,
    scatter: shard.scatterModules,
    reduce: shard.reduceModules,
    elements,
  };
}

/** Where the collectives of a sharding go: what is slowest of them decides. */
function shardLinkOf(costs: CostModel, plan: PlanOfJob): Link {
  const groups = (["parameterSharding", "optimizerStateSharding", "gradientReplicas"] as const)
    .map((dimension) => groupGeometry(plan, dimension))
    .filter(({ size }) => size > 1);
  return groups.some((group) => linkOf(costs, group) === "inter-node") ? "inter-node" : "intra-node";
}

/** What a plan does in a step, from the costs of the planner's model. */
export function stepWork(costs: CostModel, plan: PlanOfJob, chunks = chunksOf(plan)): StepWork {
  const { model } = costs.job;
  const slice = costs.sliceTime(plan.microBatchSize, plan);
  const shard = costs.shardTime(plan, plan);
  const everyMicroBatch = plan.gradientSharding > 1;
  const staged = everyMicroBatch ? shard.stageReduced : shard.stage;
  const padded = (elements: number): number =>
    up(elements, 64 * plan.parameterSharding * plan.optimizerStateSharding);
  const parameters = unitParameters(model, plan.tensorParallel);
  const embedding = padded(parameters.embedding);
  const sharded = (
    unit: "embedding" | "head",
  ): Pick<EndWork, "gatherSeconds" | "scatterSeconds" | "reduceSeconds"> => ({
    gatherSeconds: shard.gather[unit],
    scatterSeconds: shard.scatter[unit],
    reduceSeconds: shard.reduce[unit],
  });
  const byStage = layersByStage(model.layers, plan.pipelineParallel);
  return {
    layer: layerWork(costs, plan, parameters.units.map(padded), staged.layer),
    // Measured forward and backward together; which pass has it changes no sum.
    embedding: {
      forwardSeconds: slice.embeddingSeconds,
      backwardSeconds: staged.embedding,
      forwardExposedSeconds: slice.embeddingCommunicationSeconds,
      backwardExposedSeconds: 0,
      elements: embedding,
      ...sharded("embedding"),
    },
    head: {
      forwardSeconds: 0,
      backwardSeconds: slice.headSeconds + staged.head,
      forwardExposedSeconds: 0,
      backwardExposedSeconds: slice.headCommunicationSeconds,
      elements: parameters.head > 0 ? padded(parameters.head) : embedding,
      ...sharded("head"),
    },
    layersOfVirtualStage: layersByStage(model.layers, plan.pipelineParallel * chunks),
    recomputedOfStage: byStage.map((layers) => recomputedLayers(plan, layers)),
    gateUp: planValue(plan, "gateUp"),
    stages: plan.pipelineParallel,
    chunks,
    microBatches: plan.microBatches,
    boundarySeconds: costs.boundarySeconds(plan.microBatchSize, plan),
    reduceEveryMicroBatch: everyMicroBatch,
    reduceOnceSeconds: shard.reduceOnceSeconds,
    shareOnceSeconds: shard.shareOnceSeconds,
    updateSeconds: updateSeconds(slice, shard, plan, Math.ceil(model.layers / plan.pipelineParallel)),
    unitWaits: slice.unitWaits,
    layerWaits: slice.layerWaits,
    slowdowns: shard.slowdowns,
    sequenceLink: linkOf(costs, groupGeometry(plan, "sequenceParallel")),
    shardLink: shardLinkOf(costs, plan),
    overlap: plan,
  };
}

/**
 * One step of a plan, event by event: the second estimator beside the closed form, with the timeline of every
 * stage.
 */
export function simulateStep(costs: CostModel, plan: PlanOfJob, chunks = chunksOf(plan)): SimulatedStep {
  const spans = runLanes(stepProgram(stepWork(costs, plan, chunks)));
  const stepTimeSeconds = spans.reduce((latest, { endSeconds }) => Math.max(latest, endSeconds), 0);
  const busy = new Array<number>(plan.pipelineParallel).fill(0);
  for (const { task, startSeconds, endSeconds } of spans)
    if (task.lane === "compute" && task.exposed !== true)
      busy[task.stage] = (busy[task.stage] as number) + endSeconds - startSeconds;
  return { stepTimeSeconds, computeShare: Math.max(...busy) / stepTimeSeconds, spans };
}
