import { ProblemError, type ProblemDetail } from "@internevo/domain";

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

const TOO_MANY: ProblemDetail = {
  field: "plan",
  message: "leaves too many plans to be searched",
  remedy: "fix some of their fields in the job, such as plan.dataParallel or plan.microBatchSize",
};

/** A search that was given up. @param message why */
export const tooManyPlans = (message: string): ProblemError =>
  new ProblemError("job-invalid", message, [TOO_MANY]);

/** Memory that the thread of one search may take; it takes some hundred megabytes at most. */
export const SEARCH_MEGABYTES = 2048;
/** A search whose thread ended for want of it. */
export const searchTooLarge = (): ProblemError =>
  tooManyPlans("the search takes more memory than it may have");

/** A search that looked at as many batches and families as it may. */
export class SearchLimitError extends ProblemError {
  constructor(most: number) {
    super("job-invalid", `the search was given up after ${most} batches and families of plans`, [TOO_MANY]);
  }
}

/** A search that takes longer than {@link boundSearches} lets it. */
export class SearchTimeError extends ProblemError {
  constructor(seconds: number) {
    super("job-invalid", `the search was given up after ${seconds} s`, [TOO_MANY]);
  }
}

const cancelled = (): ProblemError => new ProblemError("unavailable", "the search was cancelled");

const REPORT_EVERY = 1024;
const LOOK_AT_CLOCK_EVERY = 32;
/**
 * Numbers of chunks and of recomputed layers that are looked at take about as long together as one batch or
 * family: in models of many layers there are thousands of them in each.
 */
const LOOKS_A_STEP = 64;

/** Processor time that this thread of Node has taken: what else the machine does counts for nothing. */
export function threadSeconds(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1e6;
}

/** What the searches of a thread may take. */
export interface SearchBound {
  readonly seconds: number;
  /** Seconds since any instant: of the thread's processor time, so that a busy machine changes no answer. */
  readonly clock: () => number;
  /** Asked as often as the clock: ends the searches as {@link WatchOptions.isCancelled} does. */
  readonly isCancelled?: () => boolean;
}
let bound: (SearchBound & { readonly until: number }) | undefined;

/**
 * Lets no search of this thread go on beyond so many seconds from now while the work is done: it ends with
 * {@link SearchTimeError}. The thread does nothing else meanwhile.
 */
export async function boundSearches<T>(
  { seconds, clock, isCancelled }: SearchBound,
  work: () => T | Promise<T>,
): Promise<T> {
  bound = { seconds, clock, until: clock() + seconds, ...(isCancelled ? { isCancelled } : {}) };
  try {
    return await work();
  } finally {
    bound = undefined;
  }
}

/**
 * For what is no search, between its parts: ends it as {@link boundSearches} ends the searches of this thread.
 * @throws ProblemError `unavailable` where nobody waits for it; {@link SearchTimeError}
 */
export function assertWithinBound(): void {
  if (bound === undefined) return;
  if (bound.isCancelled?.() === true) throw cancelled();
  if (bound.clock() > bound.until) throw new SearchTimeError(bound.seconds);
}

/** Counts what a search does, tells of it, and ends it when it is told to or has no end. */
export class Watch {
  #steps = 0;
  #looks = 0;
  #place = { done: 0, total: 1 };
  readonly #options: WatchOptions;
  constructor(options: WatchOptions) {
    this.#options = options;
  }

  /** A batch or family is looked at. */
  step(done: number, total: number): void {
    this.#place = { done, total };
    this.#count();
  }

  /** So many numbers of chunks or of recomputed layers of a family are looked at. */
  look(count: number): void {
    this.#looks += count;
    while (this.#looks >= LOOKS_A_STEP) {
      this.#looks -= LOOKS_A_STEP;
      this.#count();
    }
  }

  #count(): void {
    this.#steps += 1;
    if (this.#steps > (this.#options.maximumSteps ?? MAXIMUM_STEPS))
      throw new SearchLimitError(this.#steps - 1);
    if (this.#steps % LOOK_AT_CLOCK_EVERY === 0) assertWithinBound();
    if (this.#steps % REPORT_EVERY !== 0) return;
    this.#options.onProgress?.(this.#place.done, this.#place.total);
    if (this.#options.isCancelled?.() === true) throw cancelled();
  }
}
