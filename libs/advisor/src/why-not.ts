import { CostModel, unpricedHost } from "@internevo/cost-model";
import {
  allowedBy,
  constraintsOf,
  estimatedProfileWords,
  extensionsOf,
  planValue,
  isWholePlan,
  keepsGateUpOnHost,
  measuredStanding,
  planPartLabel,
  ProblemError,
  type JobSpec,
  type MeasuredStanding,
  type PartialPlan,
  type MemoryLines,
  type Plan,
  type Prediction,
  type Profile,
  type RejectionReason,
  type Tried,
} from "@internevo/domain";
import { GATE_UP, isRunnable, layoutsOf, planFault, planOfJob, shardingsOf } from "@internevo/plan";
import { feasibleFamilies, planJob } from "@internevo/search";
import { changesBetween, sizeOf, type FieldChange } from "./differences.ts";

/** A plan that fits, and what separates it from the one that was asked about. */
export interface Change {
  readonly plan: Plan;
  readonly changes: readonly FieldChange[];
  readonly predicted: Prediction;
}

export interface WhyNot {
  readonly plan: Plan;
  /**
   * Where a part of a plan was asked for: that part. The plan is the fastest that fits and has it; where none
   * fits, the one that needs least memory.
   */
  readonly bestOf?: string;
  /** Where the profile is estimated from published figures: says so. */
  readonly estimatedProfile?: string;
  /** The constraint that rejects the plan; null when the plan is feasible. */
  readonly binding: { readonly reason: RejectionReason; readonly message: string } | null;
  /**
   * Why InternEvo's own trainer cannot run the plan, though it is feasible; null when it can, or when the
   * plan is rejected.
   */
  readonly notRunnableReason: string | null;
  /** Of plans whose factors divide. */
  readonly predicted: Prediction | null;
  /** Bytes beyond the limit (positive) or left (negative); null where the factors do not divide. */
  readonly excessBytes: number | null;
  /** What the fullest rank's memory is made of, the largest first. */
  readonly memory: readonly { readonly line: string; readonly bytes: number }[];
  /**
   * The fewest fields, and then the smallest steps, that make the plan feasible; null when it is, or when
   * nothing is.
   */
  readonly smallestChange: Change | null;
  /**
   * Where the plan stands when it is feasible: one more than the families of plans whose best is ahead of it,
   * of all families that fit (a family has the same ranks, shards, micro-batches and kind of schedule), and
   * the best plan.
   */
  readonly standing: { readonly rank: number; readonly of: number; readonly best: Change } | null;
  /** Where the plan stands among those that trials of the job measured; null where none measured it. */
  readonly measured: MeasuredStanding | null;
}

const linesOf = (memory: MemoryLines): { line: string; bytes: number }[] =>
  Object.entries(memory)
    .map(([line, bytes]) => ({ line, bytes }))
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);

/**
 * Why a plan is not chosen: what rejects it, by how much, and the smallest change that makes it feasible; or
 * what is better, by prediction and by what trials measured. The one question that takes plans which do not divide the job. Of a part of a plan, it is
 * asked for the best of those with it.
 * @param trials of the job, where it has any
 * @throws ProblemError `plan-invalid` for a part that no plan of the job has.
 */
export function whyNot(
  job: JobSpec,
  profile: Profile,
  plan: Plan | PartialPlan,
  trials: readonly Tried[] = [],
): WhyNot {
  const whole = isWholePlan(plan) ? plan : bestWith(job, profile, plan);
  const estimatedProfile = estimatedProfileWords(profile, job.cluster);
  return {
    ...whyNotPlan(job, profile, whole),
    measured: measuredStanding(trials, whole),
    ...(isWholePlan(plan) ? {} : { bestOf: planPartLabel(plan) }),
    ...(estimatedProfile === undefined ? {} : { estimatedProfile }),
  };
}

/** The fastest plan that fits and has this part; where none fits, the one that needs least memory. */
function bestWith(job: JobSpec, profile: Profile, part: PartialPlan): Plan {
  const { candidates, closest, counts, unmet } = planJob(
    { ...job, plan: { ...job.plan, ...constraintsOf(part) } },
    profile,
    { top: 1 },
  );
  const plan = candidates[0]?.plan ?? closest?.plan;
  if (plan !== undefined) return plan;
  const label = planPartLabel(part);
  const reasons = Object.entries(counts.rejected)
    .filter(([, count]) => count > 0)
    .map(([reason, count]) => `${count} ${reason}`)
    .join(", ");
  throw new ProblemError("plan-invalid", `no plan with ${label} divides the job`, [
    {
      field: "plan",
      value: label,
      message: unmet ?? `of the plans with it none divides the job: ${reasons}`,
      remedy: "ask for other values, or leave one of them out",
    },
  ]);
}

