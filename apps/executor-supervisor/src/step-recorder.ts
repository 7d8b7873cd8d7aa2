import { pause } from "@internevo/store";

/**
 * Brings what ranks report of their steps into the database in batches, in the order of the reports: the first at once, what comes within the interval after it
 * together, so that quick steps cost one transaction for many and slow ones are seen when they happen. A
 * write that fails ends the recorder: the caller is told by `onFailure` and stops the ranks.
 */
export class StepRecorder<T> {
  readonly #write: (metrics: readonly T[]) => Promise<void>;
  readonly #onFailure: (error: unknown) => void;
  readonly #intervalMilliseconds: number;
  #hurry = new AbortController();
  #waiting: T[] = [];
  #writing: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(options: {
    write: (metrics: readonly T[]) => Promise<void>;
    onFailure: (error: unknown) => void;
    intervalMilliseconds?: number;
  }) {
    this.#intervalMilliseconds = options.intervalMilliseconds ?? 250;
    this.#write = options.write;
    this.#onFailure = options.onFailure;
  }

  push(report: T): void {
    if (this.#failure) return;
    this.#waiting.push(report);
    this.#writing ??= this.#drain();
  }

  /** Everything that was pushed is stored. @throws what a write threw. */
  async flush(): Promise<void> {
    this.#hurry.abort();
    await this.#writing;
    this.#hurry = new AbortController();
    if (this.#failure) throw this.#failure.error;
  }

  async #drain(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting;
        this.#waiting = [];
        await this.#write(batch);
        await pause(this.#intervalMilliseconds, this.#hurry.signal);
      }
    } catch (error) {
      this.#failure = { error };
      this.#onFailure(error);
    } finally {
      this.#writing = undefined;
    }
  }
}
