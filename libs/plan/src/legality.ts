import {
  chunksOf,
  contextOf,
  headRanks,
  isWholePlan,
  planLabel,
  planValue,
  ProblemError,
  recomputedLayers,
  replicaRanks,
  type JobSpec,
  type Model,
  type PartialPlan,
  type Plan,
  type PlanField,
  type RejectionReason,
} from "@internevo/domain";
import { clusterRanks, sequencesPerStep } from "./factors.ts";
import { takesTurns } from "./pipeline-schedule.ts";

/** What of a job decides which plans divide it. */
export type PlannedJob = Pick<JobSpec, "model" | "cluster" | "sequenceLengthTokens" | "globalBatchTokens">;

/** How the ranks are split before sharding: s_pp, s_dp, s_tp, s_sp. */
export type Layout = Pick<Plan, "pipelineParallel" | "dataParallel" | "tensorParallel" | "sequenceParallel"> &
  // Beyond the paper: ranks of a ring, and chunks of a stage; 1 where they are left out.
  Readonly<Pick<Plan, "contextParallel" | "pipelineChunks">>;

/** s_ps, s_gs, s_oss. */
export type Sharding = Readonly<
  Pick<Plan, "parameterSharding" | "gradientSharding" | "optimizerStateSharding">
>;

/** The constraints of a plan, by name; memory is not among them. The trainer's errors begin with the same. */
export type ConstraintName = Exclude<RejectionReason, "memory-exceeded">;

/** A constraint that a plan does not meet. */
export interface PlanFault {
  readonly reason: ConstraintName;
  /** The field that stands in the way. */
  readonly field: PlanField;
  readonly message: string;
  /** What to change in the plan so that it meets this constraint. */
  readonly remedy: string;
}

/** The one plan that a job's `plan` allows; undefined where it leaves some field open. */
export function pinnedPlan({ plan }: Pick<JobSpec, "plan">): Plan | undefined {
  const values = Object.entries(plan ?? {}).map(([field, value]) => [field, [value].flat()] as const);
  if (values.some(([, some]) => some.length !== 1)) return undefined;
  const pinned = Object.fromEntries(values.map(([field, [value]]) => [field, value])) as PartialPlan;
  return isWholePlan(pinned) ? pinned : undefined;
}

