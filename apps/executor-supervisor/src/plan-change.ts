import {
  compareSteps,
  comparisonDoubt,
  DriftWatch,
  driftWords,
  FAILURES_OF_PLANS,
  formatPercent,
  formatSeconds,
  formatSignedPercent,
  NOTHING_COMPARED,
  planLabel,
  WARM_UP_STEPS,
  type Comparison,
  type Failure,
  type PlanChange,
  type Replanning,
  type StepMetric,
} from "@internevo/domain";
import type { JobFeed } from "@internevo/stages";
import {
  askForFoundPlan,
  beginPlanChange,
  comparedSteps,
  edgesOfAttempt,
  endPlanChange,
  endPlanChangeWithTraining,
  endSearch,
  findRun,
  isConnectionLoss,
  listPlanChanges,
  openPlanChange,
  pause,
  recordDisturbances,
  storePlanChange,
  type BegunChange,
  type EndOfPlanChange,
  type Database,
  type Transaction,
} from "@internevo/store";
import type { BetterPlan } from "./find-better-plan.ts";

/** Who asks for what nobody asked for. */
const SERVICE = "executor-supervisor";
/** How often a run that trains looks whether its plan is to be changed. */
const LOOK_MILLISECONDS = 1000;

export interface ChangedRun {
  readonly database: Database;
  readonly feed: JobFeed;
  readonly run: { readonly id: string; readonly jobId: string };
  readonly fenced: <R>(work: (tx: Transaction) => Promise<R>) => Promise<R>;
  /** The job's rule; absent: nothing changes without somebody who asks for it. */
  readonly replanning?: { readonly rule: Replanning; readonly steps: number } | undefined;
  /** Measures and searches while no rank runs. @throws the signal's reason when it aborts */
  readonly search: (change: PlanChange, signal: AbortSignal) => Promise<BetterPlan>;
  /** What keeps a change from being looked at while ranks run, but for a database that is away. */
  readonly onError: (error: unknown) => void;
}

/** Why a search ends that nobody waits for any more. */
const TAKEN_BACK = new Error("the search was taken back");

/** What is to become of a change under which the run goes on, by its steps. */
export type Verdict =
  | EndOfPlanChange
  /** Too few steps have run. */
  | undefined;

function wordsOf({ secondsBefore, secondsAfter, measuredGain, steps }: Comparison): string {
  return (
    `a step took ${formatSeconds(secondsBefore ?? 0)} before and takes ${formatSeconds(secondsAfter ?? 0)} now, ` +
    `medians of ${steps} steps: ${formatSignedPercent(measuredGain ?? 0)}`
  );
}

/** Whether a change is not to be kept on a comparison that is in doubt: nobody asked for it but a workload's policy. */
const needsProof = ({ origin }: PlanChange): boolean => origin === "workload";

/**
 * Judges a change by the run's steps. @param isLast no more steps will come @param disturbances what else the hosts did
 */
export function verdictOf(
  change: PlanChange,
  comparison: Comparison,
  isLast = false,
  disturbances: readonly string[] = [],
): Verdict {
  if (comparison.steps < change.compareSteps && !isLast) return undefined;
  const { measuredGain } = comparison;
  if (measuredGain === null)
    return { state: "kept", reason: "there were no steps to compare it with", comparison };
  const figures = wordsOf(comparison);
  const doubt = comparisonDoubt(comparison, disturbances);
  const inDoubt = doubt === undefined ? "" : `; in doubt, since ${doubt}`;
  const words = `${figures}${inDoubt}`;
  if (change.isTrial) return { state: "returned", reason: `tried: ${words}`, comparison };
  if (isLast) return { state: "kept", reason: `training is complete: ${words}`, comparison };
  if (measuredGain < change.gainThreshold)
    return {
      state: "returned",
      reason: `${figures}, below the threshold of ${formatPercent(change.gainThreshold)}${inDoubt}`,
      comparison,
    };
  return doubt !== undefined && needsProof(change)
    ? { state: "returned", reason: `tried: ${words}`, comparison, proposalWaits: true }
    : { state: "kept", reason: words, comparison };
}

/** Changes of a run's plan: what was asked for is made between two attempts, and judged by the steps after it. */
export class PlanChanges {
  readonly #run: ChangedRun;
  #drift: DriftWatch | undefined;
  #lastStep = 0;

  constructor(run: ChangedRun) {
    this.#run = run;
  }

