/** What a prediction had to assume. Each kind once, with the things that it concerns. */
export class Warnings {
  readonly #kinds = new Map<string, Set<string>>();

  /** @param kind a sentence that fits in front of a list; @param item what it concerns. */
  readonly add = (kind: string, item: string): void => {
    const items = this.#kinds.get(kind);
    if (items) items.add(item);
    else this.#kinds.set(kind, new Set([item]));
  };

  /** One line a kind, in the order of the alphabet. */
  get lines(): string[] {
    return [...this.#kinds].map(([kind, items]) => `${kind}: ${[...items].sort().join(", ")}`).sort();
  }
}

export type Warn = Warnings["add"];
