import {
  allowedBy,
  boundFaults,
  NONE_DIVIDES_REMEDY,
  planValue,
  REJECTION_WORDS,
  listed,
  type JobSpec,
  type PlanConstraints,
  type PlanField,
  type PlanFieldValue,
  type RejectionReason,
} from "@internevo/domain";
import {
  clusterRanks,
  countRecomputed,
  divisors,
  GATE_UP,
  layoutFault,
  layoutsOf,
  pinnedFault,
  sequencesPerStep,
  shardingsOf,
  takesTurns,
  type Layout,
  type LayoutSpace,
  type Sharding,
} from "@internevo/plan";

/** That no plan has what a job's `plan` asks for: why, and what to do. */
export interface UnmetPlan {
  readonly message: string;
  readonly remedy: string;
}

/** What plans of a layout choose below it. */
interface Choices {
  readonly space: LayoutSpace;
  readonly microBatchSizes: readonly number[];
  readonly chunks: readonly number[];
  readonly shardings: readonly Sharding[];
}

/** Every layout that divides the job as its `plan` asks, with what is below it. */
function* choicesOf(job: JobSpec): Generator<Choices> {
  const known = new Map<number, Sharding[]>();
  for (const space of layoutsOf(job)) {
    const { layout, replicas, recomputed, fault } = space;
    if (fault !== null || space.microBatchSizes === null || countRecomputed(recomputed) === 0) continue;
    const own = sequencesPerStep(job) / layout.dataParallel;
    const interleaves = (size: number): boolean => takesTurns(own / size, layout.pipelineParallel);
    const microBatchSizes = space.chunks.includes(1)
      ? space.microBatchSizes
      : space.microBatchSizes.filter(interleaves);
    const chunks = microBatchSizes.some(interleaves) ? space.chunks : space.chunks.filter((v) => v === 1);
    const shardings = known.get(replicas) ?? shardingsOf(replicas, job);
    known.set(replicas, shardings);
    if (microBatchSizes.length > 0 && chunks.length > 0 && shardings.length > 0)
      yield { space, microBatchSizes, chunks, shardings };
  }
}

/** Whether any plan divides a job as its `plan` asks. */
const hasAny = (job: JobSpec): boolean => choicesOf(job).next().done !== true;

/** Values of a list, and numbers of sequences, that {@link fewestSequences} looks at. */
const MOST_LISTED = 100;
const MOST_LOOKED_AT = 1000;

/**
 * The fewest sequences of a step, of the job's length, that a plan divides as its `plan` asks; undefined where
 * none is found.
 */
export function fewestSequences(job: JobSpec): number | undefined {
  const { plan = {}, sequenceLengthTokens } = job;
  const factors = divisors(clusterRanks(job));
  // Nothing makes a step larger than it has to be but the ranks that hold the same, and what is asked for.
  const sizesOf = (field: "microBatchSize" | "microBatches", free: readonly number[]): readonly number[] =>
    plan[field] === undefined
      ? free
      : (askedOf(plan, field) as number[]).toSorted((a, b) => a - b).slice(0, MOST_LISTED);
  const sizes = sizesOf("microBatchSize", [1]);
  const turns = sizesOf("microBatches", factors);
  const counts = new Set(
    factors
      .filter((replicas) => allowedBy(plan.dataParallel, replicas))
      .flatMap((replicas) => sizes.flatMap((size) => turns.map((turn) => replicas * size * turn))),
  );
  return [...counts]
    .sort((a, b) => a - b)
    .slice(0, MOST_LOOKED_AT)
    .find((sequences) => hasAny({ ...job, globalBatchTokens: sequences * sequenceLengthTokens }));
}

