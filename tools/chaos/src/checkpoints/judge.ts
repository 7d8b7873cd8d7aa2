import { join } from "node:path";
import type { Failure } from "@internevo/domain";
import type { NativeError } from "@internevo/launcher";
import { DEADLINE_SECONDS, type Attempt } from "./attempt.ts";
import { checkpointSteps, digestsOf, leftovers, verify } from "./disk.ts";
import type { Reference } from "./reference.ts";
import { STEPS } from "./settings.ts";

/** What is promised of another plan: its sums have another order. */
export const RELATIVE_TOLERANCE = 1e-6;

/** Finds what breaks the promises; an empty list is a good run. */
export class Judge {
  readonly violations: string[] = [];
  /** Largest relative difference of a loss under another plan. */
  largestDifference = 0;
  readonly #reference: Reference;
  readonly #directory: string;

  constructor(reference: Reference, directory: string) {
    this.#reference = reference;
    this.#directory = directory;
  }

  expect(good: boolean, violation: string): void {
    if (!good) this.violations.push(violation);
  }

  /** Of every attempt: no hang, no rank left, no step that differs, and it began where the disk says. */
  attempt(
    { outcome, ranksLeft, steps, resumedFromStep }: Attempt,
    newestBefore: number,
    exact: boolean,
  ): void {
    this.expect(
      !(outcome.status === "failed" && outcome.failure.code === "timeout"),
      `hung: did not end within ${DEADLINE_SECONDS} s`,
    );
    this.expect(ranksLeft === 0, `${ranksLeft} ranks were left`);
    if (resumedFromStep !== null)
      this.expect(
        resumedFromStep === newestBefore,
        `went on from step ${resumedFromStep}; the newest checkpoint was of step ${newestBefore}`,
      );
    for (const { step, loss, gradientNorm } of steps) {
      const expected = this.#reference.steps[step - 1];
      if (!expected) this.violations.push(`made a step ${step}`);
      else if (exact)
        this.expect(
          loss === expected.loss && gradientNorm === expected.gradientNorm,
          `loss ${loss} of step ${step} is not ${expected.loss}, bit by bit`,
        );
      else {
        const difference = Math.abs(loss - expected.loss) / expected.loss;
        this.largestDifference = Math.max(this.largestDifference, difference);
        this.expect(
          difference <= RELATIVE_TOLERANCE,
          `loss ${loss} of step ${step} is not ${expected.loss} within ${RELATIVE_TOLERANCE}: ${difference}`,
        );
      }
    }
  }

  /** What was said to be saved is there, or something newer; what has a final name is whole. */
  async disk(saved: readonly number[]): Promise<void> {
    const newest = checkpointSteps(this.#directory).at(-1) ?? 0;
    this.expect(
      newest >= Math.max(0, ...saved),
      `the checkpoint of step ${Math.max(0, ...saved)} was said to be in place; the newest is of step ${newest}`,
    );
    if (newest === 0) return;
    const error = await verify(join(this.#directory, `step-${newest}`));
    this.expect(error === undefined, `the newest checkpoint is not whole: ${error}`);
  }

  /** Of the last attempt: it is done, and what it leaves is the undisturbed run's. */
  async end(last: Attempt, keepLast: number, exact: boolean): Promise<void> {
    this.expect(
      last.outcome.status === "completed",
      `the last attempt did not complete: ${JSON.stringify(last.outcome)}`,
    );
    const steps = checkpointSteps(this.#directory);
    this.expect(steps.at(-1) === STEPS, `the last checkpoint is of step ${steps.at(-1)}`);
    this.expect(steps.length <= keepLast, `${steps.length} checkpoints are kept instead of ${keepLast}`);
    const left = leftovers(this.#directory);
    this.expect(left.length === 0, `left over: ${left.join(", ")}`);
    if (steps.at(-1) !== STEPS) return;
    const path = join(this.#directory, `step-${STEPS}`);
    if (exact) {
      const digests = digestsOf(path);
      this.expect(
        JSON.stringify(digests) === JSON.stringify(this.#reference.finalDigests),
        `the last checkpoint's files are not the undisturbed run's, bit by bit: ${Object.keys(digests)
          .filter((name) => digests[name] !== this.#reference.finalDigests[name])
          .join(", ")}`,
      );
    } else {
      const error = await verify(path);
      this.expect(error === undefined, `the last checkpoint is not whole: ${error}`);
    }
  }

  /** A refusal is clear: it names a file or directory of the checkpoints, what is wrong, and what to do. */
  refusal(
    error: Pick<NativeError, "message" | "remedy"> | Failure,
    wrong: RegExp,
    path = this.#directory,
  ): void {
    this.expect(error.message.includes(path), `a refusal does not name ${path}: ${error.message}`);
    this.expect(
      wrong.test(error.message),
      `a refusal does not say what is wrong (${wrong.source}): ${error.message}`,
    );
    this.expect((error.remedy ?? "") !== "", `a refusal names no remedy: ${error.message}`);
  }
}
