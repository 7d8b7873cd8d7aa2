import {
  compareSteps,
  FAILURES_OF_PLANS,
  formatPercent,
  formatSeconds,
  formatSignedPercent,
  planLabel,
  type Comparison,
  type Failure,
  type PlanChange,
} from "@internevo/domain";
import type { JobFeed } from "@internevo/stages";
import {
  beginPlanChange,
  endPlanChange,
  isConnectionLoss,
  leavePlanChange,
  openPlanChange,
  pause,
  stepsBetween,
  type BegunChange,
  type Database,
  type Transaction,
} from "@internevo/store";

/** How often a run that trains looks whether its plan is to be changed. */
const LOOK_MILLISECONDS = 1000;

export interface ChangedRun {
  readonly database: Database;
  readonly feed: JobFeed;
  readonly run: { readonly id: string; readonly jobId: string };
  readonly fenced: <R>(work: (tx: Transaction) => Promise<R>) => Promise<R>;
  /** What keeps a change from being looked at while ranks run, but for a database that is away. */
  readonly onError: (error: unknown) => void;
}

/** What is to become of a change under which the run goes on, by its steps. */
export type Verdict =
  | { readonly state: "kept" | "returned"; readonly reason: string; readonly comparison: Comparison }
  /** Too few steps have run. */
  | undefined;

function wordsOf({ secondsBefore, secondsAfter, measuredGain, steps }: Comparison): string {
  return (
    `a step took ${formatSeconds(secondsBefore ?? 0)} before and takes ${formatSeconds(secondsAfter ?? 0)} now, ` +
    `medians of ${steps} steps: ${formatSignedPercent(measuredGain ?? 0)}`
  );
}

/** Judges a change by the run's steps. @param isLast no more steps will come */
export function verdictOf(change: PlanChange, comparison: Comparison, isLast = false): Verdict {
  if (comparison.steps < change.compareSteps && !isLast) return undefined;
  const { measuredGain } = comparison;
  if (measuredGain === null)
    return { state: "kept", reason: "there were no steps to compare it with", comparison };
  const words = wordsOf(comparison);
  if (isLast) return { state: "kept", reason: `training is complete: ${words}`, comparison };
  return measuredGain < change.gainThreshold
    ? {
        state: "returned",
        reason: `${words}, below the threshold of ${formatPercent(change.gainThreshold)}`,
        comparison,
      }
    : { state: "kept", reason: words, comparison };
}

const NOTHING: Comparison = { secondsBefore: null, secondsAfter: null, measuredGain: null, steps: 0 };

/** Changes of a run's plan: what was asked for is made between two attempts, and judged by the steps after it. */
export class PlanChanges {
  readonly #run: ChangedRun;

  constructor(run: ChangedRun) {
    this.#run = run;
  }

  #open(): Promise<PlanChange | undefined> {
    return openPlanChange(this.#run.database.db, this.#run.run);
  }

  async #verdict(change: PlanChange, isLast = false): Promise<Verdict> {
    // Twice as many as count: those that follow each start of the ranks do not.
    const most = 2 * change.compareSteps + 10;
    const at = change.appliedAtStep ?? 0;
    const steps = await stepsBetween(this.#run.database.db, this.#run.run.id, {
      first: at - most,
      last: at + most,
    });
    return verdictOf(change, compareSteps(steps, change), isLast);
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
    if (change === undefined) return undefined;
    if (change.state === "asked") return `to change the plan to ${planLabel(change.to.plan)}`;
    const verdict = await this.#verdict(change);
    if (verdict?.state === "returned") return `to go back to the plan ${planLabel(change.from.plan)}`;
    if (verdict) await this.#end(change, verdict);
    return undefined;
  }

  async #end(change: PlanChange, verdict: NonNullable<Verdict>): Promise<void> {
    const ended = await this.#run.fenced((tx) => endPlanChange(tx, change, verdict));
    if (!ended) return;
    const { state, reason } = verdict;
    this.#run.feed.log(
      state === "kept" ? "info" : "warn",
      "executor-supervisor",
      state === "kept"
        ? `keeps the plan ${planLabel(change.to.plan)}: ${reason}`
        : `goes back to the plan ${planLabel(change.from.plan)}: ${reason}`,
    );
  }

  /** Between two attempts: makes what was asked for, or goes back. @param next the attempt that begins */
  async settle(next: BegunChange): Promise<void> {
    const change = await this.#open();
    if (change?.state === "comparing") {
      const verdict = await this.#verdict(change);
      if (verdict) await this.#end(change, verdict);
    }
    if (change?.state !== "asked") return;
    if (await this.#run.fenced((tx) => beginPlanChange(tx, change, next)))
      this.#run.feed.log(
        "info",
        "executor-supervisor",
        `changes the plan from ${planLabel(change.from.plan)} to ${planLabel(change.to.plan)} at step ${next.atStep}`,
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
    await this.#end(change, { state: "returned", reason, comparison: NOTHING });
    return true;
  }

  /** Training is complete: nothing is left to change. */
  async close(): Promise<void> {
    const change = await this.#open();
    const verdict = change?.state === "comparing" ? await this.#verdict(change, true) : undefined;
    if (change && verdict) await this.#end(change, verdict);
    await this.#run.fenced((tx) =>
      leavePlanChange(tx, this.#run.run.id, "dismissed", "training was complete first"),
    );
  }
}