  /** Ranks begin. */
  begin(): void {
    const { replanning } = this.#run;
    this.#drift = replanning && new DriftWatch(replanning.rule);
  }

  /** Ranks that have begun were found again: what they reported before is stored. It reads what is compared. */
  async foundAgain(attempt: number): Promise<void> {
    const { replanning, database, run } = this.#run;
    if (replanning === undefined) return;
    const { compareSteps, lastingSeconds } = replanning.rule;
    const compared = { first: WARM_UP_STEPS + compareSteps, last: compareSteps, lastSeconds: lastingSeconds };
    this.saw(await edgesOfAttempt(database.db, { runId: run.id, attempt }, compared));
  }

  /** What the ranks have reported. */
  saw(steps: readonly Pick<StepMetric, "step" | "stepTimeSeconds">[]): void {
    this.#drift?.add(steps);
    this.#lastStep = steps.at(-1)?.step ?? this.#lastStep;
  }

  /**
   * Stores what else the hosts did while an attempt ran, in sentences: a comparison with its steps is in doubt, whoever
   * judges it.
   */
  sawDisturbances(attempt: number, disturbances: readonly string[]): Promise<void> {
    const { run, fenced } = this.#run;
    return fenced((tx) => recordDisturbances(tx, run.id, attempt, disturbances));
  }

  #open(): Promise<PlanChange | undefined> {
    return openPlanChange(this.#run.database.db, this.#run.run);
  }

