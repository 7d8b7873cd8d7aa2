import { closeSync, fstatSync, openSync, readSync } from "node:fs";

const CHUNK_BYTES = 1 << 20;

/** Reads on in a file that another machine appends to. */
export class FileFollower {
  readonly #path: string;
  readonly #onBytes: (chunk: Buffer) => void;
  readonly #border: number;
  #offset = 0;

  /** @param border no chunk lies on both sides of it. */
  constructor(path: string, onBytes: (chunk: Buffer) => void, border = 0) {
    this.#path = path;
    this.#onBytes = onBytes;
    this.#border = border;
  }

  /** Bytes that were told. */
  get offset(): number {
    return this.#offset;
  }

  /** Tells what has been added since; a file that is not there yet is empty. */
  readOn(): void {
    let file: number;
    try {
      // Opened anew each time: network file systems promise what others wrote to whoever opens.
      file = openSync(this.#path, "r");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return;
      throw error;
    }
    try {
      for (let left = fstatSync(file).size - this.#offset; left > 0;) {
        const chunk = Buffer.allocUnsafe(
          Math.min(
            left,
            CHUNK_BYTES,
            this.#offset < this.#border ? this.#border - this.#offset : CHUNK_BYTES,
          ),
        );
        const read = readSync(file, chunk, 0, chunk.length, this.#offset);
        if (read === 0) return;
        left -= read;
        this.#offset += read;
        this.#onBytes(chunk.subarray(0, read));
      }
    } finally {
      closeSync(file);
    }
  }
}
