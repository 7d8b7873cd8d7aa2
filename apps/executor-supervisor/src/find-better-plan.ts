import {
  formatPercent,
  formatSignedPercent,
  planLabel,
  ProblemError,
  type Candidate,
  type JobSpec,
  type PlanningResult,
  type Profile,
} from "@internevo/domain";
import { failureOfProblem, measureAnew, type ProfilingSettings } from "@internevo/stages";
import { updateJob, type Database, type FoundPlan, type Transaction } from "@internevo/store";

/** What a look for a better plan has come to. */
export interface BetterPlan {
  /** Absent: no plan gains enough. */
  readonly found?: FoundPlan;
  /** What was found, or why nothing was, in words. */
  readonly reason: string;
  /** Stores what was measured, and that the job goes by it. */
  readonly persist: (tx: Transaction) => Promise<void>;
}

/**
 * The best plan by a search over new measurements, where it is predicted to gain enough on the plan in use by the same
 * measurements. @param located the plan in use, as the search found it
 */
export function betterPlan(
  from: Candidate,
  { located, runnableCandidates }: Pick<PlanningResult, "located" | "runnableCandidates">,
  gainThreshold: number,
): Omit<BetterPlan, "persist"> {
  const predicted = located?.predicted ?? null;
  if (predicted === null)
    return { reason: `the plan in use is not predicted: ${located?.reason ?? "the search did not find it"}` };
  const [best] = runnableCandidates;
  if (best === undefined) return { reason: "no plan that can run fits" };
  const now: Candidate = { ...from, predicted, rank: located?.rank ?? from.rank };
  const gain = 1 - best.predicted.stepTimeSeconds / predicted.stepTimeSeconds;
  if (planLabel(best.plan) === planLabel(from.plan))
    return { reason: "measured anew, the plan in use is still the best" };
  const words = `measured anew, the best plan, ${planLabel(best.plan)}, is predicted to gain ${formatSignedPercent(gain)}`;
  return gain < gainThreshold
    ? { reason: `${words}, below the threshold of ${formatPercent(gainThreshold)}` }
    : { found: { from: now, to: best, predictedGain: gain }, reason: words };
}

export interface FindBetterPlanOptions {
  readonly settings: ProfilingSettings;
  readonly database: Database;
  readonly jobId: string;
  /** The plan change that it is for: what it has measured counts for no other. */
  readonly look: string;
  /** On as many nodes as the run has. */
  readonly spec: JobSpec;
  readonly from: Candidate;
  readonly gainThreshold: number;
  readonly search: (spec: JobSpec, profile: Profile, inUse: Candidate["plan"]) => Promise<PlanningResult>;
  /** Throws when the leases are not held any more. */
  readonly confirm: () => Promise<void>;
  readonly signal: AbortSignal;
  readonly onProgress: (message: string, done: number, total: number, waits?: boolean) => void;
  readonly onLog: (line: string) => void;
}

/**
 * Measures the cluster on which no rank runs, and searches again. What keeps it from measuring is a reason to go on as
 * before. @throws the signal's reason
 */
export async function findBetterPlan(options: FindBetterPlanOptions): Promise<BetterPlan> {
  const { jobId, spec, from, gainThreshold, search } = options;
  const nothing = (why: string): BetterPlan => ({
    reason: `the cluster could not be measured: ${why}`,
    persist: async () => {},
  });
  try {
    const outcome = await measureAnew({ ...options, asker: { jobId } });
    if (outcome.status !== "obtained") return nothing(outcome.failure.message);
    const result = await search(spec, outcome.profile, from.plan);
    return {
      ...betterPlan(from, result, gainThreshold),
      persist: async (tx) => void (await updateJob(tx, jobId, { profileId: await outcome.persist(tx) })),
    };
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return nothing(failureOfProblem(error).message);
  }
}
