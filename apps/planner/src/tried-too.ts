import {
  allowedBy,
  constraintsOf,
  parsePlanPart,
  PLAN_ROWS,
  planValue,
  type Candidate,
  type JobSpec,
  type Plan,
  type PlanConstraints,
  type PlanningResult,
} from "@internevo/domain";

export interface TriedToo {
  /** With their ranks among all plans of the job. */
  readonly found: readonly Candidate[];
  /** Parts for which nothing more is tried. */
  readonly missing: readonly string[];
}

const has = (plan: Plan, part: PlanConstraints): boolean =>
  PLAN_ROWS.every(
    ([field]) => part[field] === undefined || allowedBy(part[field] as unknown, planValue(plan, field)),
  );

/**
 * What a job asks to be tried beside its best plans (`trials.also`): for each part that none of them has, the
 * best plan with it.
 * @param search of the job as it is given, and where a plan stands in it.
 */
export async function triedToo(
  job: JobSpec,
  best: readonly Candidate[],
  search: (job: JobSpec, options: { readonly locate?: Plan }) => Promise<PlanningResult>,
): Promise<TriedToo> {
  const found: Candidate[] = [];
  const missing: string[] = [];
  for (const text of job.trials.also ?? []) {
    const part = constraintsOf(parsePlanPart(text));
    if ([...best, ...found].some(({ plan }) => has(plan, part))) continue;
    const [candidate] = (await search({ ...job, plan: { ...job.plan, ...part } }, {})).runnableCandidates;
    const located = candidate && (await search(job, { locate: candidate.plan })).located;
    const rank = located?.rank ?? null;
    // A plan that is not the best of its family may have the rank of another, and trials are told apart by it.
    if (!candidate || rank === null || [...best, ...found].some((tried) => tried.rank === rank))
      missing.push(text);
    else found.push({ ...candidate, rank });
  }
  return { found, missing };
}
