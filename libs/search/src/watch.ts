import { ProblemError } from "@internevo/domain";

/** How a search is watched, and when it ends before it is done. */
export interface WatchOptions {
  /** Called now and then with how far the search is. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  /** Asked now and then; the search ends with the error `unavailable` when it says so. */
  readonly isCancelled?: (() => boolean) | undefined;
  /** Batches and families that are looked at before the search is given up. */
  readonly maximumSteps?: number | undefined;
}

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
  readonly #options: WatchOptions;
  constructor(options: WatchOptions) {
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
