import {
  constraintsOf,
  meetsConstraints,
  parsePlanPart,
  planLabel,
  ProblemError,
  type Candidate,
  type JobSpec,
  type Plan,
  type PlanConstraints,
  type PlanningResult,
} from "@internevo/domain";

export interface AlsoTried {
  /** Each with a rank that no other plan of the job has. */
  readonly found: readonly Candidate[];
  /** Parts for which nothing more is tried, because no plan that runs has them; or with why their search was refused. */
  readonly missing: readonly string[];
}

/** Searches the plans of a job, the best alone; or says where one of them stands. */
export type SearchOne = (job: JobSpec, options: { readonly locate?: Plan }) => Promise<PlanningResult>;

/**
 * What a job asks to be tried beside its best plans (`trials.also`): for each part that none of these has, the
 * best plan with it.
 * @param best those that are tried in any case
 * @param onPart is told of each part before it is searched
 */
export async function alsoTried(
  job: JobSpec,
  { candidates, runnableCandidates }: Pick<PlanningResult, "candidates" | "runnableCandidates">,
  best: readonly Candidate[],
  search: SearchOne,
  onPart: (part: string, index: number) => void = () => {},
): Promise<AlsoTried> {
  const found: Candidate[] = [];
  const missing: string[] = [];
  const taken = new Set([...candidates, ...runnableCandidates].map(({ rank }) => rank));
  for (const [index, text] of (job.trials.also ?? []).entries()) {
    const part = constraintsOf(parsePlanPart(text));
    if (best.some(({ plan }) => meetsConstraints(plan, part))) continue;
    onPart(text, index);
    try {
      const candidate = await bestWith(job, part, search);
      if (candidate === undefined) missing.push(text);
      else if (!found.some(isSame(candidate)))
        found.push(runnableCandidates.find(isSame(candidate)) ?? withFreeRank(candidate, taken));
    } catch (error) {
      // What the search of all plans found is not lost with a search that is too large.
      if (!(error instanceof ProblemError)) throw error;
      missing.push(`${text} (${error.message})`);
    }
  }
  return { found, missing };
}

const isSame =
  ({ plan }: Candidate) =>
  (other: Candidate): boolean =>
    planLabel(other.plan) === planLabel(plan);

/** A plan that is not the best of its family stands where the next family does: it takes the next rank that is free. */
function withFreeRank(candidate: Candidate, taken: Set<number>): Candidate {
  let { rank } = candidate;
  while (taken.has(rank)) rank += 1;
  taken.add(rank);
  return { ...candidate, rank };
}

/** The best plan with a part, with its rank among all plans of the job. */
async function bestWith(
  job: JobSpec,
  part: PlanConstraints,
  search: SearchOne,
): Promise<Candidate | undefined> {
  const asked = { ...job, plan: { ...job.plan, ...part } };
  const [candidate] = (await search(asked, {})).runnableCandidates;
  const located = candidate && (await search(job, { locate: candidate.plan })).located;
  return candidate && { ...candidate, rank: located?.rank ?? candidate.rank };
}
