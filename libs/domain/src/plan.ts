import { Type, type Static } from "typebox";

const factor = (description: string) => Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1, description });

/**
 * An execution plan, S = [b, n, a, s_pp, s_dp, s_tp, s_sp, s_ps, s_gs, s_oss] of the paper (section "Search Space Analysis"),
 * and what the executor can vary beyond it.
 */
export const PlanSchema = Type.Object(
  {
    microBatchSize: factor("b: sequences of a micro-batch"),
    microBatches: factor("n: micro-batches of a step"),
    recompute: Type.Boolean({ description: "a: activations inside a layer are recomputed in the backward pass" }),
    pipelineParallel: factor("s_pp: pipeline stages"),
    dataParallel: factor("s_dp"),
    tensorParallel: factor("s_tp: equals s_sp in config 1 (Megatron), 1 in config 2 (Ulysses)"),
    sequenceParallel: factor("s_sp"),
    contextParallel: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 2 ** 20, default: 1, description: "beyond the paper: of the sequence ranks, so many share a sequence as a ring (context parallelism, zigzag), the others share the heads; 1, heads only, where it is left out" }),
    ),
    parameterSharding: factor("s_ps"),
    gradientSharding: factor("s_gs: beyond s_ps; 1 or s_oss"),
    optimizerStateSharding: factor("s_oss: beyond s_ps"),
    forwardOverlap: Type.Union([Type.Literal("none"), Type.Literal("block"), Type.Literal("inter-layer"), Type.Literal("intra-layer")], {
      description: "what the forward pass hides of the parameter all-gathers",
    }),
    backwardOverlap: Type.Union([Type.Literal("none"), Type.Literal("block"), Type.Literal("intra-layer")], {
      description: "what the backward pass hides of all-gathers and reduce-scatters",
    }),
    pipelineChunks: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 1024, default: 1, description: "beyond the paper: parts of the model that a pipeline stage holds (interleaved 1F1B); 1, the paper's schedule, where it is left out" }),
    ),
    recomputeLayers: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 10_000, description: "beyond the paper: the first so many layers of each stage are recomputed, and `recompute` is false; where it is left out, `recompute` says all or none" }),
    ),
  },
  { additionalProperties: false },
);
export type Plan = Static<typeof PlanSchema>;

/** What a plan may leave out because the paper's plans have no such choice. */
export type PlanExtension = "contextParallel" | "pipelineChunks" | "recomputeLayers";

/** Chunks of a stage; more than one is interleaved 1F1B. */
export const chunksOf = (plan: Pick<Plan, "pipelineChunks">): number => plan.pipelineChunks ?? 1;

/** Ranks of a ring that share a sequence; more than one is context parallelism. */
export const contextOf = (plan: Pick<Plan, "contextParallel">): number => plan.contextParallel ?? 1;

/** Neighbouring ranks that share the heads inside attention: by all-to-all (Ulysses) or by tensor parallelism. */
export const headRanks = (plan: Pick<Plan, "sequenceParallel" | "contextParallel">): number => plan.sequenceParallel / contextOf(plan);

/** How many of a stage's layers are recomputed. */
export const recomputedLayers = (plan: Pick<Plan, "recompute" | "recomputeLayers">, stageLayers: number): number =>
  plan.recompute ? stageLayers : Math.min(plan.recomputeLayers ?? 0, stageLayers);

/** Ranks that a plan occupies: N = s_pp · s_dp · s_sp (config 1's tensor ranks are its sequence ranks). */
export const worldSize = (plan: Plan): number => plan.pipelineParallel * plan.dataParallel * plan.sequenceParallel;

/** R = N / (s_pp · s_tp): ranks that hold the same slice of the model. */
export const replicaRanks = (plan: Plan): number =>
  (plan.dataParallel * plan.sequenceParallel) / plan.tensorParallel;

/** A short name of a plan for tables and logs, in the paper's symbols: equal plans have equal names. */
export function planLabel(plan: Plan): string {
  const overlap =
    plan.forwardOverlap === "none" && plan.backwardOverlap === "none" ? "" : ` ov${plan.forwardOverlap}/${plan.backwardOverlap}`;
  const beyond = `${contextOf(plan) > 1 ? ` cp${contextOf(plan)}` : ""}${chunksOf(plan) > 1 ? ` v${chunksOf(plan)}` : ""}${plan.recomputeLayers ? ` k${plan.recomputeLayers}` : ""}`;
  return (
    `b${plan.microBatchSize} n${plan.microBatches} a${plan.recompute ? 1 : 0} pp${plan.pipelineParallel} dp${plan.dataParallel} ` +
    `tp${plan.tensorParallel} sp${plan.sequenceParallel} ps${plan.parameterSharding} gs${plan.gradientSharding} oss${plan.optimizerStateSharding}${overlap}${beyond}`
  );
}

/** Ordered groups of ranks, one list per dimension; each list partitions all ranks. Computed once, from the plan, for planner and executor alike. */
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
