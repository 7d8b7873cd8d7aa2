/**
 * The places of a process for work, shared among projects: none has more of them than are left to the others.
 * So whoever comes next finds one, whatever one project has submitted.
 */
export class Places {
  readonly #all: number;
  readonly #taken = new Map<string, number>();
  #sum = 0;

  constructor(all: number) {
    this.#all = all;
  }

  /** @returns what gives the place back, to be called once; undefined: the rest is for others. */
  take(project: string): (() => void) | undefined {
    const own = this.#taken.get(project) ?? 0;
    if (own > 0 && own >= this.#all - this.#sum) return undefined;
    this.#set(project, own + 1);
    return () => this.#set(project, (this.#taken.get(project) ?? 0) - 1);
  }

  #set(project: string, count: number): void {
    this.#sum += count - (this.#taken.get(project) ?? 0);
    if (count === 0) this.#taken.delete(project);
    else this.#taken.set(project, count);
  }
}
