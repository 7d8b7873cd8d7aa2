import type { AdviceSubject, PlanChoice } from "@internevo/contracts";
import {
  HEADROOM_REMEDY,
  listedPlan,
  parsePlanLabel,
  parsePlanPart,
  ProblemError,
  readHeadroom,
  resolveJob,
  withHeadroom,
  type Headroom,
  type JobSpec,
  type ListedPlans,
  type PartialPlan,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import { getJob, getPlanning, listTrials, type Database } from "@internevo/store";
import { noJobOfBody } from "../http/absent.ts";
import type { Workers } from "../work/workers.ts";
import { storedProfile } from "../profile-source.ts";
import { innerJob } from "./inner-job.ts";

export interface SubjectSource {
  readonly database: Database;
  readonly workers: Workers;
  /**
   * The profile that a plan is made with. @param visible the project of the token; null: it sees all.
   * @throws ProblemError `profile-missing`, `profile-invalid`
   */
  readonly profileFor: (spec: JobSpec, name: string | undefined, visible: string | null) => Promise<Profile>;
}

export interface Subject {
  readonly spec: JobSpec;
  readonly profile: Profile;
  /** The stored profile that a submitted job was planned with. */
  readonly profileId: string | null;
  /** The submitted job whose tables say which plan has a rank; null: a search of the question says it. */
  readonly rankedBy: string | null;
}

/**
 * What a question is about: the job file that was sent, or a job that was submitted, with the profile that it
 * was planned with.
 * @throws ProblemError `bad-request` without exactly one of them; `not-found` for a job that nobody
 * submitted.
 */
export async function specOf(
  { job, jobId }: AdviceSubject,
  { database }: Pick<SubjectSource, "database">,
): Promise<{ readonly spec: JobSpec; readonly profileId: string | null }> {
  if ((job === undefined) === (jobId === undefined)) {
    throw new ProblemError("bad-request", "the request needs either job or jobId", [
      {
        field: "job",
        message: job === undefined ? "is missing" : "is given beside jobId",
        remedy: "give a job file as job, or the id of a submitted job as jobId",
      },
    ]);
  }
  if (jobId === undefined) return { spec: innerJob(() => resolveJob(job)), profileId: null };
  const row = await getJob(database.db, jobId);
  if (!row) throw noJobOfBody(jobId);
  return { spec: row.spec, profileId: row.profileId };
}

/** What `headroom` of a request says. @throws ProblemError `bad-request` for a text that says nothing */
export function headroomOf(text: string | undefined): Headroom | undefined {
  if (text === undefined) return undefined;
  const headroom = readHeadroom(text);
  if (headroom !== undefined) return headroom;
  throw new ProblemError("bad-request", "headroom is not valid", [
    { field: "headroom", value: text, message: "is neither a share nor a size", remedy: HEADROOM_REMEDY },
  ]);
}

/** @param visible the project of the token that asks; null: it sees all. */
export async function subjectOf(
  asked: AdviceSubject,
  visible: string | null,
  source: SubjectSource,
): Promise<Subject> {
  const headroom = headroomOf(asked.headroom);
  const { spec: whole, profileId } = await specOf(asked, source);
  const spec = withHeadroom(whole, headroom, "headroom");
  const stored =
    asked.profile === undefined && profileId !== null
      ? await storedProfile(source.database.db, profileId)
      : undefined;
  // Another profile or headroom is another search.
  const isOwnSearch = asked.profile === undefined && headroom === undefined;
  const rankedBy = isOwnSearch ? (asked.jobId ?? null) : null;
  const profile = stored ?? (await source.profileFor(spec, asked.profile, visible));
  return { spec, profile, profileId, rankedBy };
}

/** A plan that a request names, and the field that names it. */
export interface AskedPlan {
  readonly choice: PlanChoice;
  readonly field: string;
}

/** Where plans are looked up. */
type PlanSource = Pick<SubjectSource, "database" | "workers">;

function planOfLabel<Read>(parse: (text: string) => Read, text: string, field: string): Read {
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new ProblemError(
      error.code,
      error.message,
      error.details.map((detail) => ({ ...detail, field })),
    );
  }
}

