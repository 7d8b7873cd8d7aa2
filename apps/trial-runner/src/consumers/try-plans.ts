import { WAITS_FOR_CLUSTER } from "@internevo/contracts";
import { formatSeconds, planLabel, type Candidate, type Failure, type JobSpec, type Timeline, type Trial } from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import { failedJob, launchDirectory, launchResource, prepareTraining, recordTimeline, retryLostRanks, withStageFeed, type TrainingSettings } from "@internevo/stages";
import { finishTrial, listTrials, startTrial, transitionJob, updateJob, type Database } from "@internevo/store";
import { winnerOf } from "../measurement.ts";
import { runTrial } from "../run-trial.ts";

export interface TrialSettings extends TrainingSettings {
  /** Bound on one trial. */
  readonly timeoutSeconds: number;
}

const isOver = (trial: Trial): boolean => trial.state === "succeeded" || trial.state === "failed";

function noTrialSucceeded(trials: readonly Trial[]): Failure {
  const reasons = [...new Set(trials.map((trial) => trial.failure?.message ?? "not tried"))];
  return { code: trials[0]?.failure?.code ?? "internal", message: `none of ${trials.length} trials succeeded: ${reasons.slice(0, 3).join("; ")}`, ...(trials[0]?.failure?.remedy ? { remedy: trials[0].failure.remedy } : {}) };
}

/** As many steps as the job asks for, of those that are measured. */
const timelineOfTrial = ({ timeline, trials }: JobSpec): Timeline | undefined => timeline && { firstStep: trials.warmupSteps + 1, steps: Math.min(timeline.steps, trials.steps) };

/** Tries the best plans for real, one after the other, and takes the fastest. A trial that was interrupted is tried again, and counted once. */
export const tryPlans = (settings: TrialSettings, database: Database) => async (context: CommandContext<"job.trial">): Promise<Effect> => {
  const { job, signal, log } = context;
  return withStageFeed(context, "trialling", async (feed) => {
    const dataset = await prepareTraining(settings, job.spec);
    const planned = await listTrials(database.db, job.id);
    let done = planned.filter(isOver).length;
    if (done < planned.length) {
      const reservation = await context.reserve(launchResource(job.spec.cluster, job.id), () => feed.progress("trialling", WAITS_FOR_CLUSTER, done, planned.length));
      for (const { id, candidate } of planned.filter((trial) => !isOver(trial))) {
        signal.throwIfAborted();
        if (!(await context.fenced((tx) => startTrial(tx, id)))) continue;
        const label = planLabel(candidate.plan);
        const launch = {
          ...settings,
          spec: job.spec,
          plan: candidate.plan,
          dataset,
          timeline: await recordTimeline(settings.dataDirectory, job.id, `trial-${candidate.rank}`, timelineOfTrial(job.spec)),
          runDirectory: launchDirectory(settings.dataDirectory, job.spec.cluster, job.id, "trials"),
          label: `trial ${candidate.rank}`,
          signal,
          onQueue: (message: string) => feed.progress("trialling", `${label}: ${message}`, done, planned.length),
          onStep: (step: number, steps: number) => feed.progress("trialling", `${label}: step ${step} of ${steps}`, done, planned.length),
          onLog: (line: string) => feed.log("warn", "internevo-trainer", line),
        };
        const result = await retryLostRanks(
          () => runTrial(launch),
          (ended) => ("failure" in ended ? ended.failure : undefined),
          (failure) => feed.log("warn", "trial-runner", `${label}: ${failure.message}: tried again`),
        );
        await context.fenced((tx) => finishTrial(tx, id, result));
        done += 1;
        log.info({ trial: candidate.rank, plan: label, ...("measured" in result ? { stepTimeSeconds: result.measured.stepTimeSeconds } : { failure: result.failure }) }, "a trial ended");
        feed.progress("trialling", `${label}: ${"measured" in result ? `${formatSeconds(result.measured.stepTimeSeconds)} a step` : result.failure.message}`, done, planned.length);
      }
      await reservation.release();
    }
    const trials = await listTrials(database.db, job.id);
    const winner = winnerOf(trials);
    return winner ? trainWith(job.id, winner, trials) : failedJob(job.id, "trialling", noTrialSucceeded(trials));
  });
};

function trainWith(jobId: string, winner: Candidate, trials: readonly Trial[]): Effect {
  const measured = trials.filter((trial) => trial.measured !== null).length;
  return async (tx) => {
    await updateJob(tx, jobId, { chosen: winner });
    await transitionJob(tx, { jobId, from: "trialling", to: "running", reason: `${planLabel(winner.plan)} was the fastest of ${measured} measured plans` });
  };
}
