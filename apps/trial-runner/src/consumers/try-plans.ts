import {
  choiceOf,
  choiceWords,
  DEFAULT_TRIAL_REPEATS,
  disturbedTrialsWords,
  formatCounted,
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
  assertPrepared,
  failedJob,
  heldJob,
  launchDirectory,
  notFiniteTwice,
  preparingFor,
  prepareTraining,
  recordTimeline,
  whileReserved,
  type LaunchReservationOptions,
  type PreparedTraining,
  retryLostRanks,
  tooManyLost,
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

const lostRanks = ({ failure }: Pick<Trial, "failure">): boolean => failure?.code === "rank-lost";

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

type StageFeed = Parameters<Parameters<typeof withStageFeed>[2]>[0];

/** The trials of one job, one after the other. */
class JobTrials {
  readonly #settings: TrialSettings;
  readonly #database: Database;
  readonly #context: CommandContext<"job.trial">;
  readonly #feed: StageFeed;
  readonly #prepared: PreparedTraining;
  readonly #repeats: number;
  #planned: readonly Trial[] = [];
  #done = 0;
  #lost: Failure | undefined;
  #notFinite: Failure | undefined;

  constructor(
    { settings, database }: { readonly settings: TrialSettings; readonly database: Database },
    context: CommandContext<"job.trial">,
    feed: StageFeed,
    prepared: PreparedTraining,
  ) {
    this.#settings = settings;
    this.#database = database;
    this.#context = context;
    this.#feed = feed;
    this.#prepared = prepared;
    this.#repeats = context.job.spec.trials.repeats ?? DEFAULT_TRIAL_REPEATS; // jobs of before could not say it
  }

  /**
   * Why trials ended before all had run: the ranks of one plan after another were lost, so that it is not the
   * plans.
   */
  get lost(): Failure | undefined {
    return this.#lost;
  }

  /** Why trials ended before all had run: the loss was not finite, and again when its step was repeated. */
  get notFinite(): Failure | undefined {
    return this.#notFinite;
  }

  /** Runs what is still to be run. @returns the trials, with what they measured. */
  async tried(): Promise<readonly Trial[]> {
    const { id } = this.#context.job;
    this.#planned = await listTrials(this.#database.db, id);
    this.#done = this.#planned.filter(isOver).length;
    if (this.#done < this.#planned.length || trialToRepeat(this.#planned, this.#repeats) !== undefined)
      await whileReserved(this.#reservation(), async () => {
        await this.#runFirst();
        if (this.#lost === undefined && this.#notFinite === undefined) await this.#repeat();
      });
    return listTrials(this.#database.db, id);
  }

  #reservation(): LaunchReservationOptions {
    const { job, signal, giveWay, log } = this.#context;
    return {
      ...this.#settings,
      cluster: job.spec.cluster,
      claimHosts: (hosts) => this.#context.claimHosts(hosts),
      confirm: () => this.#context.confirm(),
      use: "measure",
      signal: AbortSignal.any([signal, giveWay]),
      onWait: (message) => this.#progress(message, true),
      onNotice: (message) => this.#feed.log("warn", "trial-runner", message),
      onDetails: (message) => log.info(message),
    };
  }

  #progress(message: string, waits?: boolean): void {
    this.#feed.progress("trialling", message, this.#done, this.#planned.length, waits);
  }

  /** Between two runs a job gives way: none is lost, and each has its bound. */
  #throwIfStopped(): void {
    this.#context.signal.throwIfAborted();
    this.#context.giveWay.throwIfAborted();
  }

  /** Every plan once. */
  async #runFirst(): Promise<void> {
    let lostBefore = false;
    for (const trial of this.#planned.filter((each) => !isOver(each))) {
      this.#throwIfStopped();
      if (!(await this.#context.fenced((tx) => startTrial(tx, trial.id)))) continue;
      const result = await this.#run(trial, 1);
      await this.#context.fenced((tx) => finishTrial(tx, trial.id, result));
      this.#done += 1;
      const came =
        "measured" in result
          ? `${formatSeconds(result.measured.stepTimeSeconds)} a step`
          : result.failure.message;
      this.#progress(`${planLabel(trial.candidate.plan)}: ${came}`);
      if (this.#notFinite !== undefined) return;
      const lost = "failure" in result && lostRanks(result) ? result.failure : undefined;
      if (lost && lostBefore) return void (this.#lost = lost);
      lostBefore = lost !== undefined;
    }
  }

  /** Plans that the runs do not tell apart run again, within the time that is given for it. */
  async #repeat(): Promise<void> {
    const { job } = this.#context;
    // A plan that ran once and then does not, or whose run could not be counted, is not asked a third time.
    const given = new Set<string>();
    const begin = performance.now();
    while (performance.now() - begin < 1000 * this.#settings.repeatSeconds) {
      this.#throwIfStopped();
      const next = trialToRepeat(
        (await listTrials(this.#database.db, job.id)).filter(({ id }) => !given.has(id)),
        this.#repeats,
      );
      if (!next?.measured) break;
      const measured = next.measured;
      const result = await this.#run(next, runsOf(measured).length + 1);
      if ("failure" in result) {
        given.add(next.id);
        const label = planLabel(next.candidate.plan);
        this.#feed.log("warn", "trial-runner", `${label}, again: ${result.failure.message}`);
      } else if (
        !(await this.#context.fenced((tx) => repeatTrial(tx, next.id, withRun(measured, result.measured))))
      )
        given.add(next.id);
    }
  }

  /** One run of a plan. `number` counts from 1; only the first run records its timeline. */
  async #run(trial: Trial, number: number): Promise<Awaited<ReturnType<typeof runTrial>>> {
    const { plan, rank } = trial.candidate;
    const label = planLabel(plan);
    const said = number === 1 ? label : `${label}, again`;
    const launch = await this.#launch(trial, number, said);
    let result = await this.#throughLostRanks(launch, said);
    if ("failure" in result && result.failure.code === "not-finite") {
      const first = result;
      this.#feed.log("warn", "trial-runner", `${said}: ${first.failure.message}: repeated once`);
      result = await this.#throughLostRanks(launch, said);
      // Every plan computes the same losses, so that another trial would end alike.
      this.#notFinite = "failure" in result ? notFiniteTwice(first, result) : undefined;
      if ("failure" in result && this.#notFinite !== undefined)
        result = { ...result, failure: this.#notFinite };
    }
    const came =
      "measured" in result
        ? { stepTimeSeconds: result.measured.stepTimeSeconds }
        : { failure: result.failure };
    this.#context.log.info({ trial: rank, plan: label, run: number, ...came }, "a trial ended");
    return result;
  }

  #throughLostRanks(
    launch: Parameters<typeof runTrial>[0],
    said: string,
  ): Promise<Awaited<ReturnType<typeof runTrial>>> {
    return retryLostRanks({
      launch: () => runTrial(launch),
      failureOf: (ended) => ("failure" in ended ? ended.failure : undefined),
      limit: this.#settings.lostRankLimit,
      signal: this.#context.signal,
      onRetry: (failure, inSeconds) =>
        this.#feed.log(
          "warn",
          "trial-runner",
          `${said}: ${failure.message}: tried again in ${formatCounted(inSeconds, "second")}`,
        ),
    });
  }

  async #launch({ candidate }: Trial, number: number, said: string): Promise<Parameters<typeof runTrial>[0]> {
    const { job, signal } = this.#context;
    const { dataDirectory } = this.#settings;
    const trial = `trial-${candidate.rank}`;
    return {
      ...this.#settings,
      spec: job.spec,
      plan: candidate.plan,
      dataset: this.#prepared.dataset,
      timeline:
        number === 1
          ? await recordTimeline(dataDirectory, job.id, trial, timelineOfTrial(job.spec))
          : undefined,
      runDirectory: launchDirectory(dataDirectory, job.spec.cluster, job.id, "trials"),
      label: number === 1 ? `trial ${candidate.rank}` : `trial ${candidate.rank}, run ${number}`,
      signal,
      confirm: async () => {
        await assertPrepared(this.#settings, job.spec, this.#prepared);
        await this.#context.confirm();
      },
      onQueue: (message, waits) => this.#progress(`${said}: ${message}`, waits),
      onStep: (step, steps) => this.#progress(`${said}: step ${step} of ${steps}`),
      onLog: (line) => this.#feed.log("warn", "internevo-trainer", line),
    };
  }
}

/**
 * Tries the best plans for real, one after the other. Plans that the runs do not tell apart, and those that
 * were disturbed, run again within a budget; then `choiceOf` says which one trains. A trial that was
 * interrupted is tried again, and counted once. A plan whose ranks are lost in every attempt fails, as the
 * plan may be why; when the next one's are lost too, the job is held.
 */
export const tryPlans =
  (settings: TrialSettings, database: Database) =>
  async (context: CommandContext<"job.trial">): Promise<Effect> => {
    const { job, log } = context;
    return withStageFeed(context, "trialling", async (feed) => {
      const preparing = preparingFor(job, database, context.signal);
      const prepared = await prepareTraining(settings, database, job, preparing);
      const jobTrials = new JobTrials({ settings, database }, context, feed, prepared);
      const trials = await jobTrials.tried();
      if (jobTrials.notFinite) return failedJob(job.id, "trialling", jobTrials.notFinite);
      const choice = choiceOf(trials);
      const lost = jobTrials.lost ?? (choice ? undefined : trials.find(lostRanks)?.failure);
      if (lost) {
        log.warn({ failure: lost }, "ranks of trials were lost again and again");
        return heldJob(job.id, "trialling", tooManyLost(settings.lostRankLimit, "a measured trial", lost));
      }
      if (!choice) return failedJob(job.id, "trialling", noTrialSucceeded(trials));
      const disturbed = disturbedTrialsWords(choice);
      if (disturbed !== undefined) feed.log("warn", "trial-runner", disturbed);
      const { verdict, within, noise, disturbedPlans } = choice;
      log.info({ verdict, within, noise, disturbedPlans }, "a plan was chosen");
      return trainWith(job.id, choice);
    });
  };

const trainWith =
  (jobId: string, choice: Choice): Effect =>
  async (tx) => {
    await updateJob(tx, jobId, { chosen: choice.chosen });
    await transitionJob(tx, { jobId, from: "trialling", to: "running", reason: choiceWords(choice) });
  };
