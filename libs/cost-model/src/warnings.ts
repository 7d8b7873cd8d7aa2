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

/** One thing that was assumed. */
interface Warning {
  readonly kind: string;
  readonly item: string;
}
const NOTHING: readonly Warning[] = [];

/** A value, and what its computation warned of: whoever takes it again is warned again. */
export interface Kept<Value> {
  readonly value: Value;
  /** Of one recorder equal warnings are one object. */
  readonly warned: readonly Warning[];
}

/** Lets values be kept whose computation may warn, so that warnings do not depend on who asked first. */
export class Recorder {
  readonly #sink: Warn;
  readonly #known = new Map<string, Map<string, Warning>>();
  /** Whether something is being computed that will be kept, and what it warned of so far. */
  #isOpen = false;
  #record: Set<Warning> | null = null;

  constructor(sink: Warn) {
    this.#sink = sink;
  }

  readonly warn: Warn = (kind, item) => {
    let items = this.#known.get(kind);
    if (!items) this.#known.set(kind, (items = new Map<string, Warning>()));
    let warning = items.get(item);
    if (!warning) items.set(item, (warning = { kind, item }));
    this.#note(warning);
  };

  #note(warning: Warning): void {
    this.#sink(warning.kind, warning.item);
    if (this.#isOpen) (this.#record ??= new Set()).add(warning);
  }

  keep<Value>(make: () => Value): Kept<Value> {
    const [isWithin, around] = [this.#isOpen, this.#record];
    this.#isOpen = true;
    this.#record = null;
    let value: Value;
    let own: Set<Warning> | null;
    try {
      value = make();
    } finally {
      own = this.#record;
      this.#isOpen = isWithin;
      this.#record = around;
    }
    if (own === null) return { value, warned: NOTHING };
    const warned = [...own];
    if (isWithin) for (const warning of warned) (this.#record ??= new Set()).add(warning);
    return { value, warned };
  }

  recall<Value>({ value, warned }: Kept<Value>): Value {
    for (const warning of warned) this.#note(warning);
    return value;
  }
}
