import type { Database } from "./database.ts";

/** Reads of the past at once: what else needs the database, such as who shows a token, finds room. */
const READS_AT_ONCE = 2;

/** Whoever waits for a read, first come first served. */
class HistoryReads {
  readonly #waiting: (() => void)[] = [];
  #reading = 0;

  async run<T>(read: () => Promise<T>): Promise<T> {
    if (this.#reading < READS_AT_ONCE) this.#reading += 1;
    else await new Promise<void>((begin) => this.#waiting.push(begin));
    try {
      return await read();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#reading -= 1;
      else next();
    }
  }
}

const reads = new WeakMap<Database, HistoryReads>();

/** Reads a page of the past when few others do: of events that somebody follows, and of files that are downloaded. */
export function readHistory<T>(database: Database, read: () => Promise<T>): Promise<T> {
  const known = reads.get(database) ?? new HistoryReads();
  reads.set(database, known);
  return known.run(read);
}
