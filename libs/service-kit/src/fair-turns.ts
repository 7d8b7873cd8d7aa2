import { ProblemError } from "@internevo/domain";

export interface FairTurnsOptions {
  /** Work that runs at once. */
  readonly atOnce: number;
  /** Work of one owner that runs at once: what others send then finds room. */
  readonly atOnceOfOne: number;
  /** Work of one owner that runs or waits; more is refused. Of a group it is twice as much. */
  readonly mostOfOne: number;
  /** Work of all owners that waits; more is refused. */
  readonly mostWaiting: number;
}

interface Group {
  running: number;
  /** Work that runs or waits. */
  all: number;
}

interface Owner {
  readonly group: Group;
  running: number;
  readonly waiting: (() => void)[];
}

/**
 * Lets work begin in turns: the owners that wait take one after the other, each with what it has sent first.
 * So nobody waits for all that somebody else has sent. Owners of one group, such as the tokens of a project, have no
 * more at once together than one of them.
 */
export class FairTurns {
  readonly #options: FairTurnsOptions;
  /** In the order of their turns: whoever had one goes to the end. */
  readonly #owners = new Map<string, Owner>();
  readonly #groups = new Map<string, Group>();
  #running = 0;
  #waiting = 0;

  constructor(options: FairTurnsOptions) {
    this.#options = options;
  }

  /**
   * @throws ProblemError `rate-limited` when the owner has too much at work, `unavailable` when too many
   * wait; the signal's reason; what the work throws.
   */
  async run<T>(name: string, signal: AbortSignal, work: () => Promise<T>, groupName = name): Promise<T> {
    const { mostOfOne, mostWaiting } = this.#options;
    signal.throwIfAborted();
    const group = this.#groups.get(groupName) ?? { running: 0, all: 0 };
    const owner = this.#owners.get(name) ?? { group, running: 0, waiting: [] };
    const refused = (whose: string, most: number): ProblemError =>
      new ProblemError(
        "rate-limited",
        `${whose} ${most} requests of this kind at work or waiting; try again when one has ended`,
      );
    if (owner.running + owner.waiting.length >= mostOfOne) throw refused("this token has", mostOfOne);
    if (group.all >= 2 * mostOfOne) throw refused("the tokens of this project have", 2 * mostOfOne);
    const mayBegin = this.#mayBegin(owner);
    if (!mayBegin && this.#waiting >= mostWaiting)
      throw new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly");
    group.all += 1;
    this.#groups.set(groupName, group);
    try {
      if (mayBegin) this.#begin(name, owner);
      else {
        this.#owners.set(name, owner);
        await this.#turn(owner, signal);
      }
      return await this.#work(name, owner, work);
    } finally {
      group.all -= 1;
      if (group.all === 0) this.#groups.delete(groupName);
    }
  }

  async #work<T>(name: string, owner: Owner, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } finally {
      owner.running -= 1;
      owner.group.running -= 1;
      this.#running -= 1;
      if (owner.running + owner.waiting.length === 0 && this.#owners.get(name) === owner)
        this.#owners.delete(name);
      this.#next();
    }
  }

  #mayBegin({ running, group }: Owner): boolean {
    const { atOnce, atOnceOfOne } = this.#options;
    return this.#running < atOnce && running < atOnceOfOne && group.running < atOnceOfOne;
  }

  #begin(name: string, owner: Owner): void {
    owner.running += 1;
    owner.group.running += 1;
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
