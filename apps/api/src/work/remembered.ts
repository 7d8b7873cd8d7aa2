import { unlessAborted } from "./when-aborted.ts";

interface AtWork<T> {
  readonly answer: Promise<T>;
  readonly nobodyWaits: AbortController;
  waiting: number;
}

/**
 * Answers of pure work by key: what is at work is not begun again for whoever asks the same meanwhile, and
 * the latest answers are kept. Work is aborted when nobody waits for it any more; a failure is told to all
 * who wait, and not kept.
 */
export class Remembered<T> {
  readonly #kept = new Map<string, T>();
  readonly #atWork = new Map<string, AtWork<T>>();
  readonly #most: number;

  /** @param most answers that are kept. */
  constructor(most: number) {
    this.#most = most;
  }

  /**
   * @param onWait told before it waits. @throws the signal's reason when it aborts, though others may go on waiting;
   * what the work threw.
   */
  async get(
    key: string,
    work: (signal: AbortSignal) => Promise<T>,
    signal: AbortSignal | undefined,
    onWait: () => void = () => undefined,
  ): Promise<T> {
    signal?.throwIfAborted();
    const kept = this.#kept.get(key);
    if (kept !== undefined) {
      this.#keep(key, kept);
      return kept;
    }
    onWait();
    const own = this.#atWork.get(key) ?? this.#begin(key, work);
    own.waiting += 1;
    try {
      return await (signal === undefined ? own.answer : unlessAborted(signal, own.answer));
    } finally {
      own.waiting -= 1;
      if (own.waiting === 0) {
        if (this.#atWork.get(key) === own) this.#atWork.delete(key);
        own.nobodyWaits.abort();
      }
    }
  }

  #begin(key: string, work: (signal: AbortSignal) => Promise<T>): AtWork<T> {
    const nobodyWaits = new AbortController();
    const answer = work(nobodyWaits.signal);
    const begun: AtWork<T> = { answer, nobodyWaits, waiting: 0 };
    this.#atWork.set(key, begun);
    answer.then(
      (value) => this.#keep(key, value),
      // Whoever waits is told; when nobody does, it was ended for that.
      () => undefined,
    );
    return begun;
  }

  #keep(key: string, value: T): void {
    this.#kept.delete(key);
    this.#kept.set(key, value);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > this.#most && oldest !== undefined) this.#kept.delete(oldest);
  }
}
