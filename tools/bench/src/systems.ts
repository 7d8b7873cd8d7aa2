import { replicaRanks, worldSize, type Candidate, type JobSpec, type Plan, type PlanningResult } from "@internevo/domain";

/** Which plans a system can express, as in the paper (tables of its appendix "Details of E2E Evaluation"). */
export interface System {
  readonly id: "internevo" | "megatron" | "ulysses";
  readonly name: string;
  readonly has: (plan: Plan) => boolean;
}

const beyondThePaper = (plan: Plan): boolean => (plan.contextParallel ?? 1) > 1 || (plan.pipelineChunks ?? 1) > 1 || (plan.recomputeLayers ?? 0) > 0;

/** All ranks that hold the same slice, as the paper's table has it: with the distributed optimizer, or without. */
const distributedOptimizer = (plan: Plan): boolean => plan.optimizerStateSharding === 1 || plan.optimizerStateSharding === replicaRanks(plan);

export const INTERNEVO: System = { id: "internevo", name: "InternEvo", has: () => true };

/**
 * Tensor parallelism with sequence-parallel norms (s_tp = s_sp), pipelines, data parallelism with or without the distributed
 * optimizer; parameters and gradients whole (s_ps = s_gs = 1).
 */
export const MEGATRON: System = {
  id: "megatron",
  name: "Megatron-style",
  has: (plan) => plan.tensorParallel === plan.sequenceParallel && plan.parameterSharding === 1 && plan.gradientSharding === 1 && distributedOptimizer(plan) && !beyondThePaper(plan),
};

/** All-to-all sequence parallelism (s_tp = 1) and ZeRO-3 over all ranks (s_ps = R = N); no pipeline. */
export const ULYSSES: System = {
  id: "ulysses",
  name: "DeepSpeed-Ulysses-style",
  has: (plan) => plan.pipelineParallel === 1 && plan.tensorParallel === 1 && plan.parameterSharding === worldSize(plan) && !beyondThePaper(plan),
};

export const SYSTEMS = [INTERNEVO, MEGATRON, ULYSSES] as const;

/** The fastest predicted plans of a system, of a planning of all plans. */
export const fastestOf = (system: System, all: PlanningResult, count: number): Candidate[] => all.runnableCandidates.filter(({ plan }) => system.has(plan)).slice(0, count);

/** Everything that the search finds feasible, in order. */
export const ALL_PLANS = 1_000_000;

export const sequencesOf = (spec: Pick<JobSpec, "globalBatchTokens" | "sequenceLengthTokens">): number => spec.globalBatchTokens / spec.sequenceLengthTokens;
