import type { StepMetric } from "@internevo/domain";

/**
 * Brings steps into the database in batches: at once when nothing is under way, else with the next write, so that quick steps cost
 * one transaction for many and slow ones are seen when they happen. A write that fails ends the recorder: the caller is told
 * by `onFailure` and stops the ranks.
 */
export class StepRecorder {
  readonly #write: (metrics: readonly StepMetric[]) => Promise<void>;
  readonly #onFailure: (error: unknown) => void;
  #waiting: StepMetric[] = [];
  #writing: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(options: { write: (metrics: readonly StepMetric[]) => Promise<void>; onFailure: (error: unknown) => void }) {
    this.#write = options.write;
    this.#onFailure = options.onFailure;
  }

  push(metric: StepMetric): void {
    if (this.#failure) return;
    this.#waiting.push(metric);
    this.#writing ??= this.#drain();
  }

  /** Everything that was pushed is stored. @throws what a write threw. */
  async flush(): Promise<void> {
    await this.#writing;
    if (this.#failure) throw this.#failure.error;
  }

  async #drain(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        const batch = this.#waiting;
        this.#waiting = [];
        await this.#write(batch);
      }
    } catch (error) {
      this.#failure = { error };
      this.#onFailure(error);
    } finally {
      this.#writing = undefined;
    }
  }
}
