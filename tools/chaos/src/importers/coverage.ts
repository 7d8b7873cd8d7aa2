import { Session, type Profiler } from "node:inspector";

/** Blocks of the importers that have run, as the engine itself counts them. */
export class Coverage {
  readonly #session = new Session();
  readonly #seen = new Set<string>();
  /**
   * What one input alone has run. Blocks that run equally often are told as one, so inputs together have
   * others.
   */
  readonly #seenAlone = new Set<string>();

  constructor() {
    this.#session.connect();
    this.#session.post("Profiler.enable");
    this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
  }

  get blocks(): number {
    return this.#seen.size;
  }

  /** How many blocks ran since the last call that never ran before. */
  newBlocks(): number {
    return this.#added(this.#seen);
  }

  /** The same for what one input ran. */
  newBlocksAlone(): number {
    return this.#added(this.#seenAlone);
  }

  #added(seen: Set<string>): number {
    let found = 0;
    // The engine answers in place.
    this.#session.post(
      "Profiler.takePreciseCoverage",
      (_error, { result }: Profiler.TakePreciseCoverageReturnType) => {
        for (const { url, functions } of result) {
          if (!/\/libs\/frameworks\/src\//.test(url)) continue;
          for (const { ranges } of functions) {
            for (const { startOffset, endOffset, count } of ranges) {
              const key = `${url}:${startOffset}:${endOffset}`;
              if (count > 0 && !seen.has(key)) {
                seen.add(key);
                found += 1;
              }
            }
          }
        }
      },
    );
    return found;
  }
}
