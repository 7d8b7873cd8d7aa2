import {
  chunksOf,
  contextOf,
  headRanks,
  planLabel,
  ProblemError,
  replicaRanks,
  type JobSpec,
  type Plan,
  type RejectionReason,
} from "@internevo/domain";
import {
  clusterRanks,
  contextFault,
  sequencesPerStep,
  sequenceSplitFault,
  tensorSplitFault,
} from "./space.ts";

/** What of a job decides which plans divide it. */
export type PlannedJob = Pick<JobSpec, "model" | "cluster" | "sequenceLengthTokens" | "globalBatchTokens">;

/** A constraint that a plan does not meet. */
export interface PlanFault {
  readonly reason: RejectionReason;
  readonly message: string;
  /** What to change in the plan so that it meets this constraint. */
  readonly remedy: string;
}

/**
 * Nothing is an instance of it. A private member is what a copy with other fields (`{ ...plan, microBatches:
 * 3 }`) has no longer.
 */
declare class Divides {
  private readonly divides: true;
}

/**
 * A plan whose factors divide its job: only {@link planOfJob} makes one. Whatever answers a question about a
 * plan takes this type, so that no plan goes without the check. A changed copy of it is a {@link Plan} again.
 */
export type PlanOfJob = Plan & Divides;

/**
 * The check that stands in front of every question about a plan, but for why it is rejected. It takes the
 * same few steps for every plan.
 * @param field names the plan in the error.
 * @throws ProblemError `plan-invalid` with the constraint that the plan does not meet, and what to change.
 */
export function planOfJob(plan: Plan, job: PlannedJob, field = "plan"): PlanOfJob {
  const fault = planFault(plan, job);
  if (fault === null) return plan as PlanOfJob;
  throw new ProblemError(
    "plan-invalid",
    `${/^[ab]$/i.test(field) ? `plan ${field.toUpperCase()}` : "the plan"} does not divide the job: ${fault.message}`,
    [
      {
        field,
        value: planLabel(plan),
        message: `${fault.reason}: ${fault.message}`,
        remedy: `${fault.remedy}; why-not says which change also fits in memory`,
      },
    ],
  );
}

const fault = (reason: RejectionReason, message: string, remedy: string): PlanFault => ({
  reason,
  message,
  remedy,
});
/** "microBatches 4 → 16", where another value of one factor is enough; else what the factors must come to. */
const change = (plan: Plan, field: keyof Plan, to: number, otherwise: string): string =>
  Number.isInteger(to) && to >= 1 ? `smallest change: ${field} ${String(plan[field])} → ${to}` : otherwise;

/**
 * The first constraint of the space that a plan does not meet, memory apart, in the order in which the search
 * counts them; null when it meets all.
 */
export function planFault(plan: Plan, job: PlannedJob): PlanFault | null {
  return (
    layoutFault(plan, job) ?? beyondPaperFault(plan, job) ?? batchFault(plan, job) ?? shardingFault(plan)
  );
}

function layoutFault(plan: Plan, job: PlannedJob): PlanFault | null {
  const { pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp } = plan;
  const ranks = clusterRanks(job);
  const { layers, heads, kvHeads } = job.model;
  if (pp * dp * sp !== ranks) {
    return fault(
      "ranks-not-divisible",
      `pipelineParallel ${pp} · dataParallel ${dp} · sequenceParallel ${sp} is ${pp * dp * sp}, the cluster has ${ranks} ranks`,
      change(
        plan,
        "dataParallel",
        ranks / (pp * sp),
        `choose pipelineParallel, dataParallel and sequenceParallel whose product is ${ranks}`,
      ),
    );
  }
  if (tp !== 1 && tp !== sp)
    return fault(
      "tensor-sequence-mismatch",
      `tensorParallel ${tp} is neither 1 nor sequenceParallel ${sp}`,
      `smallest change: tensorParallel ${tp} → ${sp}`,
    );
  if (pp > layers)
    return fault(
      "more-stages-than-layers",
      `pipelineParallel ${pp} is more than the ${layers} layers`,
      `choose pipelineParallel of at most ${layers}`,
    );
  const context = contextFault(job, plan);
  if (context !== null)
    return fault(
      "context-not-possible",
      context,
      tp === 1
        ? "choose contextParallel that divides sequenceParallel and cuts the sequence evenly, or leave it out"
        : "leave contextParallel out",
    );
  const split = sequenceSplitFault(job, sp, contextOf(plan));
  if (split === "sequence-not-divisible")
    return fault(
      split,
      `sequenceLengthTokens ${job.sequenceLengthTokens} is not divisible by sequenceParallel ${sp}`,
      "choose sequenceParallel that divides the sequence",
    );
  if (split === "heads-not-divisible")
    return fault(
      split,
      `heads ${heads} and kvHeads ${kvHeads} cannot be split over ${headRanks(plan)} ranks`,
      "choose fewer sequenceParallel, or a larger contextParallel",
    );
  const tensor = tensorSplitFault(job, tp);
  return tensor === null
    ? null
    : fault("tensor-not-divisible", tensor, "choose another tensorParallel, or 1");
}

