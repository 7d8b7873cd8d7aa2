import {
  formatCounted,
  type Candidate,
  type Failure,
  type JobSpec,
  type PlanningResult,
} from "@internevo/domain";
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
import { alsoTried } from "../also-tried.ts";

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
    const says = (message: string) => (done: number, total: number) =>
      feed.progress("planning", message, done, total);
    const options = { top: Math.max(10, spec.trials.count), threadsPerRank: settings.threadsPerRank };
    try {
      const onProgress = says("searches the plans, batch by batch");
      const result = await searchPlans(spec, stored.profile, options, signal, onProgress);
      const { counts, candidates, runnableCandidates } = result;
      log.info({ counts, best: candidates[0]?.predicted.stepTimeSeconds }, "the plans were searched");
      const failure = failureOf(spec, result);
      if (failure) return planned(job.id, stored.id, result, { failure });
      const best = runnableCandidates.slice(0, spec.trials.count);
      const { found, missing } = await alsoTried(
        spec,
        result,
        best,
        (asked, over) => searchPlans(asked, stored.profile, { ...options, top: 1, ...over }, signal),
        (part, index) => says(`searches the best plan with ${part}`)(index, spec.trials.also?.length ?? 0),
      );
      return planned(job.id, stored.id, result, { tried: [...best, ...found], missing });
    } finally {
      await feed.close();
    }
  };

/** Stores what was planned, and hands the job on to its trials, or ends it. */
const planned =
  (
    jobId: string,
    profileId: string,
    result: PlanningResult,
    outcome:
      | { readonly failure: Failure }
      | { readonly tried: readonly Candidate[]; readonly missing: readonly string[] },
  ): Effect =>
  async (tx) => {
    const planningId = await storePlanning(tx, result, { jobId, profileId });
    await updateJob(tx, jobId, { planningId });
    if ("failure" in outcome) {
      await transitionJob(tx, { jobId, from: "planning", to: "failed", failure: outcome.failure });
      return;
    }
    const { tried, missing } = outcome;
    await createTrials(tx, jobId, tried);
    await transitionJob(tx, {
      jobId,
      from: "planning",
      to: "trialling",
      reason:
        `${formatCounted(result.counts.evaluated, "plan was", "plans were")} ` +
        `considered; ${formatCounted(tried.length, "is", "are")} tried` +
        (missing.length > 0 ? `; nothing more is tried for ${missing.join(", ")}` : ""),
    });
  };
