import { WAITS_FOR_CLUSTER } from "@internevo/contracts";
import { DEFAULT_TRIAL_REPEATS, formatSeconds, planLabel, type Candidate, type Failure, type JobSpec, type Timeline, type Trial } from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import { failedJob, launchDirectory, launchResource, prepareTraining, recordTimeline, retryLostRanks, withStageFeed, type TrainingSettings } from "@internevo/stages";
import { finishTrial, listTrials, repeatTrial, startTrial, transitionJob, updateJob, type Database } from "@internevo/store";
import { trialToRepeat, winnerOf, withRun } from "../measurement.ts";
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

/**
 * Tries the best plans for real, one after the other, runs those again that one run does not tell apart, and takes the fastest.
 * A trial that was interrupted is tried again, and counted once.
 */
export const tryPlans = (settings: TrialSettings, database: Database) => async (context: CommandContext<"job.trial">): Promise<Effect> => {
  const { job, signal, log } = context;
  const repeats = job.spec.trials.repeats ?? DEFAULT_TRIAL_REPEATS; // jobs of before could not say it
  return withStageFeed(context, "trialling", async (feed) => {
    const dataset = await prepareTraining(settings, job.spec);
    const planned = await listTrials(database.db, job.id);
    const total = planned.length;
    let done = planned.filter(isOver).length;

    /** One run of a plan. `run` is its number, from 1; only the first records its timeline. */
    const run = async ({ candidate }: Trial, number: number): Promise<Awaited<ReturnType<typeof runTrial>>> => {
      const label = planLabel(candidate.plan);
      const said = number === 1 ? label : `${label}, again`;
      const launch = {
        ...settings,
        spec: job.spec,
        plan: candidate.plan,
        dataset,
        timeline: number === 1 ? await recordTimeline(settings.dataDirectory, job.id, `trial-${candidate.rank}`, timelineOfTrial(job.spec)) : undefined,
        runDirectory: launchDirectory(settings.dataDirectory, job.spec.cluster, job.id, "trials"),
        label: number === 1 ? `trial ${candidate.rank}` : `trial ${candidate.rank}, run ${number}`,
        signal,
        confirm: () => context.confirm(),
        onQueue: (message: string) => feed.progress("trialling", `${said}: ${message}`, done, total),
        onStep: (step: number, steps: number) => feed.progress("trialling", `${said}: step ${step} of ${steps}`, done, total),
        onLog: (line: string) => feed.log("warn", "internevo-trainer", line),
      };
      const result = await retryLostRanks(
        () => runTrial(launch),
        (ended) => ("failure" in ended ? ended.failure : undefined),
        (failure) => feed.log("warn", "trial-runner", `${said}: ${failure.message}: tried again`),
      );
      log.info({ trial: candidate.rank, plan: label, run: number, ...("measured" in result ? { stepTimeSeconds: result.measured.stepTimeSeconds } : { failure: result.failure }) }, "a trial ended");
      return result;
    };

    const reserved = done < total || trialToRepeat(planned, repeats) !== undefined ? await context.reserve(launchResource(job.spec.cluster, job.id), () => feed.progress("trialling", WAITS_FOR_CLUSTER, done, total)) : undefined;
    for (const trial of planned.filter((each) => !isOver(each))) {
      signal.throwIfAborted();
      if (!(await context.fenced((tx) => startTrial(tx, trial.id)))) continue;
      const result = await run(trial, 1);
      await context.fenced((tx) => finishTrial(tx, trial.id, result));
      done += 1;
      feed.progress("trialling", `${planLabel(trial.candidate.plan)}: ${"measured" in result ? `${formatSeconds(result.measured.stepTimeSeconds)} a step` : result.failure.message}`, done, total);
    }
    // A plan that ran once and then does not, or whose run could not be counted, is not asked a third time.
    const given = new Set<string>();
    for (;;) {
      signal.throwIfAborted();
      const next = trialToRepeat((await listTrials(database.db, job.id)).filter(({ id }) => !given.has(id)), repeats);
      if (!next?.measured) break;
      const measured = next.measured;
      const number = (measured.runStepTimeSeconds?.length ?? 1) + 1;
      const result = await run(next, number);
      if ("failure" in result) {
        given.add(next.id);
        feed.log("warn", "trial-runner", `${planLabel(next.candidate.plan)}, again: ${result.failure.message}`);
      } else if (!(await context.fenced((tx) => repeatTrial(tx, next.id, withRun(measured, result.measured))))) given.add(next.id);
    }
    await reserved?.release();
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
