import { comparePlans, type Plan } from "@internevo/domain";

/** A feasible plan with what decides its rank: time, then memory, then the order of the space. */
export interface Scored {
  readonly plan: Plan;
  readonly seconds: number;
  readonly bytes: number;
}

export function compareScored(a: Scored, b: Scored): number {
  return a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);
}

/**
 * The k best of all plans offered, whatever their order; with a key, the k best of those that are the best of
 * their key.
 */
export class Top {
  readonly #size: number;
  readonly #keyOf: ((plan: Plan) => string) | null;
  /** In their order. */
  readonly #list: Scored[] = [];
  /** What is listed of each key: there may be thousands. */
  readonly #ofKey = new Map<string, Scored>();
  #bound: number;

  constructor(size: number, keyOf: ((plan: Plan) => string) | null = null) {
    this.#size = size;
    this.#keyOf = keyOf;
    this.#bound = size === 0 ? -Infinity : Infinity;
  }

  /** Plans slower than this cannot enter. */
  get bound(): number {
    return this.#bound;
  }

  /** How many of the list are ahead of a plan, or equal to it where `equal`. */
  #ahead(scored: Scored, equal: boolean): number {
    let low = 0;
    let high = this.#list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const order = compareScored(this.#list[middle] as Scored, scored);
      if (order < 0 || (equal && order === 0)) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  offer(scored: Scored): void {
    if (this.#size === 0 || scored.seconds > this.bound) return;
    if (this.#keyOf !== null) {
      const key = this.#keyOf(scored.plan);
      const known = this.#ofKey.get(key);
      if (known !== undefined) {
        if (compareScored(scored, known) >= 0) return;
        this.#list.splice(this.#ahead(known, false), 1);
      }
      this.#ofKey.set(key, scored);
    }
    this.#list.splice(this.#ahead(scored, true), 0, scored);
    const last = this.#list.length > this.#size ? this.#list.pop() : undefined;
    if (last !== undefined && this.#keyOf !== null) this.#ofKey.delete(this.#keyOf(last.plan));
    if (this.#list.length === this.#size) this.#bound = (this.#list[this.#size - 1] as Scored).seconds;
  }

  get best(): readonly Scored[] {
    return this.#list;
  }
}
