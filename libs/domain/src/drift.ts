import { formatInteger, formatPercent } from "./figures.ts";
import { WARM_UP_STEPS } from "./plan-change.ts";
import { quantile } from "./trial-statistics.ts";
import { formatSeconds } from "./units.ts";

/** When a run's steps say that its cluster is not what it was. */
export interface DriftRule {
  /** Change of the step time that counts, as a fraction of it. */
  readonly driftThreshold: number;
  /** Steps of each median. */
  readonly compareSteps: number;
  /** How long the latest steps have to take together. */
  readonly lastingSeconds: number;
}

/** How long a step took when the ranks had begun, and how long it takes now. */
export interface Drift {
  readonly secondsThen: number;
  readonly secondsNow: number;
  /** `secondsNow / secondsThen − 1`: above 0 where the run has become slower. */
  readonly change: number;
  readonly atStep: number;
}

/** A few slow steps are no drift: three quarters of the latest have to be beyond the threshold. */
const BEYOND = 3 / 4;

/**
 * Watches the step times of one start of the ranks: their first steps, without those that warm up, are what later
 * ones are compared with. Steps have to come in order; what comes again is left out.
 */
export class DriftWatch {
  readonly #rule: DriftRule;
  readonly #first: number[] = [];
  /** As many as are compared, or as take so long as a drift has to last. */
  #latest: number[] = [];
  #latestSeconds = 0;
  #seen = 0;
  #lastStep = 0;

  constructor(rule: DriftRule) {
    this.#rule = rule;
  }

  add(steps: readonly { readonly step: number; readonly stepTimeSeconds: number }[]): void {
    const { compareSteps, lastingSeconds } = this.#rule;
    for (const { step, stepTimeSeconds } of steps) {
      if (step <= this.#lastStep) continue;
      this.#lastStep = step;
      this.#seen += 1;
      if (this.#seen <= WARM_UP_STEPS) continue;
      if (this.#first.length < compareSteps) this.#first.push(stepTimeSeconds);
      else {
        this.#latest.push(stepTimeSeconds);
        this.#latestSeconds += stepTimeSeconds;
      }
    }
    let surplus = 0;
    for (const seconds of this.#latest) {
      if (this.#latest.length - surplus <= compareSteps || this.#latestSeconds - seconds < lastingSeconds)
        break;
      this.#latestSeconds -= seconds;
      surplus += 1;
    }
    this.#latest = this.#latest.slice(surplus);
  }

  /** @returns undefined while the steps are as they were, or too few */
  drift(): Drift | undefined {
    const { compareSteps, driftThreshold, lastingSeconds } = this.#rule;
    if (this.#latest.length < compareSteps || this.#latestSeconds < lastingSeconds) return undefined;
    const secondsThen = quantile(this.#first, 0.5);
    const isSlower = quantile(this.#latest, 1 - BEYOND) > secondsThen * (1 + driftThreshold);
    const isFaster = quantile(this.#latest, BEYOND) < secondsThen * (1 - driftThreshold);
    if (!isSlower && !isFaster) return undefined;
    const secondsNow = quantile(this.#latest, 0.5);
    return { secondsThen, secondsNow, change: secondsNow / secondsThen - 1, atStep: this.#lastStep };
  }
}

/** Why a run looks for another plan, in words. */
export const driftWords = ({ secondsThen, secondsNow, change, atStep }: Drift): string =>
  `at step ${formatInteger(atStep)} a step takes ${formatSeconds(secondsNow)}, ` +
  `${formatPercent(Math.abs(change))} ${change > 0 ? "longer" : "less"} than the ${formatSeconds(secondsThen)} with which the ranks began`;
