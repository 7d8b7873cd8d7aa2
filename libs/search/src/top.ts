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

/** The k best of all plans offered, whatever their order. */
export class Top {
  readonly #size: number;
  readonly #list: Scored[] = [];

  constructor(size: number) {
    this.#size = size;
  }

  /** Plans slower than this cannot enter. */
  get bound(): number {
    return this.#list.length < this.#size ? Infinity : (this.#list[this.#size - 1]?.seconds ?? -Infinity);
  }

  offer(scored: Scored): void {
    if (scored.seconds > this.bound) return;
    let at = this.#list.length;
    while (at > 0 && compareScored(scored, this.#list[at - 1] as Scored) < 0) at -= 1;
    if (at >= this.#size) return;
    this.#list.splice(at, 0, scored);
    if (this.#list.length > this.#size) this.#list.pop();
  }

  get best(): readonly Scored[] {
    return this.#list;
  }
}
