import {
  choiceOf,
  choiceWords,
  DEFAULT_TRIAL_REPEATS,
  disturbedTrialsWords,
  formatSeconds,
  planLabel,
  runsOf,
  trialToRepeat,
  withRun,
  type Choice,
  type Failure,
  type JobSpec,
  type Timeline,
  type Trial,
} from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import {
  failedJob,
  launchDirectory,
  prepareTraining,
  recordTimeline,
  whileReserved,
  type LaunchReservationOptions,
  retryLostRanks,
  withStageFeed,
  type TrainingSettings,
} from "@internevo/stages";
import {
  finishTrial,
  listTrials,
  repeatTrial,
  startTrial,
  transitionJob,
  updateJob,
  type Database,
} from "@internevo/store";
import { runTrial } from "../run-trial.ts";

export interface TrialSettings extends TrainingSettings {
  /** Bound on one trial. */
  readonly timeoutSeconds: number;
  /** Further runs of plans begin within this time. */
  readonly repeatSeconds: number;
}

const isOver = (trial: Trial): boolean => trial.state === "succeeded" || trial.state === "failed";

function noTrialSucceeded(trials: readonly Trial[]): Failure {
  const reasons = [...new Set(trials.map((trial) => trial.failure?.message ?? "not tried"))];
  return {
    code: trials[0]?.failure?.code ?? "internal",
    message: `none of ${trials.length} trials succeeded: ${reasons.slice(0, 3).join("; ")}`,
    ...(trials[0]?.failure?.remedy ? { remedy: trials[0].failure.remedy } : {}),
  };
}

/** As many steps as the job asks for, of those that are measured. */
const timelineOfTrial = ({ timeline, trials }: JobSpec): Timeline | undefined =>
  timeline && { firstStep: trials.warmupSteps + 1, steps: Math.min(timeline.steps, trials.steps) };

/**
 * Tries the best plans for real, one after the other. Plans that the runs do not tell apart, and those that
 * were disturbed, run again within a budget; then `choiceOf` says which one trains. A trial that was
 * interrupted is tried again, and counted once.
 */
export const tryPlans =
  (settings: TrialSettings, database: Database) =>
  async (context: CommandContext<"job.trial">): Promise<Effect> => {
    const { job, signal, log } = context;
    const repeats = job.spec.trials.repeats ?? DEFAULT_TRIAL_REPEATS; // jobs of before could not say it
    return withStageFeed(context, "trialling", async (feed) => {
      const dataset = await prepareTraining(settings, job.spec);
      const planned = await listTrials(database.db, job.id);
      const total = planned.length;
      let done = planned.filter(isOver).length;

      /** One run of a plan. `run` is its number, from 1; only the first records its timeline. */
      const run = async (
        { candidate }: Trial,
        number: number,
      ): Promise<Awaited<ReturnType<typeof runTrial>>> => {
        const label = planLabel(candidate.plan);
        const said = number === 1 ? label : `${label}, again`;
        const launch = {
          ...settings,
          spec: job.spec,
          plan: candidate.plan,
          dataset,
          timeline:
            number === 1
              ? await recordTimeline(
                  settings.dataDirectory,
                  job.id,
                  `trial-${candidate.rank}`,
                  timelineOfTrial(job.spec),
                )
              : undefined,
          runDirectory: launchDirectory(settings.dataDirectory, job.spec.cluster, job.id, "trials"),
          label: number === 1 ? `trial ${candidate.rank}` : `trial ${candidate.rank}, run ${number}`,
          signal,
          confirm: () => context.confirm(),
          onQueue: (message: string, waits: boolean) =>
            feed.progress("trialling", `${said}: ${message}`, done, total, waits),
          onStep: (step: number, steps: number) =>
            feed.progress("trialling", `${said}: step ${step} of ${steps}`, done, total),
          onLog: (line: string) => feed.log("warn", "internevo-trainer", line),
        };
        const result = await retryLostRanks(
          () => runTrial(launch),
          (ended) => ("failure" in ended ? ended.failure : undefined),
          (failure) => feed.log("warn", "trial-runner", `${said}: ${failure.message}: tried again`),
        );
        log.info(
          {
            trial: candidate.rank,
            plan: label,
            run: number,
            ...("measured" in result
              ? { stepTimeSeconds: result.measured.stepTimeSeconds }
              : { failure: result.failure }),
          },
          "a trial ended",
        );
        return result;
      };

      const runAll = async (): Promise<void> => {
        for (const trial of planned.filter((each) => !isOver(each))) {
          signal.throwIfAborted();
          if (!(await context.fenced((tx) => startTrial(tx, trial.id)))) continue;
          const result = await run(trial, 1);
          await context.fenced((tx) => finishTrial(tx, trial.id, result));
          done += 1;
          feed.progress(
            "trialling",
            `${planLabel(trial.candidate.plan)}: ${"measured" in result ? `${formatSeconds(result.measured.stepTimeSeconds)} a step` : result.failure.message}`,
            done,
            total,
          );
        }
        // A plan that ran once and then does not, or whose run could not be counted, is not asked a third
        // time.
        const given = new Set<string>();
        for (const begin = performance.now(); performance.now() - begin < 1000 * settings.repeatSeconds;) {
          signal.throwIfAborted();
          const next = trialToRepeat(
            (await listTrials(database.db, job.id)).filter(({ id }) => !given.has(id)),
            repeats,
          );
          if (!next?.measured) break;
          const measured = next.measured;
          const number = runsOf(measured).length + 1;
          const result = await run(next, number);
          if ("failure" in result) {
            given.add(next.id);
            feed.log(
              "warn",
              "trial-runner",
              `${planLabel(next.candidate.plan)}, again: ${result.failure.message}`,
            );
          } else if (
            !(await context.fenced((tx) => repeatTrial(tx, next.id, withRun(measured, result.measured))))
          )
            given.add(next.id);
        }
      };
      const reservation: LaunchReservationOptions = {
        ...settings,
        cluster: job.spec.cluster,
        owner: job.id,
        reserve: (resource, onWait) => context.reserve(resource, onWait),
        confirm: () => context.confirm(),
        use: "measure",
        signal,
        onWait: (message) => feed.progress("trialling", message, done, total, true),
        onNotice: (message) => feed.log("warn", "trial-runner", message),
      };
      if (done < total || trialToRepeat(planned, repeats) !== undefined)
        await whileReserved(reservation, runAll);
      const trials = await listTrials(database.db, job.id);
      const choice = choiceOf(trials);
      if (!choice) return failedJob(job.id, "trialling", noTrialSucceeded(trials));
      const disturbed = disturbedTrialsWords(choice);
      if (disturbed !== undefined) feed.log("warn", "trial-runner", disturbed);
      log.info(
        {
          verdict: choice.verdict,
          within: choice.within,
          noise: choice.noise,
          disturbedPlans: choice.disturbedPlans,
        },
        "a plan was chosen",
      );
      return trainWith(job.id, choice);
    });
  };

const trainWith =
  (jobId: string, choice: Choice): Effect =>
  async (tx) => {
    await updateJob(tx, jobId, { chosen: choice.chosen });
    await transitionJob(tx, { jobId, from: "trialling", to: "running", reason: choiceWords(choice) });
  };
