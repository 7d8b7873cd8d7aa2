import { updateSeconds, type CostModel } from "@internevo/cost-model";
import { chunksOf, recomputedLayers, type Plan } from "@internevo/domain";
import { runLanes, type Span } from "./lanes.ts";
import { stepProgram, type StepWork, type UnitWork } from "./step-program.ts";

export interface SimulatedStep {
  readonly stepTimeSeconds: number;
  /** Of the stage that is busiest, the share of the step in which it computes. */
  readonly computeShare: number;
  readonly spans: readonly Span[];
}

/** Layers of every virtual stage: dealt as evenly as they go, the first (layers mod stages) have one more. */
export const layersByStage = (layers: number, stages: number): number[] =>
  Array.from({ length: stages }, (_, index) => Math.floor(layers / stages) + (index < layers % stages ? 1 : 0));

/** What a plan does in a step, from the costs of the planner's model. */
export function stepWork(costs: CostModel, plan: Plan, chunks = chunksOf(plan)): StepWork {
  const slice = costs.sliceTime(plan.microBatchSize, plan);
  const shard = costs.shardTime(plan, plan);
  const everyMicroBatch = plan.gradientSharding > 1;
  const staged = everyMicroBatch ? shard.stageReduced : shard.stage;
  const sharded = (unit: "layer" | "embedding" | "head"): Pick<UnitWork, "gatherSeconds" | "scatterSeconds"> => ({
    gatherSeconds: shard.gather[unit],
    scatterSeconds: shard.scatter[unit] + (everyMicroBatch ? shard.reduce[unit] : 0),
  });
  // With some layers recomputed every layer carries its share of them.
  const byStage = layersByStage(costs.job.model.layers, plan.pipelineParallel);
  const recomputed = byStage.reduce((sum, layers) => sum + recomputedLayers(plan, layers), 0) / costs.job.model.layers;
  const recompute = recomputed * slice.recomputeSeconds;
  const recomputeExposed = recomputed * slice.recomputeCommunicationSeconds;
  return {
    layer: {
      forwardSeconds: slice.forwardSeconds,
      backwardSeconds: slice.backwardSeconds + recompute + staged.layer,
      forwardExposedSeconds: slice.forwardCommunicationSeconds,
      backwardExposedSeconds: slice.backwardCommunicationSeconds + recomputeExposed,
      ...sharded("layer"),
    },
    // Measured forward and backward together; which pass has it changes no sum.
    embedding: { forwardSeconds: slice.embeddingSeconds, backwardSeconds: staged.embedding, forwardExposedSeconds: slice.embeddingCommunicationSeconds, backwardExposedSeconds: 0, ...sharded("embedding") },
    head: { forwardSeconds: 0, backwardSeconds: slice.headSeconds + staged.head, forwardExposedSeconds: 0, backwardExposedSeconds: slice.headCommunicationSeconds, ...sharded("head") },
    layersOfVirtualStage: layersByStage(costs.job.model.layers, plan.pipelineParallel * chunks),
    stages: plan.pipelineParallel,
    chunks,
    microBatches: plan.microBatches,
    boundarySeconds: costs.boundarySeconds(plan.microBatchSize, plan),
    reduceOnceSeconds: (everyMicroBatch ? 0 : shard.reduceOnceSeconds) + shard.shareOnceSeconds,
    updateSeconds: updateSeconds(shard, plan),
    overlap: plan,
  };
}

/** One step of a plan, event by event: the second estimator beside the closed form, with the timeline of every stage. */
export function simulateStep(costs: CostModel, plan: Plan, chunks = chunksOf(plan)): SimulatedStep {
  const spans = runLanes(stepProgram(stepWork(costs, plan, chunks)), costs.overlapSlowdown(plan));
  const stepTimeSeconds = spans.reduce((latest, { endSeconds }) => Math.max(latest, endSeconds), 0);
  const busy = new Array<number>(plan.pipelineParallel).fill(0);
  for (const { task, startSeconds, endSeconds } of spans) if (task.lane === "compute") busy[task.stage] = (busy[task.stage] as number) + endSeconds - startSeconds;
  return { stepTimeSeconds, computeShare: Math.max(...busy) / stepTimeSeconds, spans };
}
