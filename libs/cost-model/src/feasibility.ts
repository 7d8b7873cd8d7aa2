import { chunksOf, contextOf, headRanks, replicaRanks, type JobSpec, type Plan, type RejectionReason } from "@internevo/domain";
import { clusterRanks, contextFault, sequencesPerStep, sequenceSplitFault, tensorSplitFault } from "./space.ts";

/** A constraint that a plan does not meet. */
export interface PlanFault {
  readonly reason: RejectionReason;
  readonly message: string;
}

const fault = (reason: RejectionReason, message: string): PlanFault => ({ reason, message });

/**
 * The first constraint of the space that a plan does not meet, memory apart, in the order in which the search counts them;
 * null when it meets all.
 */
export function planFault(plan: Plan, job: JobSpec): PlanFault | null {
  const { pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp, parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  const ranks = clusterRanks(job);
  if (pp * dp * sp !== ranks) return fault("ranks-not-divisible", `pipelineParallel ${pp} · dataParallel ${dp} · sequenceParallel ${sp} is ${pp * dp * sp}, the cluster has ${ranks} ranks`);
  if (tp !== 1 && tp !== sp) return fault("tensor-sequence-mismatch", `tensorParallel ${tp} is neither 1 nor sequenceParallel ${sp}`);
  if (pp > job.model.layers) return fault("more-stages-than-layers", `pipelineParallel ${pp} is more than the ${job.model.layers} layers`);
  const context = contextFault(job, plan);
  if (context !== null) return fault("context-not-possible", context);
  const split = sequenceSplitFault(job, sp, contextOf(plan));
  if (split === "sequence-not-divisible") return fault(split, `sequenceLengthTokens ${job.sequenceLengthTokens} is not divisible by sequenceParallel ${sp}`);
  if (split === "heads-not-divisible") return fault(split, `heads ${job.model.heads} and kvHeads ${job.model.kvHeads} cannot be split over ${headRanks(plan)} ranks`);
  const tensor = tensorSplitFault(job, tp);
  if (tensor !== null) return fault("tensor-not-divisible", tensor);
  const beyond = beyondPaperFault(plan, job);
  if (beyond !== null) return beyond;
  const sequences = plan.microBatchSize * plan.microBatches * dp;
  if (sequences !== sequencesPerStep(job)) {
    return fault("batch-not-divisible", `microBatchSize ${plan.microBatchSize} · microBatches ${plan.microBatches} · dataParallel ${dp} is ${sequences} sequences, the step has ${sequencesPerStep(job)}`);
  }
  const replicas = replicaRanks(plan);
  if (replicas % ps !== 0) return fault("sharding-not-divisible", `parameterSharding ${ps} does not divide the ${replicas} ranks of one slice`);
  if ((replicas / ps) % oss !== 0) return fault("sharding-not-divisible", `optimizerStateSharding ${oss} does not divide the ${replicas / ps} replicas of a shard`);
  if (gs !== 1 && gs !== oss) return fault("gradient-sharding-not-allowed", `gradientSharding ${gs} is neither 1 nor optimizerStateSharding ${oss}`);
  return null;
}

/** What the paper's plans do not have: chunks of a stage, and recomputation of some layers. */
function beyondPaperFault(plan: Plan, job: JobSpec): PlanFault | null {
  const { pipelineParallel: pp, microBatches, recompute, recomputeLayers } = plan;
  const { layers } = job.model;
  const chunks = chunksOf(plan);
  if (chunks > 1 && (pp === 1 || pp * chunks > layers || microBatches % pp !== 0)) {
    return fault("chunks-not-possible", `pipelineChunks ${chunks} needs more than one stage, a layer for each chunk of each, and microBatches in multiples of the stages; there are ${pp} stages, ${layers} layers and ${microBatches} micro-batches`);
  }
  const most = Math.ceil(layers / pp);
  if (recomputeLayers === undefined || recomputeLayers === 0) return null;
  if (recompute) return fault("recompute-layers-not-possible", `recomputeLayers ${recomputeLayers} is given although recompute is true, which means all layers`);
  if (recomputeLayers > most) return fault("recompute-layers-not-possible", `recomputeLayers ${recomputeLayers} is more than the ${most} layers of a stage`);
  return null;
}
