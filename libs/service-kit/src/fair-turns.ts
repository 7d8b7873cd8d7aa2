import { ProblemError } from "@internevo/domain";

export interface FairTurnsOptions {
  /** Work that runs at once. */
  readonly atOnce: number;
  /** Work of one owner that runs at once: what others send then finds room. */
  readonly atOnceOfOne: number;
  /** Work of one owner that runs or waits; more is refused. */
  readonly mostOfOne: number;
  /** Work of all owners that waits; more is refused. */
  readonly mostWaiting: number;
}

interface Owner {
  running: number;
  readonly waiting: (() => void)[];
}

/**
 * Lets work begin in turns: the owners that wait take one after the other, each with what it has sent first.
 * So nobody waits for all that somebody else has sent.
 */
export class FairTurns {
  readonly #options: FairTurnsOptions;
  /** In the order of their turns: whoever had one goes to the end. */
  readonly #owners = new Map<string, Owner>();
  #running = 0;
  #waiting = 0;

  constructor(options: FairTurnsOptions) {
    this.#options = options;
  }

  /**
   * @throws ProblemError `rate-limited` when the owner has too much at work, `unavailable` when too many
   * wait; the signal's reason; what the work throws.
   */
  async run<T>(name: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { mostOfOne, mostWaiting } = this.#options;
    signal.throwIfAborted();
    const owner = this.#owners.get(name) ?? { running: 0, waiting: [] };
    if (owner.running + owner.waiting.length >= mostOfOne)
      throw new ProblemError(
        "rate-limited",
        `this token has ${mostOfOne} requests of this kind at work or waiting; try again when one has ended`,
      );
    if (!this.#mayBegin(owner)) {
      if (this.#waiting >= mostWaiting)
        throw new ProblemError(
          "unavailable",
          "too many requests of this kind are at work; try again shortly",
        );
      this.#owners.set(name, owner);
      await this.#turn(owner, signal);
    } else this.#begin(name, owner);
    try {
      return await work();
    } finally {
      owner.running -= 1;
      this.#running -= 1;
      if (owner.running + owner.waiting.length === 0 && this.#owners.get(name) === owner)
        this.#owners.delete(name);
      this.#next();
    }
  }

  #mayBegin(owner: Owner): boolean {
    return this.#running < this.#options.atOnce && owner.running < this.#options.atOnceOfOne;
  }

  #begin(name: string, owner: Owner): void {
    owner.running += 1;
    this.#running += 1;
    this.#owners.delete(name);
    this.#owners.set(name, owner);
  }

  #turn(owner: Owner, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting += 1;
      const leave = (): void => {
        owner.waiting.splice(owner.waiting.indexOf(begin), 1);
        this.#waiting -= 1;
        reject(signal.reason as Error);
      };
      const begin = (): void => {
        signal.removeEventListener("abort", leave);
        this.#waiting -= 1;
        resolve();
      };
      owner.waiting.push(begin);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #next(): void {
    for (const [name, owner] of [...this.#owners]) {
      if (owner.waiting.length === 0 || !this.#mayBegin(owner)) continue;
      const begin = owner.waiting.shift();
      this.#begin(name, owner);
      begin?.();
    }
  }
}
