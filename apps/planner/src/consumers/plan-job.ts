import { formatCounted, type Failure, type JobSpec, type PlanningResult } from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import { failedJob, noFeasiblePlan, noRunnablePlan, searchPlans, stageFeed } from "@internevo/stages";
import {
  createTrials,
  getProfile,
  storePlanning,
  transitionJob,
  updateJob,
  type Database,
} from "@internevo/store";
import { triedToo } from "../tried-too.ts";

export interface PlannerSettings {
  readonly threadsPerRank: number;
}

/** Why nothing is tried, where nothing can be. */
function failureOf(spec: JobSpec, result: PlanningResult): Failure | undefined {
  if (result.counts.feasible === 0) return noFeasiblePlan(spec, result);
  if (result.runnableCandidates.length === 0) return noRunnablePlan(spec, result);
  if (spec.data !== null) return undefined;
  return {
    code: "data-invalid",
    message: "the job was planned; it names no data to train on",
    remedy: "add data to the job, or ask for plans only",
  };
}

/** Searches the plans of a job; the best that the executor runs become its trials. */
export const planJobConsumer =
  (settings: PlannerSettings, database: Database) =>
  async (context: CommandContext<"job.plan">): Promise<Effect> => {
    const { job, signal, log } = context;
    const stored = job.profileId === null ? undefined : await getProfile(database.db, job.profileId);
    if (!stored)
      return failedJob(job.id, "planning", {
        code: "profile-missing",
        message: `the profile ${job.profileId ?? ""} of the job is not stored any more`,
        remedy: "submit the job again",
      });
    const { spec } = job;
    const feed = stageFeed(context);
    const onProgress = (done: number, total: number): void =>
      feed.progress("planning", "searches the plans, batch by batch", done, total);
    const options = { top: Math.max(10, spec.trials.count), threadsPerRank: settings.threadsPerRank };
    const result = await searchPlans(spec, stored.profile, options, signal, onProgress).finally(() =>
      feed.close(),
    );
    const { counts, candidates, runnableCandidates } = result;
    log.info({ counts, best: candidates[0]?.predicted.stepTimeSeconds }, "the plans were searched");
    const failure = failureOf(spec, result);
    const best = runnableCandidates.slice(0, spec.trials.count);
    const also = failure
      ? { found: [], missing: [] }
      : await triedToo(spec, best, (asked, locate) =>
          searchPlans(asked, stored.profile, { ...options, top: 1, ...locate }, signal),
        );
    const tried = [...best, ...also.found];
    return async (tx) => {
      const planningId = await storePlanning(tx, result, { jobId: job.id, profileId: stored.id });
      await updateJob(tx, job.id, { planningId });
      if (failure)
        return void (await transitionJob(tx, { jobId: job.id, from: "planning", to: "failed", failure }));
      await createTrials(tx, job.id, tried);
      await transitionJob(tx, {
        jobId: job.id,
        from: "planning",
        to: "trialling",
        reason:
          `${formatCounted(counts.evaluated, "plan was", "plans were")} ` +
          `considered; ${formatCounted(tried.length, "is", "are")} tried` +
          (also.missing.length > 0 ? `; no further plan that runs has ${also.missing.join(", or ")}` : ""),
      });
    };
  };
