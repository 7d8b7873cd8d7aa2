import { CostModel, unpricedHost } from "@internevo/cost-model";
import {
  allowedBy,
  constraintsOf,
  estimatedProfileWords,
  isWholePlan,
  keepsGateUpOnHost,
  measuredStanding,
  planPartLabel,
  ProblemError,
  rejectionCounts,
  splitOf,
  withoutDefaults,
  type JobSpec,
  type MeasuredStanding,
  type MemoryLines,
  type PartialPlan,
  type Plan,
  type Prediction,
  type Profile,
  type RejectionReason,
  type Tried,
} from "@internevo/domain";
import {
  GATE_UP,
  isRunnable,
  layoutsOf,
  planFault,
  planOfJob,
  sequencesPerStep,
  shardingsOf,
  type LayoutSpace,
  type OverlapChoice,
  type PlanOfJob,
} from "@internevo/plan";
import { feasibleFamilies, overlapChoices, planJob, unmetOf } from "@internevo/search";
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
  const asked = { ...job, plan: { ...job.plan, ...constraintsOf(part) } };
  const { candidates, closest, counts, unmet } = planJob(asked, profile, { top: 1 });
  const plan = candidates[0]?.plan ?? closest?.plan;
  if (plan !== undefined) return plan;
  const label = planPartLabel(part);
  const {
    message = unmet ?? `of the plans with it none divides the job: ${rejectionCounts(counts.rejected)}`,
    remedy = "ask for other values",
  } = unmetOf(asked) ?? {};
  throw new ProblemError("plan-invalid", `no plan with ${label} divides the job`, [
    { field: "plan", value: label, message, remedy },
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

type Recomputation = Pick<Plan, "recompute" | "recomputeLayers" | "gateUp">;
/** What of a plan is chosen below its layout, batch and sharding. */
type Below = Recomputation & OverlapChoice & Pick<Plan, "pipelineChunks">;
/** How large the changes of some fields are: how many, and how far they go. */
type Size = readonly [fields: number, distance: number];

interface Sized<Value> {
  readonly value: Value;
  readonly size: Size;
}

const sum = (...sizes: readonly Size[]): Size => [
  sizes.reduce((total, [fields]) => total + fields, 0),
  sizes.reduce((total, [, distance]) => total + distance, 0),
];

/** Lexicographic; of two changes of one size the faster plan is better. */
function isSmaller(a: readonly number[], b: readonly number[]): boolean {
  for (const [index, value] of a.entries()) {
    const other = b[index] as number;
    if (Math.abs(value - other) > 1e-9) return value < other;
  }
  return false;
}

/** The nearest first. */
const bySize = <Value>(values: readonly Sized<Value>[]): readonly Sized<Value>[] =>
  values.toSorted(({ size: a }, { size: b }) => a[0] - b[0] || a[1] - b[1]);

/** The choices, each as far from the plan as its fields are, the nearest first. */
const sized = <Value extends Partial<Plan>>(plan: Plan, values: readonly Value[]): readonly Sized<Value>[] =>
  bySize(values.map((value) => ({ value, size: sizeOf(changesBetween(plan, { ...plan, ...value })) })));

/** What the layers of a stage do: all are recomputed, or some are, and the others do something with gate and up. */
function recomputationsOf({ recomputed }: LayoutSpace, layers: number): Recomputation[] {
  return GATE_UP.flatMap((gateUp) =>
    recomputed[gateUp].map((k) =>
      k === layers
        ? { recompute: true, recomputeLayers: 0, gateUp: "kept" as const }
        : { recompute: false, recomputeLayers: k, gateUp },
    ),
  );
}

/** The plans with one layout, batch and sharding. */
interface Base {
  readonly fixed: Omit<Plan, keyof Below>;
  readonly space: LayoutSpace;
}

/** Every layout, batch and sharding of the space whose factors divide. */
function* basesOf({ searchedJob: job }: CostModel): Generator<Base> {
  const sequences = sequencesPerStep(job);
  for (const space of layoutsOf(job)) {
    const { layout, replicas, microBatchSizes, fault } = space;
    if (fault !== null || microBatchSizes === null) continue;
    for (const sharding of shardingsOf(replicas, job))
      for (const microBatchSize of microBatchSizes) {
        const microBatches = sequences / layout.dataParallel / microBatchSize;
        // A layout leaves out a ring of one rank.
        const split = splitOf(layout);
        yield { fixed: { microBatchSize, microBatches, ...layout, ...split, ...sharding }, space };
      }
  }
}

/** The choices below one layout, batch and sharding, by how far they are from a plan. */
interface Choices {
  readonly overlaps: readonly Sized<OverlapChoice>[];
  readonly chunks: readonly Sized<Pick<Plan, "pipelineChunks">>[];
  readonly recomputations: readonly Sized<Recomputation>[];
}

/**
 * The nearest feasible plan of the job's whole space; null when there is none. Layouts, batches and shardings
 * come in the order of how far they are from the plan, and what is further than the nearest so far is not
 * looked at.
 */
class NearestPlan {
  readonly #model: CostModel;
  readonly #plan: Plan;
  readonly #overlaps: readonly Sized<OverlapChoice>[];
  readonly #hasOwnOverlap: boolean;
  /** By the number of stages. */
  readonly #choices = new Map<number, Choices>();
  #nearest: { readonly plan: Plan; readonly size: Size; readonly seconds: number } | null = null;

  constructor(model: CostModel, plan: Plan) {
    this.#model = model;
    this.#plan = plan;
    const { forwardOverlap, backwardOverlap } = plan;
    const searched = overlapChoices(model).map(({ overlap }) => overlap);
    const isSearched = searched.some(
      (overlap) => overlap.forwardOverlap === forwardOverlap && overlap.backwardOverlap === backwardOverlap,
    );
    const { plan: asked = {} } = model.searchedJob;
    const isAllowed =
      allowedBy(asked.forwardOverlap, forwardOverlap) && allowedBy(asked.backwardOverlap, backwardOverlap);
    // A plan may have an overlap that nothing was measured of: it is not searched, and possible.
    const own = isSearched || !isAllowed ? [] : [{ forwardOverlap, backwardOverlap }];
    this.#hasOwnOverlap = own.length > 0;
    this.#overlaps = sized(plan, [...own, ...searched]);
  }

  find(): Plan | null {
    if (!this.#hasOwnOverlap && !isFeasible(this.#model)) return null;
    const bases = [...basesOf(this.#model)].map((value) => ({
      value,
      size: sizeOf(changesBetween(this.#plan, { ...this.#plan, ...value.fixed })),
    }));
    for (const { value, size } of bySize(bases)) {
      if (this.#isFurther(size)) break;
      if (this.#fitsAtAll(value)) this.#look(value, size);
    }
    return this.#nearest?.plan ?? null;
  }

  #isFurther(size: Size): boolean {
    return this.#nearest !== null && isSmaller(this.#nearest.size, size);
  }

  #choicesOf({ fixed: { pipelineParallel }, space }: Base): Choices {
    let choices = this.#choices.get(pipelineParallel);
    if (choices === undefined) {
      const layers = Math.ceil(this.#model.job.model.layers / pipelineParallel);
      choices = {
        overlaps: this.#overlaps,
        chunks: sized(
          this.#plan,
          space.chunks.map((pipelineChunks) => ({ pipelineChunks })),
        ),
        recomputations: sized(this.#plan, recomputationsOf(space, layers)),
      };
      this.#choices.set(pipelineParallel, choices);
    }
    return choices;
  }

  /** The plan as plans are written, if it divides and fits. */
  #fitting(base: Base, below: Below): PlanOfJob | null {
    const { job } = this.#model;
    const plan = withoutDefaults({ ...base.fixed, ...below });
    if (planFault(plan, job) !== null) return null;
    const own = planOfJob(plan, job);
    return this.#model.memoryFault(own) === null ? own : null;
  }

  /** Whether any plan of the base fits: one of those that need least memory does. */
  #fitsAtAll(base: Base): boolean {
    const { overlaps, chunks, recomputations } = this.#choicesOf(base);
    const leanest = overlaps.filter(
      ({ value }) => value.forwardOverlap === "none" && value.backwardOverlap === "none",
    );
    const ends = new Map<string, { fewest: Recomputation; most: Recomputation }>();
    for (const { value } of recomputations) {
      const end = ends.get(String(value.gateUp));
      const k = recomputedOf(value);
      ends.set(String(value.gateUp), {
        fewest: end === undefined || k < recomputedOf(end.fewest) ? value : end.fewest,
        most: end === undefined || k > recomputedOf(end.most) ? value : end.most,
      });
    }
    for (const { value: overlap } of leanest.length > 0 ? leanest : overlaps)
      for (const { value: chunk } of chunks)
        for (const { fewest, most } of ends.values())
          for (const recomputation of new Set([most, fewest]))
            if (this.#fitting(base, { ...overlap, ...chunk, ...recomputation }) !== null) return true;
    return false;
  }

  #look(base: Base, size: Size): void {
    const { overlaps, chunks, recomputations } = this.#choicesOf(base);
    for (const overlap of overlaps) {
      if (this.#isFurther(sum(size, overlap.size))) break;
      for (const chunk of chunks) {
        if (this.#isFurther(sum(size, overlap.size, chunk.size))) break;
        for (const recomputation of recomputations) {
          const whole = sum(size, overlap.size, chunk.size, recomputation.size);
          if (this.#isFurther(whole)) break;
          const plan = this.#fitting(base, { ...overlap.value, ...chunk.value, ...recomputation.value });
          if (plan !== null) this.#offer(plan, whole);
        }
      }
    }
  }

  #offer(plan: PlanOfJob, size: Size): void {
    const seconds = this.#model.predict(plan).stepTimeSeconds;
    if (
      this.#nearest === null ||
      isSmaller([...size, seconds], [...this.#nearest.size, this.#nearest.seconds])
    )
      this.#nearest = { plan, size, seconds };
  }
}

/** Whether any plan of the search's space fits. */
const isFeasible = ({ job, profile }: CostModel): boolean =>
  planJob(job, profile, { top: 1 }).candidates.length > 0;

/** Recomputed layers; all are more than any number. */
const recomputedOf = ({ recompute, recomputeLayers = 0 }: Recomputation): number =>
  recompute ? Infinity : recomputeLayers;

/** The fewest fields, and then the smallest steps, that make a plan feasible. */
function smallestChange(model: CostModel, plan: Plan): Change | null {
  const nearest = new NearestPlan(model, plan).find();
  return nearest === null
    ? null
    : {
        plan: nearest,
        changes: changesBetween(plan, nearest),
        predicted: model.predict(planOfJob(nearest, model.job)),
      };
}
