import { replicaRanks, worldSize, type Candidate, type JobSpec, type Plan, type PlanConstraints, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";

/** Which plans a system can express, as in the paper (tables of its appendix "Details of E2E Evaluation"). */
export interface System {
  readonly id: "internevo" | "megatron" | "ulysses";
  readonly name: string;
  /** What its plans have in common, for the search: the union of these spaces holds all of them. */
  readonly spaces: (ranks: number) => readonly PlanConstraints[];
  readonly has: (plan: Plan) => boolean;
}

/** All ranks that hold the same slice, as the paper's table has it: with the distributed optimizer, or without. */
const distributedOptimizer = (plan: Plan): boolean => plan.optimizerStateSharding === 1 || plan.optimizerStateSharding === replicaRanks(plan);

/** No rings, no chunks; of the layers all are recomputed or none. Overlap is as free as ours: more than those systems have. */
const inThePaper = (space: PlanConstraints): PlanConstraints[] => [{ recompute: true }, { recomputeLayers: 0 }].map((recomputation) => ({ ...space, ...recomputation, contextParallel: 1, pipelineChunks: 1 }));

export const INTERNEVO: System = { id: "internevo", name: "InternEvo", spaces: () => [{}], has: () => true };

/**
 * Tensor parallelism with sequence-parallel norms (s_tp = s_sp), pipelines, data parallelism with or without the distributed
 * optimizer; parameters and gradients whole (s_ps = s_gs = 1).
 */
export const MEGATRON: System = {
  id: "megatron",
  name: "Megatron-style",
  spaces: () => inThePaper({ parameterSharding: 1, gradientSharding: 1 }),
  has: (plan) => plan.tensorParallel === plan.sequenceParallel && distributedOptimizer(plan),
};

/** All-to-all sequence parallelism (s_tp = 1) and ZeRO-3 over all ranks (s_ps = R = N); no pipeline. */
export const ULYSSES: System = {
  id: "ulysses",
  name: "DeepSpeed-Ulysses-style",
  spaces: (ranks) => inThePaper({ pipelineParallel: 1, tensorParallel: 1, parameterSharding: ranks }),
  has: (plan) => plan.parameterSharding === worldSize(plan),
};

export const SYSTEMS = [INTERNEVO, MEGATRON, ULYSSES] as const;

/** More than any system's space has families of plans. */
const ALL_PLANS = 1_000_000;

/** The fastest predicted plans of a system that can run, the best of each family; `feasible` is how many there are, where all are looked at. */
export function fastestOf(system: System, job: JobSpec, profile: Profile, count: number): { readonly feasible: number; readonly list: Candidate[] } {
  if (system === INTERNEVO) {
    const { runnableCandidates, counts } = planJob(job, profile, { top: count });
    return { feasible: counts.feasible, list: runnableCandidates };
  }
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  const all = system.spaces(ranks).flatMap((plan) => planJob({ ...job, plan }, profile, { top: ALL_PLANS }).runnableCandidates.filter((candidate) => system.has(candidate.plan)));
  all.sort((a, b) => a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds || a.predicted.peakMemoryBytes - b.predicted.peakMemoryBytes);
  return { feasible: all.length, list: all.slice(0, count).map((candidate, index) => ({ ...candidate, rank: index + 1 })) };
}