  async #verdict(change: PlanChange, isLast = false): Promise<Verdict> {
    // Twice as many as count: those that follow each start of the ranks do not.
    const most = 2 * change.compareSteps + 10;
    const { database, run } = this.#run;
    const { steps, disturbances } = await comparedSteps(database.db, run.id, change, most);
    return verdictOf(change, compareSteps(steps, change), isLast, disturbances);
  }

  /**
   * Looks at what is asked for while ranks run, and keeps what has shown its gain. It never rejects: ranks that train
   * do not end because a change cannot be looked at.
   * @param stop ends the ranks with a checkpoint, so that the plan changes
   */
  async watch(signal: AbortSignal, stop: (why: string) => void): Promise<void> {
    while (!signal.aborted) {
      try {
        const why = await this.#look();
        if (why !== undefined) return stop(why);
      } catch (error) {
        // What is stopped meanwhile says so by itself.
        if (!signal.aborted && !isConnectionLoss(error)) this.#run.onError(error);
      }
      await pause(LOOK_MILLISECONDS, signal);
    }
  }

  /** @returns why the ranks are to stop */
  async #look(): Promise<string | undefined> {
    const change = await this.#open();
    if (change === undefined) return this.#lookAtDrift();
    if (change.state === "searching") return "to measure the cluster anew";
    if (change.state === "asked") return `to change the plan to ${planLabel(change.to.plan)}`;
    const verdict = await this.#verdict(change);
    if (verdict?.state === "returned") return `to go back to the plan ${planLabel(change.from.plan)}`;
    if (verdict) await this.#end(change, verdict);
    return undefined;
  }

  /** Stored before the ranks stop: who goes on after a kill knows why they did. */
  async #lookAtDrift(): Promise<string | undefined> {
    const { replanning, run, database } = this.#run;
    const drift = this.#drift?.drift();
    if (replanning === undefined || drift === undefined) return undefined;
    const { rule, steps } = replanning;
    if (steps - this.#lastStep <= rule.notInLastSteps || (await this.#isTooSoon(rule))) return undefined;
    const candidate = (await findRun(database.db, run.jobId))?.candidate;
    if (candidate === undefined) return undefined;
    const reason = driftWords(drift);
    await this.#run.fenced((tx) =>
      storePlanChange(tx, run, {
        state: "searching",
        reason,
        origin: "drift",
        askedBy: SERVICE,
        from: candidate,
        to: candidate,
        predictedGain: 0,
        gainThreshold: rule.gainThreshold,
        compareSteps: rule.compareSteps,
      }),
    );
    this.#run.feed.log("info", SERVICE, `the steps have changed: ${reason}`);
    return `to measure the cluster anew: ${reason}`;
  }

  /** A look costs minutes of a cluster: the more of them gained nothing, the longer the next one waits. */
  async #isTooSoon({ leastPauseSeconds }: Replanning): Promise<boolean> {
    const { items } = await listPlanChanges(this.#run.database.db, this.#run.run.jobId);
    const looks = items.filter(({ origin }) => origin === "drift");
    const endedAt = looks[0]?.endedAt ?? null;
    if (endedAt === null) return false;
    const gained = looks.findIndex(({ state }) => state === "kept");
    const inVain = gained < 0 ? looks.length : gained;
    return Date.now() < Date.parse(endedAt) + 1000 * leastPauseSeconds * 2 ** inVain;
  }

  /** Ends a search that somebody takes back: the ranks wait for it. It never rejects. */
  async #watchSearch({ id }: PlanChange, searching: AbortController): Promise<void> {
    while (!searching.signal.aborted) {
      await pause(LOOK_MILLISECONDS, searching.signal);
      try {
        const open = searching.signal.aborted ? undefined : await this.#open();
        if (open?.id !== id || open.state !== "searching") searching.abort(TAKEN_BACK);
      } catch (error) {
        if (!isConnectionLoss(error)) this.#run.onError(error);
      }
    }
  }

  /** @returns what was found; undefined where somebody took the search back */
  async #searched(change: PlanChange): Promise<BetterPlan | undefined> {
    const searching = new AbortController();
    const watching = this.#watchSearch(change, searching);
    try {
      return await this.#run.search(change, searching.signal);
    } catch (error) {
      if (error !== TAKEN_BACK) throw error;
      return undefined;
    } finally {
      searching.abort();
      await watching;
    }
  }

  /** @returns the change as it is then; undefined where nothing is to be changed */
  async #search(change: PlanChange): Promise<PlanChange | undefined> {
    const { fenced, feed } = this.#run;
    const better = await this.#searched(change);
    if (better === undefined) {
      feed.log("info", SERVICE, "goes on under its plan: the search was taken back");
      return this.#open();
    }
    const { found, reason, persist } = better;
    const isSearched = await fenced(async (tx) => {
      await persist(tx);
      return found ? askForFoundPlan(tx, change, found) : endSearch(tx, change, reason);
    });
    if (isSearched) feed.log("info", SERVICE, found ? reason : `goes on under its plan: ${reason}`);
    return this.#open();
  }

  async #end(change: PlanChange, verdict: NonNullable<Verdict>): Promise<void> {
    const ended = await this.#run.fenced((tx) => endPlanChange(tx, change, verdict));
    if (!ended) return;
    const { state, reason } = verdict;
    this.#run.feed.log(
      state === "kept" ? "info" : "warn",
      SERVICE,
      state === "kept"
        ? `keeps the plan ${planLabel(change.to.plan)}: ${reason}`
        : `goes back to the plan ${planLabel(change.from.plan)}: ${reason}`,
    );
  }

  /** Between two attempts: makes what was asked for, or goes back. @param next the attempt that begins */
  async settle(next: BegunChange): Promise<void> {
    let change = await this.#open();
    if (change?.state === "searching") change = await this.#search(change);
    if (change?.state === "comparing") {
      const verdict = await this.#verdict(change);
      if (verdict) await this.#end(change, verdict);
    }
    if (change?.state !== "asked") return;
    const asked = change;
    if (await this.#run.fenced((tx) => beginPlanChange(tx, asked, next)))
      this.#run.feed.log(
        "info",
        SERVICE,
        `changes the plan from ${planLabel(asked.from.plan)} to ${planLabel(asked.to.plan)} at step ${next.atStep}`,
      );
  }

  /**
   * Goes back from a plan that ranks have failed with. @returns whether there was one to go back from: then the failure
   * says nothing of the run
   */
  async returnAfter(failure: Failure, isGivenUp: boolean): Promise<boolean> {
    const isOfPlan = (FAILURES_OF_PLANS as readonly string[]).includes(failure.code);
    if (!isOfPlan && !isGivenUp) return false;
    const change = await this.#open();
    if (change?.state !== "comparing") return false;
    const reason = `its ranks failed: ${failure.message}`;
    await this.#end(change, { state: "returned", reason, comparison: NOTHING_COMPARED });
    return true;
  }

  /** Training is complete: nothing is left to change. */
  async close(): Promise<void> {
    const change = await this.#open();
    const verdict = change?.state === "comparing" ? await this.#verdict(change, true) : undefined;
    if (change && verdict) await this.#end(change, verdict);
    await this.#run.fenced((tx) => endPlanChangeWithTraining(tx, this.#run.run.id));
  }
}