/** Why the one plan that a job's `plan` allows does not divide the job; null where it does, or there is none. */
export function pinnedFault(job: JobSpec): PlanFault | null {
  const plan = pinnedPlan(job);
  return plan === undefined ? null : planFault(plan, job);
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

type Unmet = Omit<PlanFault, "reason">;

const unmet = (field: PlanField, message: string, remedy: string): Unmet => ({ field, message, remedy });
/** "microBatches 4 → 16", where another value of one factor is enough; else what the factors must come to. */
const change = (from: number, field: PlanField, to: number, otherwise: string): string =>
  Number.isInteger(to) && to >= 1 ? `smallest change: ${field} ${from} → ${to}` : otherwise;

function ranksConstraint(plan: Layout, job: PlannedJob): Unmet | null {
  const { pipelineParallel: pp, dataParallel: dp, sequenceParallel: sp } = plan;
  const ranks = clusterRanks(job);
  if (pp * dp * sp === ranks) return null;
  return unmet(
    "dataParallel",
    `pipelineParallel ${pp} · dataParallel ${dp} · sequenceParallel ${sp} is ${pp * dp * sp}, the cluster has ${ranks} ranks`,
    change(
      dp,
      "dataParallel",
      ranks / (pp * sp),
      `choose pipelineParallel, dataParallel and sequenceParallel whose product is ${ranks}`,
    ),
  );
}

function tensorSequenceConstraint({ tensorParallel: tp, sequenceParallel: sp }: Layout): Unmet | null {
  if (tp === 1 || tp === sp) return null;
  return unmet(
    "tensorParallel",
    `tensorParallel ${tp} is neither 1 nor sequenceParallel ${sp}`,
    `smallest change: tensorParallel ${tp} → ${sp}`,
  );
}

function stagesConstraint({ pipelineParallel: pp }: Layout, { model }: PlannedJob): Unmet | null {
  if (pp <= model.layers) return null;
  return unmet(
    "pipelineParallel",
    `pipelineParallel ${pp} is more than the ${model.layers} layers`,
    `choose pipelineParallel of at most ${model.layers}`,
  );
}

/** Every rank of a ring has two chunks of the sequence. */
function contextConstraint(plan: Layout, { sequenceLengthTokens }: PlannedJob): Unmet | null {
  const ring = contextOf(plan);
  const { tensorParallel: tp, sequenceParallel: sp } = plan;
  const broken = (message: string, remedy: string): Unmet => unmet("contextParallel", message, remedy);
  if (ring === 1) return null;
  if (tp !== 1)
    return broken(`contextParallel ${ring} needs tensorParallel 1; it is ${tp}`, "leave contextParallel out");
  const remedy =
    "choose contextParallel that divides sequenceParallel and cuts the sequence evenly, or leave it out";
  if (sp % ring !== 0)
    return broken(`contextParallel ${ring} does not divide sequenceParallel ${sp}`, remedy);
  if (sequenceLengthTokens % (2 * ring) === 0) return null;
  return broken(
    `contextParallel ${ring} cuts a sequence into 2 x ${ring} equal chunks, which do not divide sequenceLengthTokens ${sequenceLengthTokens}`,
    remedy,
  );
}

function sequenceConstraint({ sequenceParallel: sp }: Layout, job: PlannedJob): Unmet | null {
  if (job.sequenceLengthTokens % sp === 0) return null;
  return unmet(
    "sequenceParallel",
    `sequenceLengthTokens ${job.sequenceLengthTokens} is not divisible by sequenceParallel ${sp}`,
    "choose sequenceParallel that divides the sequence",
  );
}

/**
 * Whether so many ranks can share the heads of a model. Heads of keys and values are split, or each is on
 * equally many ranks.
 */
export const canShareHeads = ({ heads, kvHeads }: Pick<Model, "heads" | "kvHeads">, ranks: number): boolean =>
  heads % ranks === 0 && (kvHeads % ranks === 0 || ranks % kvHeads === 0);

/** Heads are split during attention, or by tensor ranks: over s_sp / contextParallel ranks. */
function headsConstraint(plan: Layout, { model }: PlannedJob): Unmet | null {
  if (canShareHeads(model, headRanks(plan))) return null;
  return unmet(
    "sequenceParallel",
    `heads ${model.heads} and kvHeads ${model.kvHeads} cannot be split over ${headRanks(plan)} ranks`,
    "choose fewer sequenceParallel, or a larger contextParallel",
  );
}

/** Tensor ranks split the inner width and the vocabulary; every rank has a row of the vocabulary. */
function tensorConstraint({ tensorParallel: tp }: Layout, { model }: PlannedJob): Unmet | null {
  const { ffnHiddenSize, vocabularySize } = model;
  const broken = (message: string): Unmet =>
    unmet("tensorParallel", message, "choose another tensorParallel, or 1");
  if (tp === 1) return null;
  if (ffnHiddenSize % tp !== 0)
    return broken(`ffnHiddenSize ${ffnHiddenSize} is not divisible by tensorParallel ${tp}`);
  if ((tp - 1) * Math.ceil(vocabularySize / tp) < vocabularySize) return null;
  return broken(`tensorParallel ${tp} leaves the last rank no row of vocabularySize ${vocabularySize}`);
}

function chunksConstraint(plan: Plan, { model: { layers } }: PlannedJob): Unmet | null {
  const { pipelineParallel: pp, microBatches } = plan;
  const chunks = chunksOf(plan);
  if (chunks === 1 || (pp > 1 && pp * chunks <= layers && takesTurns(microBatches, pp))) return null;
  return unmet(
    "pipelineChunks",
    `pipelineChunks ${chunks} needs more than one stage, a layer for each chunk of each, and microBatches in multiples of the stages; there are ${pp} stages, ${layers} layers and ${microBatches} micro-batches`,
    "leave pipelineChunks out",
  );
}

function recomputeLayersConstraint(plan: Plan, { model }: PlannedJob): Unmet | null {
  const { pipelineParallel, recompute, recomputeLayers } = plan;
  const most = Math.ceil(model.layers / pipelineParallel);
  const broken = (message: string, remedy: string): Unmet => unmet("recomputeLayers", message, remedy);
  if (recomputeLayers === undefined || recomputeLayers === 0) return null;
  if (recompute)
    return broken(
      `recomputeLayers ${recomputeLayers} is given although recompute is true, which means all layers`,
      "leave recomputeLayers out",
    );
  if (recomputeLayers <= most) return null;
  return broken(
    `recomputeLayers ${recomputeLayers} is more than the ${most} layers of a stage`,
    `smallest change: recomputeLayers ${recomputeLayers} → ${most}`,
  );
}

function gateUpConstraint(plan: Plan, { model }: PlannedJob): Unmet | null {
  const most = Math.ceil(model.layers / plan.pipelineParallel);
  if (recomputedLayers(plan, most) < most || planValue(plan, "gateUp") === "kept") return null;
  return unmet(
    "gateUp",
    `gateUp ${planValue(plan, "gateUp")} is given although ${plan.recompute ? "recompute is true" : `recomputeLayers is ${most}`}, which makes all layers again as a whole`,
    "leave gateUp out",
  );
}

function batchConstraint(plan: Plan, job: PlannedJob): Unmet | null {
  const { microBatchSize: b, microBatches: n, dataParallel: dp } = plan;
  const sequences = sequencesPerStep(job);
  if (b * n * dp === sequences) return null;
  const own = sequences / dp;
  return unmet(
    "microBatches",
    `microBatchSize ${b} · microBatches ${n} · dataParallel ${dp} is ${b * n * dp} sequences, the step has ${sequences}`,
    change(
      n,
      "microBatches",
      own / b,
      Number.isInteger(own)
        ? `choose microBatchSize and microBatches whose product is ${own}`
        : `choose dataParallel that divides ${sequences}`,
    ),
  );
}

function shardingConstraint(plan: Plan): Unmet | null {
  const { parameterSharding: ps, optimizerStateSharding: oss } = plan;
  const replicas = replicaRanks(plan);
  if (replicas % ps !== 0)
    return unmet(
      "parameterSharding",
      `parameterSharding ${ps} does not divide the ${replicas} ranks of one slice`,
      `choose a divisor of ${replicas}`,
    );
  if ((replicas / ps) % oss === 0) return null;
  return unmet(
    "optimizerStateSharding",
    `optimizerStateSharding ${oss} does not divide the ${replicas / ps} replicas of a shard`,
    `choose a divisor of ${replicas / ps}`,
  );
}

function gradientShardingConstraint(plan: Plan): Unmet | null {
  const { gradientSharding: gs, optimizerStateSharding: oss } = plan;
  if (gs === 1 || gs === oss) return null;
  return unmet(
    "gradientSharding",
    `gradientSharding ${gs} is neither 1 nor optimizerStateSharding ${oss}`,
    `smallest change: gradientSharding ${gs} → ${oss}`,
  );
}

type Constraints<Part> = Partial<Record<ConstraintName, (plan: Part, job: PlannedJob) => Unmet | null>>;

/** What a layout alone decides, in the order in which the search counts it. */
const OF_LAYOUTS = {
  "ranks-not-divisible": ranksConstraint,
  "tensor-sequence-mismatch": tensorSequenceConstraint,
  "more-stages-than-layers": stagesConstraint,
  "context-not-possible": contextConstraint,
  "sequence-not-divisible": sequenceConstraint,
  "heads-not-divisible": headsConstraint,
  "tensor-not-divisible": tensorConstraint,
} as const satisfies Constraints<Layout>;

const BELOW_LAYOUTS = {
  "chunks-not-possible": chunksConstraint,
  "recompute-layers-not-possible": recomputeLayersConstraint,
  "gate-up-not-possible": gateUpConstraint,
  "batch-not-divisible": batchConstraint,
  "sharding-not-divisible": shardingConstraint,
  "gradient-sharding-not-allowed": gradientShardingConstraint,
} as const satisfies Constraints<Plan> &
  // Every constraint has its function, here or above.
  Record<Exclude<ConstraintName, keyof typeof OF_LAYOUTS>, unknown>;

/** Says the first that a plan, or its layout, does not meet. */
function firstUnmet<Part>(constraints: Constraints<Part>) {
  const listed = Object.entries(constraints);
  return (plan: Part, job: PlannedJob): PlanFault | null => {
    for (const [name, constraint] of listed) {
      const fault = constraint(plan, job);
      if (fault !== null) return { reason: name as ConstraintName, ...fault };
    }
    return null;
  };
}

/** The first constraint that no plan of a layout meets. */
export const layoutFault = /* @__PURE__ */ firstUnmet<Layout>(OF_LAYOUTS);
const belowLayoutFault = /* @__PURE__ */ firstUnmet<Plan>(BELOW_LAYOUTS);

/**
 * The first constraint of the space that a plan does not meet, memory apart, in the order in which the search
 * counts them; null when it meets all.
 */
export const planFault = (plan: Plan, job: PlannedJob): PlanFault | null =>
  layoutFault(plan, job) ?? belowLayoutFault(plan, job);

/** The first constraint that keeps a plan from having a mesh, whatever its job. */
export const meshFault = (plan: Plan): Unmet | null =>
  tensorSequenceConstraint(plan) ?? shardingConstraint(plan);
