import type { Plan } from "@internevo/domain";
import { comparePlans } from "./enumerate.ts";

/** A feasible plan with what decides its rank: time, then memory, then the order of the space. */
export interface Scored {
  readonly plan: Plan;
  readonly seconds: number;
  readonly bytes: number;
}

export function compareScored(a: Scored, b: Scored): number {
  return a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);
}

/** The k best of all plans offered, whatever their order; with a key, the k best of those that are the best of their key. */
export class Top {
  readonly #size: number;
  readonly #keyOf: ((plan: Plan) => string) | null;
  readonly #list: { readonly scored: Scored; readonly key: string }[] = [];
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

  offer(scored: Scored): void {
    if (this.#size === 0 || scored.seconds > this.bound) return;
    const key = this.#keyOf?.(scored.plan) ?? "";
    if (this.#keyOf !== null) {
      const known = this.#list.findIndex((one) => one.key === key);
      if (known >= 0) {
        if (compareScored(scored, (this.#list[known] as { scored: Scored }).scored) >= 0) return;
        this.#list.splice(known, 1);
      }
    }
    let at = this.#list.length;
    while (at > 0 && compareScored(scored, (this.#list[at - 1] as { scored: Scored }).scored) < 0) at -= 1;
    if (at >= this.#size) return;
    this.#list.splice(at, 0, { scored, key });
    if (this.#list.length > this.#size) this.#list.pop();
    if (this.#list.length === this.#size) this.#bound = (this.#list[this.#size - 1] as { scored: Scored }).scored.seconds;
  }

  get best(): readonly Scored[] {
    return this.#list.map(({ scored }) => scored);
  }
}