function batchFault(plan: Plan, job: PlannedJob): PlanFault | null {
  const { microBatchSize: b, microBatches: n, dataParallel: dp } = plan;
  const sequences = sequencesPerStep(job);
  if (b * n * dp === sequences) return null;
  const own = sequences / dp;
  return fault(
    "batch-not-divisible",
    `microBatchSize ${b} · microBatches ${n} · dataParallel ${dp} is ${b * n * dp} sequences, the step has ${sequences}`,
    change(
      plan,
      "microBatches",
      own / b,
      Number.isInteger(own)
        ? `choose microBatchSize and microBatches whose product is ${own}`
        : `choose dataParallel that divides ${sequences}`,
    ),
  );
}

function shardingFault(plan: Plan): PlanFault | null {
  const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = plan;
  const replicas = replicaRanks(plan);
  if (replicas % ps !== 0)
    return fault(
      "sharding-not-divisible",
      `parameterSharding ${ps} does not divide the ${replicas} ranks of one slice`,
      `choose a divisor of ${replicas}`,
    );
  if ((replicas / ps) % oss !== 0)
    return fault(
      "sharding-not-divisible",
      `optimizerStateSharding ${oss} does not divide the ${replicas / ps} replicas of a shard`,
      `choose a divisor of ${replicas / ps}`,
    );
  if (gs !== 1 && gs !== oss)
    return fault(
      "gradient-sharding-not-allowed",
      `gradientSharding ${gs} is neither 1 nor optimizerStateSharding ${oss}`,
      `smallest change: gradientSharding ${gs} → ${oss}`,
    );
  return null;
}

/** What the paper's plans do not have: chunks of a stage, and recomputation of some layers. */
function beyondPaperFault(plan: Plan, job: PlannedJob): PlanFault | null {
  const { pipelineParallel: pp, microBatches, recompute, recomputeLayers } = plan;
  const { layers } = job.model;
  const chunks = chunksOf(plan);
  if (chunks > 1 && (pp === 1 || pp * chunks > layers || microBatches % pp !== 0)) {
    return fault(
      "chunks-not-possible",
      `pipelineChunks ${chunks} needs more than one stage, a layer for each chunk of each, and microBatches in multiples of the stages; there are ${pp} stages, ${layers} layers and ${microBatches} micro-batches`,
      "leave pipelineChunks out",
    );
  }
  const most = Math.ceil(layers / pp);
  if (recomputeLayers === undefined || recomputeLayers === 0) return null;
  if (recompute)
    return fault(
      "recompute-layers-not-possible",
      `recomputeLayers ${recomputeLayers} is given although recompute is true, which means all layers`,
      "leave recomputeLayers out",
    );
  if (recomputeLayers > most)
    return fault(
      "recompute-layers-not-possible",
      `recomputeLayers ${recomputeLayers} is more than the ${most} layers of a stage`,
      `smallest change: recomputeLayers ${recomputeLayers} → ${most}`,
    );
  return null;
}
