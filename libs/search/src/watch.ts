import { ProblemError } from "@internevo/domain";
import type { SearchOptions } from "./search.ts";

/** Minutes on one core. */
const MAXIMUM_STEPS = 20_000_000;

/** A search that looked at as many batches and families as it may. */
export class SearchLimitError extends ProblemError {
  constructor(most: number) {
    super("job-invalid", `the search was given up after ${most} batches and families of plans`, [
      {
        field: "plan",
        message: "leaves too many plans to be searched",
        remedy: "fix some of their fields in the job, such as plan.dataParallel or plan.microBatchSize",
      },
    ]);
  }
}
const REPORT_EVERY = 1024;

/** Counts what a search does, tells of it, and ends it when it is told to or has no end. */
export class Watch {
  #steps = 0;
  readonly #options: SearchOptions;
  constructor(options: SearchOptions) {
    this.#options = options;
  }

  step(done: number, total: number): void {
    this.#steps += 1;
    if (this.#steps > (this.#options.maximumSteps ?? MAXIMUM_STEPS))
      throw new SearchLimitError(this.#steps - 1);
    if (this.#steps % REPORT_EVERY !== 0) return;
    this.#options.onProgress?.(done, total);
    if (this.#options.isCancelled?.() === true)
      throw new ProblemError("unavailable", "the search was cancelled");
  }
}
