import { replicaRanks, type JobSpec, type Plan, type RejectionReason } from "@internevo/domain";
import { clusterRanks, sequencesPerStep, sequenceSplitFault } from "./space.ts";

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
  const split = sequenceSplitFault(job, sp);
  if (split === "sequence-not-divisible") return fault(split, `sequenceLengthTokens ${job.sequenceLengthTokens} is not divisible by sequenceParallel ${sp}`);
  if (split === "heads-not-divisible") return fault(split, `heads ${job.model.heads} and kvHeads ${job.model.kvHeads} cannot be split over ${sp} ranks`);
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
