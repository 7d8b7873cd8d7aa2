import type { Candidate, JobSpec, PlanConstraints, Profile } from "@internevo/domain";
import { divisors, PAPER_SPACES } from "@internevo/plan";
import { planJob } from "@internevo/search";

/** Which plans a system can express, as in the paper (tables of its appendix "Details of E2E Evaluation"). */
export interface System {
  readonly id: "internevo" | "megatron" | "ulysses";
  readonly name: string;
  /** Its plans over so many ranks: together these spaces hold them all, each once. */
  readonly spaces: (ranks: number) => readonly PlanConstraints[];
}

/** Overlap is as free as ours: more than those systems have. */
const inThePaper = (space: PlanConstraints): PlanConstraints[] =>
  PAPER_SPACES.map((paper) => ({ ...space, ...paper }));

export const INTERNEVO: System = { id: "internevo", name: "InternEvo", spaces: () => [{}] };

/**
 * Tensor parallelism with sequence-parallel norms (s_tp = s_sp), pipelines, data parallelism; parameters and
 * gradients whole (s_ps = s_gs = 1), optimizer states whole or, with the distributed optimizer, over all
 * ranks that hold the same slice.
 */
export const MEGATRON: System = {
  id: "megatron",
  name: "Megatron-style",
  spaces: (ranks) =>
    divisors(ranks).flatMap((tensorParallel) =>
      divisors(ranks / tensorParallel).flatMap((pipelineParallel) => {
        const dataParallel = ranks / tensorParallel / pipelineParallel;
        return inThePaper({
          tensorParallel,
          sequenceParallel: tensorParallel,
          pipelineParallel,
          parameterSharding: 1,
          gradientSharding: 1,
          optimizerStateSharding: [1, dataParallel],
        });
      }),
    ),
};

/** All-to-all sequence parallelism (s_tp = 1) and ZeRO-3 over all ranks (s_ps = R = N); no pipeline. */
export const ULYSSES: System = {
  id: "ulysses",
  name: "DeepSpeed-Ulysses-style",
  spaces: (ranks) => inThePaper({ pipelineParallel: 1, tensorParallel: 1, parameterSharding: ranks }),
};

export const SYSTEMS = [INTERNEVO, MEGATRON, ULYSSES] as const;

/** More than any system's space has families of plans. */
const ALL_PLANS = 1_000_000;

/**
 * The fastest predicted plans of a system that can run, the best of each family; `feasible` is how many there
 * are, where all are looked at.
 */
export function fastestOf(
  system: System,
  job: JobSpec,
  profile: Profile,
  count: number,
): { readonly feasible: number; readonly list: Candidate[] } {
  if (system === INTERNEVO) {
    const { runnableCandidates, counts } = planJob(job, profile, { top: count });
    return { feasible: counts.feasible, list: runnableCandidates };
  }
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  const all = system
    .spaces(ranks)
    .flatMap((plan) => planJob({ ...job, plan }, profile, { top: ALL_PLANS }).runnableCandidates);
  all.sort(
    (a, b) =>
      a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds ||
      a.predicted.peakMemoryBytes - b.predicted.peakMemoryBytes,
  );
  return {
    feasible: all.length,
    list: all.slice(0, count).map((candidate, index) => ({ ...candidate, rank: index + 1 })),
  };
}