/** What a field is in the plans of a layout. */
function valuesIn({ space, ...below }: Choices, field: PlanField, job: JobSpec): readonly PlanFieldValue[] {
  const { layout, recomputed } = space;
  const most = Math.ceil(job.model.layers / layout.pipelineParallel);
  const layers = GATE_UP.flatMap((gateUp) => recomputed[gateUp]);
  switch (field) {
    case "microBatchSize":
      return below.microBatchSizes;
    case "microBatches":
      return below.microBatchSizes.map((size) => sequencesPerStep(job) / layout.dataParallel / size);
    case "pipelineChunks":
      return below.chunks;
    case "recompute":
      return layers.map((k) => k === most);
    case "recomputeLayers":
      return layers;
    case "gateUp":
      return GATE_UP.filter((gateUp) => recomputed[gateUp].length > 0);
    case "parameterSharding":
    case "gradientSharding":
    case "optimizerStateSharding":
      return below.shardings.map((sharding) => sharding[field]);
    case "forwardOverlap":
    case "backwardOverlap":
      return [];
    default:
      return [planValue(layout, field)];
  }
}

const without = (plan: PlanConstraints, fields: readonly string[]): PlanConstraints =>
  Object.fromEntries(Object.entries(plan).filter(([name]) => !fields.includes(name)));

const askedOf = (plan: PlanConstraints, field: PlanField): readonly PlanFieldValue[] =>
  [plan[field] ?? []].flat();

/**
 * The values of a field that are nearest to those asked for, of the plans that have the rest of what is asked;
 * of words all.
 */
function nearestTo(plan: PlanConstraints, field: PlanField, rest: PlanConstraints, job: JobSpec): string {
  const searched = { ...job, plan: rest };
  const found = new Set<PlanFieldValue>();
  for (const choices of choicesOf(searched))
    for (const value of valuesIn(choices, field, searched)) found.add(value);
  const numbers = [...found].filter((value) => typeof value === "number").sort((a, b) => a - b);
  if (numbers.length === 0) return [...found].join(" or ");
  const near = askedOf(plan, field).flatMap((asked) => [
    ...numbers.filter((value) => value < Number(asked)).slice(-1),
    ...numbers.filter((value) => value > Number(asked)).slice(0, 1),
  ]);
  return [...new Set(near)].sort((a, b) => a - b).join(" or ");
}

/** What is against a field below its layout, in words. */
const BELOW: Readonly<Partial<Record<PlanField, RejectionReason>>> = {
  microBatchSize: "batch-not-divisible",
  microBatches: "batch-not-divisible",
  pipelineChunks: "chunks-not-possible",
  recompute: "recompute-layers-not-possible",
  recomputeLayers: "recompute-layers-not-possible",
  gateUp: "gate-up-not-possible",
  parameterSharding: "sharding-not-divisible",
  optimizerStateSharding: "sharding-not-divisible",
  gradientSharding: "gradient-sharding-not-allowed",
};

/** What layouts of a job do not meet, the commonest first; none where one meets all. */
function layoutReasons(job: JobSpec): string[] {
  const counts = new Map<string, number>();
  const sequences = sequencesPerStep(job);
  const reasonOf = (layout: Layout): string =>
    layoutFault(layout, job)?.message ??
    `dataParallel ${layout.dataParallel} does not divide the ${sequences} sequences of a step`;
  for (const { layout, fault } of layoutsOf(job)) {
    if (fault === null) return [];
    const reason = reasonOf(layout);
    counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a).map(([reason]) => reason);
}

/** Why no plan has what is asked of a field, whatever the others. */
function reasonAlone(job: JobSpec, plan: PlanConstraints, field: PlanField): string {
  const own = { [field]: plan[field] };
  const sizes = { ranks: clusterRanks(job), sequences: sequencesPerStep(job), layers: job.model.layers };
  const [bound] = boundFaults(own, sizes);
  if (bound !== undefined) {
    const { values, divides, what } = bound;
    if (values.length === 1) return `it ${divides ? "does not divide" : "is more than"} ${what}`;
    return `${divides ? "none of them divides" : "all of them are more than"} ${what}`;
  }
  const [reason] = layoutReasons({ ...job, plan: own });
  if (reason === undefined) {
    const below = BELOW[field];
    return below === undefined ? "nothing goes with it" : REJECTION_WORDS[below].about;
  }
  return field === "tensorParallel" ? `it needs as many sequenceParallel, and ${reason}` : reason;
}