function planOfChoice(
  choice: AskedPlan["choice"],
  field: string,
  ranked: ReadonlyMap<number, Plan>,
): Plan | undefined {
  if (typeof choice === "object") return choice;
  if (typeof choice === "string") return planOfLabel(parsePlanLabel, choice, field);
  return ranked.get(choice);
}

/** What is kept of the plans of a job, of which the answers show the ranks. */
async function listedPlansOf({ db }: Database, jobId: string): Promise<ListedPlans> {
  const [job, trials] = [await getJob(db, jobId), await listTrials(db, jobId)];
  const planning = job?.planningId ? await getPlanning(db, job.planningId) : undefined;
  return { trials, planning: planning ?? null };
}

/**
 * The plans of ranks. A submitted job's are those that its tables show: they keep their meaning when its cluster is
 * measured anew. One search finds all that are not kept.
 */
async function rankedPlans(
  ranks: readonly number[],
  { spec, profile, rankedBy }: Subject,
  { database, workers }: PlanSource,
  signal: AbortSignal,
): Promise<ReadonlyMap<number, Plan>> {
  const ranked = new Map<number, Plan>();
  if (ranks.length > 0 && rankedBy !== null) {
    const listed = await listedPlansOf(database, rankedBy);
    for (const rank of ranks) {
      const plan = listedPlan(rank, listed);
      if (plan !== undefined) ranked.set(rank, plan);
    }
  }
  const searched = ranks.filter((rank) => !ranked.has(rank));
  if (searched.length === 0) return ranked;
  const search = { spec, profile, top: Math.max(...searched), ranks: searched };
  for (const { rank, plan } of (await workers.plan(search, signal)).candidates) ranked.set(rank, plan);
  return ranked;
}

/**
 * Plans as a request names them, whether they divide the job or not. @throws ProblemError `plan-invalid`
 */
async function anyPlansOf(
  asked: readonly AskedPlan[],
  subject: Subject,
  source: PlanSource,
  signal: AbortSignal,
): Promise<Plan[]> {
  const ranks = [...new Set(asked.flatMap(({ choice }) => (typeof choice === "number" ? [choice] : [])))];
  const ranked = await rankedPlans(ranks, subject, source, signal);
  const { spec, profile } = subject;
  const plans: Plan[] = [];
  for (const { choice, field } of asked) {
    const plan = planOfChoice(choice, field, ranked);
    if (plan === undefined) {
      const search = { spec, profile, top: Math.max(...ranks) };
      const { length } = (await source.workers.plan(search, signal)).candidates;
      const message =
        length === 0 ? "names no plan: none is feasible" : `is more than the ${length} plans that there are`;
      throw new ProblemError("plan-invalid", `there is no plan of rank ${choice as number}`, [
        {
          field,
          value: choice,
          message,
          remedy: length === 0 ? "ask why-not for a plan by its fields" : `give a rank from 1 to ${length}`,
        },
      ]);
    }
    plans.push(plan);
  }
  return plans;
}

/**
 * Plans of the job as a request names them. @throws ProblemError `plan-invalid`, also for a plan that does
 * not divide the job
 */
export async function plansOf(
  asked: readonly AskedPlan[],
  subject: Subject,
  source: PlanSource,
  signal: AbortSignal,
): Promise<PlanOfJob[]> {
  const plans = await anyPlansOf(asked, subject, source, signal);
  return plans.map((plan, index) => planOfJob(plan, subject.spec, asked[index]?.field));
}

/** {@link plansOf} of one. */
export async function planOf(
  choice: PlanChoice,
  field: string,
  subject: Subject,
  source: PlanSource,
  signal: AbortSignal,
): Promise<PlanOfJob> {
  const [plan] = await plansOf([{ choice, field }], subject, source, signal);
  return plan as PlanOfJob;
}

/**
 * For the one question about plans that need not divide the job, nor be whole: why not. @throws ProblemError
 * `plan-invalid` for what names no plan
 */
export async function anyPlanOf(
  choice: PlanChoice,
  field: string,
  subject: Subject,
  source: PlanSource,
  signal: AbortSignal,
): Promise<Plan | PartialPlan> {
  if (typeof choice === "string") return planOfLabel(parsePlanPart, choice, field);
  const [plan] = await anyPlansOf([{ choice, field }], subject, source, signal);
  return plan as Plan;
}
