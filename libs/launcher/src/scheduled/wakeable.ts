/**
 * Pauses that end early when one of some signals is aborted: once for each signal, so that whoever pauses
 * again does so.
 */
export class Wakeable {
  readonly #signals: readonly AbortSignal[];
  #resume: (() => void) | undefined;
  readonly #onAbort = (): void => this.#resume?.();

  constructor(signals: readonly (AbortSignal | undefined)[]) {
    this.#signals = signals.filter((signal) => signal !== undefined);
    for (const signal of this.#signals) signal.addEventListener("abort", this.#onAbort);
  }

  pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer);
        this.#resume = undefined;
        resolve();
      };
      const timer = setTimeout(end, milliseconds);
      this.#resume = end;
    });
  }

  close(): void {
    for (const signal of this.#signals) signal.removeEventListener("abort", this.#onAbort);
  }
}