function whyNotPlan(job: JobSpec, profile: Profile, plan: Plan): Omit<WhyNot, "measured"> {
  const model = new CostModel(job, profile);
  const limit = model.job.cluster.memoryPerGpuBytes;
  const fault = planFault(plan, job);
  const isHost = keepsGateUpOnHost(plan);
  const unpriced = unpricedHost(model, plan);
  const predicted = fault === null && unpriced === null ? model.predict(planOfJob(plan, job)) : null;
  const excessBytes = predicted === null ? null : predicted.peakMemoryBytes - limit;
  const common = {
    plan,
    predicted,
    excessBytes,
    memory: predicted === null ? [] : linesOf(predicted.memory),
  };
  const exceeded = fault === null ? model.memoryFault(planOfJob(plan, job)) : null;
  const notOffered = isHost ? (unpriced ?? model.hostFault) : null;
  if (fault !== null || exceeded !== null || notOffered !== null) {
    const own =
      exceeded === null
        ? { reason: "gate-up-not-possible" as const, message: notOffered ?? "" }
        : { reason: "memory-exceeded" as const, message: exceeded };
    const binding = fault === null ? own : { reason: fault.reason, message: fault.message };
    return {
      ...common,
      binding,
      notRunnableReason: null,
      smallestChange: smallestChange(model, plan),
      standing: null,
    };
  }
  const result = planJob(job, profile, { top: 1, locate: plan });
  const best = result.candidates[0];
  const rank = result.located?.rank ?? null;
  const standing =
    best === undefined || rank === null
      ? null
      : {
          rank,
          of: feasibleFamilies(job, profile),
          best: { plan: best.plan, changes: changesBetween(plan, best.plan), predicted: best.predicted },
        };
  return {
    ...common,
    binding: null,
    notRunnableReason: isRunnable(plan, job).reason,
    smallestChange: null,
    standing,
  };
}

/**
 * Every plan of the space whose factors divide, with the overlap of `like`, and `like` with some of its
 * layers recomputed.
 */
function* dividingPlans({ job, searchedJob: searched }: CostModel, like: Plan): Generator<Plan> {
  const { forwardOverlap, backwardOverlap } = like;
  const { recomputeLayers: _layers, ...extensions } = extensionsOf(like);
  const kept = { forwardOverlap, backwardOverlap };
  for (
    let recomputeLayers = 1;
    recomputeLayers <= Math.ceil(job.model.layers / like.pipelineParallel);
    recomputeLayers += 1
  ) {
    yield { ...like, recompute: false, recomputeLayers };
  }
  const { recomputeLayers: _, gateUp: _gateUp, ...whole } = like;
  if (!like.recompute)
    for (const gateUp of GATE_UP)
      if (
        gateUp !== "kept" &&
        gateUp !== planValue(like, "gateUp") &&
        allowedBy(searched.plan?.gateUp, gateUp)
      )
        yield { ...like, gateUp };
  yield { ...whole, recompute: true };
  for (const { layout, replicas, microBatchSizes, fault } of layoutsOf(job)) {
    if (fault !== null || microBatchSizes === null) continue;
    for (const microBatchSize of microBatchSizes) {
      const microBatches =
        job.globalBatchTokens / job.sequenceLengthTokens / layout.dataParallel / microBatchSize;
      for (const sharding of shardingsOf(replicas)) {
        for (const recompute of [false, true]) {
          yield { microBatchSize, microBatches, recompute, ...layout, ...sharding, ...kept };
          if (Object.keys(extensions).length > 0) {
            yield { microBatchSize, microBatches, recompute, ...layout, ...sharding, ...kept, ...extensions };
          }
        }
      }
    }
  }
}

/** Lexicographic; of two changes of one size the faster plan is better. */
function isSmaller(a: readonly number[], b: readonly number[]): boolean {
  for (const [index, value] of a.entries()) {
    const other = b[index] as number;
    if (Math.abs(value - other) > 1e-9) return value < other;
  }
  return false;
}

/**
 * The nearest feasible plan; null when the job has none. Memory is computed only for plans nearer than the
 * nearest so far.
 */
function smallestChange(model: CostModel, plan: Plan): Change | null {
  const { job } = model;
  let nearest: { plan: Plan; size: readonly number[]; seconds: number } | null = null;
  for (const other of dividingPlans(model, plan)) {
    const size = sizeOf(changesBetween(plan, other));
    if (nearest !== null && isSmaller(nearest.size, size)) continue;
    if (planFault(other, job) !== null) continue;
    if (keepsGateUpOnHost(other) && model.hostFault !== null) continue;
    const own = planOfJob(other, job);
    if (model.memoryFault(own) !== null) continue;
    const seconds = model.predict(own).stepTimeSeconds;
    if (nearest === null || isSmaller([...size, seconds], [...nearest.size, nearest.seconds]))
      nearest = { plan: other, size, seconds };
  }
  return nearest === null
    ? null
    : {
        plan: nearest.plan,
        changes: changesBetween(plan, nearest.plan),
        predicted: model.predict(planOfJob(nearest.plan, job)),
      };
}
