import { ProblemError } from "@internevo/domain";

export interface FairTurnsOptions {
  /** Work that runs at once. */
  readonly atOnce: number;
  /** Work of one owner that runs at once: what others send then finds room. */
  readonly atOnceOfOne: number;
  /** Work of one group that runs at once. Default: as of one owner. */
  readonly atOnceOfGroup?: number;
  /**
   * Work of one owner that runs or waits; more is refused. Of a group it is twice as much, but whoever has less
   * than may run at once is not refused for what others of the group have.
   */
  readonly mostOfOne: number;
  /** Work of all owners that waits; more is refused. For whoever has little, as above, it is twice as much. */
  readonly mostWaiting: number;
}

export interface TurnOptions {
  /** Default: the owner is a group by itself. */
  readonly groupName?: string;
  /** It has had a turn, and goes on: it is not refused, and stands before what its owner has not begun. */
  readonly isBack?: boolean;
}

interface Group {
  running: number;
  /** Work that runs or waits. */
  all: number;
}

interface Owner {
  readonly group: Group;
  running: number;
  /** In the order of their turns. */
  readonly waiting: Waiting[];
}

interface Waiting {
  readonly begin: () => void;
  readonly isBack: boolean;
}

/**
 * Lets work begin in turns: the owners that wait take one after the other, each with what it has sent first.
 * So nobody waits for all that somebody else has sent. Owners of one group, such as the tokens of a project, have
 * bounds together.
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
    signal.throwIfAborted();
    const end = this.takeNow(name, { groupName }) ?? (await this.take(name, signal, { groupName }));
    try {
      return await work();
    } finally {
      end();
    }
  }

  /**
   * Resolves when it is the owner's turn. @returns what ends the turn; calling it again does nothing @throws as
   * {@link run}
   */
  async take(name: string, signal: AbortSignal, options: TurnOptions = {}): Promise<() => void> {
    signal.throwIfAborted();
    const begun = this.takeNow(name, options);
    if (begun) return begun;
    const { groupName = name, isBack = false } = options;
    const owner = this.#ownerOf(name, groupName);
    this.#enter(groupName, owner);
    this.#owners.set(name, owner);
    try {
      await this.#turn(owner, signal, isBack);
    } catch (error) {
      this.#leave(name, groupName, owner);
      throw error;
    }
    return this.#ending(name, groupName, owner);
  }

  /** The same where the turn is now; else undefined. @throws as {@link run} */
  takeNow(name: string, { groupName = name, isBack = false }: TurnOptions = {}): (() => void) | undefined {
    const owner = this.#ownerOf(name, groupName);
    const mayBegin = this.#mayBegin(owner);
    if (!isBack) this.#assertRoom(owner, mayBegin);
    if (!mayBegin) return undefined;
    this.#enter(groupName, owner);
    this.#begin(name, owner);
    return this.#ending(name, groupName, owner);
  }

  #ownerOf(name: string, groupName: string): Owner {
    const group = this.#groups.get(groupName) ?? { running: 0, all: 0 };
    return this.#owners.get(name) ?? { group, running: 0, waiting: [] };
  }

  #enter(groupName: string, { group }: Owner): void {
    group.all += 1;
    this.#groups.set(groupName, group);
  }

  #leave(name: string, groupName: string, owner: Owner): void {
    owner.group.all -= 1;
    if (owner.group.all === 0) this.#groups.delete(groupName);
    if (owner.running + owner.waiting.length === 0 && this.#owners.get(name) === owner)
      this.#owners.delete(name);
  }

  #ending(name: string, groupName: string, owner: Owner): () => void {
    let hasEnded = false;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      owner.running -= 1;
      owner.group.running -= 1;
      this.#running -= 1;
      this.#leave(name, groupName, owner);
      this.#next();
    };
  }

  #assertRoom(owner: Owner, mayBegin: boolean): void {
    const { atOnceOfOne, mostOfOne, mostWaiting } = this.#options;
    const has = owner.running + owner.waiting.length;
    const hasLittle = has < atOnceOfOne;
    const refused = (whose: string, most: number): ProblemError =>
      new ProblemError(
        "rate-limited",
        `${whose} ${most} requests of this kind at work or waiting; try again when one has ended`,
      );
    if (has >= mostOfOne) throw refused("you have", mostOfOne);
    if (!hasLittle && owner.group.all >= 2 * mostOfOne)
      throw refused("the tokens of this project have", 2 * mostOfOne);
    if (!mayBegin && this.#waiting >= (hasLittle ? 2 : 1) * mostWaiting)
      throw new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly");
  }

  #mayBegin({ running, group }: Owner): boolean {
    const { atOnce, atOnceOfOne, atOnceOfGroup = atOnceOfOne } = this.#options;
    return this.#running < atOnce && running < atOnceOfOne && group.running < atOnceOfGroup;
  }

  #begin(name: string, owner: Owner): void {
    owner.running += 1;
    owner.group.running += 1;
    this.#running += 1;
    this.#owners.delete(name);
    this.#owners.set(name, owner);
  }

  #turn(owner: Owner, signal: AbortSignal, isBack: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting += 1;
      const leave = (): void => {
        owner.waiting.splice(owner.waiting.indexOf(own), 1);
        this.#waiting -= 1;
        reject(signal.reason as Error);
      };
      const begin = (): void => {
        signal.removeEventListener("abort", leave);
        this.#waiting -= 1;
        resolve();
      };
      const own = { begin, isBack };
      const first = owner.waiting.findIndex((each) => !each.isBack);
      if (isBack && first >= 0) owner.waiting.splice(first, 0, own);
      else owner.waiting.push(own);
      signal.addEventListener("abort", leave, { once: true });
    });
  }

  #next(): void {
    if (this.#waiting === 0) return;
    for (const [name, owner] of [...this.#owners]) {
      if (this.#running >= this.#options.atOnce) return;
      if (owner.waiting.length === 0 || !this.#mayBegin(owner)) continue;
      const next = owner.waiting.shift();
      this.#begin(name, owner);
      next?.begin();
    }
  }
}