const shown = (plan: PlanConstraints, field: PlanField): string =>
  `${field} ${askedOf(plan, field).map(String).join(" or ")}`;

/** That there are fields that no plan has as asked, each by itself. */
function unmetAlone(job: JobSpec, plan: PlanConstraints, alone: readonly PlanField[]): UnmetPlan {
  const others = without(plan, alone);
  const rest = hasAny({ ...job, plan: others }) ? others : {};
  const reasons = alone.map((field) => {
    const nearest = nearestTo(plan, field, rest, job);
    return (
      `has ${shown(plan, field)}: ${reasonAlone(job, plan, field)}` +
      (nearest === "" ? "" : `; the nearest possible: ${nearest}`)
    );
  });
  return {
    message: `no plan of ${clusterRanks(job)} ranks ${reasons.join(". None ")}`,
    remedy:
      alone.length === 1 ? "give another value, or leave it free" : "give other values, or leave them free",
  };
}

/** That fields which plans have as asked, each by itself, do not go together. */
function unmetTogether(job: JobSpec, plan: PlanConstraints, fields: readonly PlanField[]): UnmetPlan {
  // What is left when no more can be left out without there being plans.
  const conflict = fields.reduce<PlanConstraints>((left, field) => {
    const fewer = without(left, [field]);
    return hasAny({ ...job, plan: fewer }) ? left : fewer;
  }, plan);
  const inConflict = fields.filter((field) => conflict[field] !== undefined);
  const free = inConflict.filter((field) => hasAny({ ...job, plan: without(plan, [field]) }));
  const choices = free.map((field) => {
    const nearest = nearestTo(plan, field, without(plan, [field]), job);
    return `${field}${nearest === "" ? "" : ` (${nearest} is possible)`}`;
  });
  const way =
    free.length === 0
      ? "each goes without the others, and more of what is asked stands in the way"
      : `there are plans if you leave ${listed(choices, "or")} free`;
  return {
    message: `no plan of ${clusterRanks(job)} ranks has ${listed(
      inConflict.map((field) => shown(plan, field)),
      "and",
    )} together: ${way}`,
    remedy: "give other values, or leave one of them free",
  };
}

/** Reasons that are told where many layouts have different ones. */
const MOST_REASONS = 3;

const commonestReasons = (job: JobSpec): string =>
  listed(layoutReasons(job).slice(0, MOST_REASONS), "and") || "nothing goes together";

/**
 * Why no plan divides a job as its `plan` asks, which part of it stands in the way, and what to do; undefined
 * where one does.
 */
export function unmetOf(job: JobSpec): UnmetPlan | undefined {
  const { plan } = job;
  if (plan === undefined || hasAny(job)) return undefined;
  const fault = pinnedFault(job);
  if (fault !== null)
    return {
      message: `the job's plan does not divide it: ${fault.message}; ${fault.remedy}`,
      remedy: "give other values, or leave some of them free",
    };
  const { plan: _asked, ...free } = job;
  if (!hasAny(free))
    return {
      message: `no plan divides the job, whatever is fixed: ${commonestReasons(free)}`,
      remedy: NONE_DIVIDES_REMEDY,
    };
  const fields = Object.keys(plan) as PlanField[];
  const alone = fields.filter((field) => !hasAny({ ...job, plan: { [field]: plan[field] } }));
  return alone.length > 0 ? unmetAlone(job, plan, alone) : unmetTogether(job, plan, fields);
}

/**
 * Why no plan divides a job, whether it asks for some or for any, and what to do; undefined where one does. Neither
 * profile nor memory has a say in it.
 */
export function undividedOf(job: JobSpec): UnmetPlan | undefined {
  if (job.plan !== undefined) return unmetOf(job);
  if (hasAny(job)) return undefined;
  return {
    message: `no plan divides the job over its ${clusterRanks(job)} ranks: ${commonestReasons(job)}`,
    remedy: NONE_DIVIDES_REMEDY,
  };
}
