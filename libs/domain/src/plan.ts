import { Type, type Static, type TOptional, type TSchema, type TUnsafe } from "typebox";
import {
  PLAN_FIELDS,
  PLAN_ROWS,
  planValue,
  type PlanExtension,
  type PlanField,
  type PlanFieldValue,
} from "./plan-fields.ts";

type Values = { readonly [Field in PlanField]: TUnsafe<PlanFieldValue<Field>> };
type Properties = {
  [Field in PlanField]: Field extends PlanExtension ? TOptional<Values[Field]> : Values[Field];
};

/** The values that a field may have, without what describes it. */
export function planFieldSchema(field: PlanField, about: Readonly<Record<string, unknown>> = {}): TSchema {
  const { value } = PLAN_FIELDS[field];
  if (value === "flag") return Type.Boolean(about);
  if ("choices" in value)
    return Type.Union(
      value.choices.map((choice) => Type.Literal(choice)),
      about,
    );
  return Type.Integer({ minimum: value.least, maximum: value.most, ...about });
}

function planProperties(): Properties {
  const entries = PLAN_ROWS.map(([field, { paper, symbol, meaning, optional, default: left }]) => {
    const begin = paper ?? (optional ? `${symbol ?? ""}, beyond the paper` : undefined);
    const end = optional ? `; ${String(left)} where it is left out` : "";
    const description = `${begin === undefined ? "" : `${begin}: `}${meaning}${end}`;
    if (!optional) return [field, planFieldSchema(field, { description })];
    return [field, Type.Optional(planFieldSchema(field, { default: left, description }))];
  });
  return Object.fromEntries(entries) as Properties;
}

const planSchema = () => Type.Object(planProperties(), { additionalProperties: false });

/**
 * An execution plan, S = [b, n, a, s_pp, s_dp, s_tp, s_sp, s_ps, s_gs, s_oss] of the paper (section "Search
 * Space Analysis"), and what the executor can vary beyond it. Its fields are those of {@link PLAN_FIELDS}.
 */
export const PlanSchema = planSchema();
export type Plan = Static<typeof PlanSchema>;

/** The plainest plan: one rank, one micro-batch, nothing shared, recomputed or hidden. */
export const PLAIN_PLAN: Plan = {
  microBatchSize: 1,
  microBatches: 1,
  recompute: false,
  pipelineParallel: 1,
  dataParallel: 1,
  tensorParallel: 1,
  sequenceParallel: 1,
  parameterSharding: 1,
  gradientSharding: 1,
  optimizerStateSharding: 1,
  forwardOverlap: "none",
  backwardOverlap: "none",
};

/** Chunks of a stage; more than one is interleaved 1F1B. */
export const chunksOf = (plan: Pick<Plan, "pipelineChunks">): number => planValue(plan, "pipelineChunks");

/** Ranks of a ring that share a sequence; more than one is context parallelism. */
export const contextOf = (plan: Pick<Plan, "contextParallel">): number => planValue(plan, "contextParallel");

/**
 * Neighbouring ranks that share the heads inside attention: by all-to-all (Ulysses) or by tensor parallelism.
 */
export const headRanks = (plan: Pick<Plan, "sequenceParallel" | "contextParallel">): number =>
  plan.sequenceParallel / contextOf(plan);

/** How many of a stage's layers are recomputed. */
export const recomputedLayers = (
  plan: Pick<Plan, "recompute" | "recomputeLayers">,
  stageLayers: number,
): number => (plan.recompute ? stageLayers : Math.min(planValue(plan, "recomputeLayers"), stageLayers));

/** Whether layers that are not recomputed make gate and up again in their backward pass. */
export const makesGateUpAgain = (plan: Pick<Plan, "gateUp">): boolean =>
  planValue(plan, "gateUp") === "again";

/** Whether layers that are not recomputed keep gate and up in the host's memory. */
export const keepsGateUpOnHost = (plan: Pick<Plan, "gateUp">): boolean =>
  planValue(plan, "gateUp") === "host";

/** Ranks that a plan occupies: N = s_pp · s_dp · s_sp (config 1's tensor ranks are its sequence ranks). */
export const worldSize = (plan: Plan): number =>
  plan.pipelineParallel * plan.dataParallel * plan.sequenceParallel;

/** R = N / (s_pp · s_tp): ranks that hold the same slice of the model. */
export const replicaRanks = (
  plan: Pick<Plan, "dataParallel" | "sequenceParallel" | "tensorParallel">,
): number => (plan.dataParallel * plan.sequenceParallel) / plan.tensorParallel;

const factor = (description: string) => Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1, description });

/**
 * Ordered groups of ranks, one list per dimension; each list partitions all ranks. Computed once, from the
 * plan, for planner and executor alike.
 */
export const MeshSchema = Type.Object(
  {
    worldSize: factor("N"),
    pipelineParallel: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    dataParallel: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    tensorParallel: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    sequenceParallel: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    parameterSharding: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    optimizerStateSharding: Type.Array(Type.Array(Type.Integer({ minimum: 0 }))),
    gradientReplicas: Type.Array(Type.Array(Type.Integer({ minimum: 0 })), {
      description: "ranks that hold the same parameter shard: R / s_ps of them",
    }),
  },
  { additionalProperties: false },
);
export type Mesh = Static<typeof MeshSchema>;
