import type { AdviceSubject, PlanChoice } from "@internevo/contracts";
import { parsePlanLabel, ProblemError, resolveJob, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { getJob, getProfile, type Database } from "@internevo/store";
import type { Workers } from "../work/workers.ts";
import { innerJob } from "./inner-job.ts";

export interface SubjectSource {
  readonly database: Database;
  readonly workers: Workers;
  /** The profile that a plan is made with. @throws ProblemError `profile-missing`, `profile-invalid` */
  readonly profileFor: (spec: JobSpec, name: string | undefined) => Promise<Profile>;
}

export interface Subject {
  readonly spec: JobSpec;
  readonly profile: Profile;
}

/**
 * What a question is about: the job file that was sent, or a job that was submitted, with the profile that it was planned with.
 * @throws ProblemError `bad-request` without exactly one of them; `not-found` for a job that nobody submitted.
 */
export async function specOf({ job, jobId }: AdviceSubject, { database }: Pick<SubjectSource, "database">): Promise<{ readonly spec: JobSpec; readonly profileId: string | null }> {
  if ((job === undefined) === (jobId === undefined)) {
    throw new ProblemError("bad-request", "the request needs either job or jobId", [{ field: "job", message: job === undefined ? "is missing" : "is given beside jobId", remedy: "give a job file as job, or the id of a submitted job as jobId" }]);
  }
  if (jobId === undefined) return { spec: innerJob(() => resolveJob(job)), profileId: null };
  const row = await getJob(database.db, jobId);
  if (!row) throw new ProblemError("not-found", `there is no job ${jobId}`, [{ field: "jobId", value: jobId, message: "names no job", remedy: "see GET /api/v1/jobs" }]);
  return { spec: row.spec, profileId: row.profileId };
}

export async function subjectOf(asked: AdviceSubject, source: SubjectSource): Promise<Subject> {
  const { spec, profileId } = await specOf(asked, source);
  const stored = asked.profile === undefined && profileId !== null ? await getProfile(source.database.db, profileId) : undefined;
  return { spec, profile: stored?.profile ?? (await source.profileFor(spec, asked.profile)) };
}

/** A plan as a request names it. @throws ProblemError `plan-invalid` */
export async function planOf(choice: PlanChoice, field: string, { spec, profile }: Subject, { workers }: Pick<SubjectSource, "workers">, signal: AbortSignal): Promise<Plan> {
  if (typeof choice === "object") return choice;
  if (typeof choice === "string") {
    try {
      return parsePlanLabel(choice);
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      throw new ProblemError(error.code, error.message, error.details.map((detail) => ({ ...detail, field })));
    }
  }
  const { candidates } = await workers.plan({ spec, profile, top: choice }, signal);
  const plan = candidates[choice - 1]?.plan;
  if (plan) return plan;
  const message = candidates.length === 0 ? "names no plan: none is feasible" : `is more than the ${candidates.length} plans that there are`;
  throw new ProblemError("plan-invalid", `there is no plan of rank ${choice}`, [{ field, value: choice, message, remedy: candidates.length === 0 ? "ask why-not for a plan by its fields" : `give a rank from 1 to ${candidates.length}` }]);
}
