/**
 * Cuts a byte stream into lines, with a bound on the length of one.
 * @param onOverlong called once for a line that is longer; the rest of that line is dropped.
 */
export class LineSplitter {
  readonly #onLine: (line: string) => void;
  readonly #onOverlong: (boundBytes: number) => void;
  readonly #boundBytes: number;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #dropping = false;

  constructor(options: {
    onLine: (line: string) => void;
    onOverlong: (boundBytes: number) => void;
    boundBytes?: number;
  }) {
    this.#onLine = options.onLine;
    this.#onOverlong = options.onOverlong;
    this.#boundBytes = options.boundBytes ?? 1 << 20;
  }

  push(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      this.#append(chunk.subarray(start, end));
      this.#emit();
      start = end + 1;
    }
    if (start < chunk.length) this.#append(chunk.subarray(start));
  }

  /** The stream ended: a last line without newline counts. */
  end(): void {
    if (this.#pendingBytes > 0) this.#emit();
  }

  #append(part: Buffer): void {
    if (this.#dropping) return;
    this.#pendingBytes += part.length;
    if (this.#pendingBytes > this.#boundBytes) {
      this.#dropping = true;
      this.#pending = [];
      this.#onOverlong(this.#boundBytes);
      return;
    }
    this.#pending.push(part);
  }

  #emit(): void {
    const dropped = this.#dropping;
    const line = Buffer.concat(this.#pending).toString("utf8");
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#dropping = false;
    if (!dropped && line.length > 0) this.#onLine(line);
  }
}

/** Keeps the last lines of a log within a bound. */
export class Tail {
  readonly #bound: number;
  #lines: string[] = [];
  #characters = 0;

  constructor(boundCharacters = 16_384) {
    this.#bound = boundCharacters;
  }

  push(line: string): void {
    const kept = line.slice(0, this.#bound);
    this.#lines.push(kept);
    this.#characters += kept.length + 1;
    while (this.#characters > this.#bound && this.#lines.length > 1)
      this.#characters -= (this.#lines.shift() ?? "").length + 1;
  }

  get text(): string {
    return this.#lines.join("\n");
  }
}
