import type { Plan } from "./plan.ts";
import type { Candidate, PlanningResult } from "./planning.ts";

/** What is kept of the plans that were found for a submitted job, and its tables show. */
export interface ListedPlans {
  readonly trials: readonly { readonly candidate: Candidate }[];
  readonly planning: Pick<PlanningResult, "candidates" | "runnableCandidates"> | null;
}

/**
 * The plan that has a rank in the tables of a submitted job, also where its cluster was measured anew since. Undefined
 * where no plan of this rank is kept: then a search says which it is.
 */
export function listedPlan(rank: number, { trials, planning }: ListedPlans): Plan | undefined {
  const listed = [
    ...trials.map(({ candidate }) => candidate),
    ...(planning?.runnableCandidates ?? []),
    ...(planning?.candidates ?? []),
  ];
  return listed.find((candidate) => candidate.rank === rank)?.plan;
}
