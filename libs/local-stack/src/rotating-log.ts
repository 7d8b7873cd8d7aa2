import { closeSync, fstatSync, openSync, renameSync, rmSync, writeSync } from "node:fs";

export interface LogRotation {
  /** A file that would grow beyond it is put away first. */
  readonly mostBytes: number;
  /** Files that were put away and are kept: `x.log.1` is the newest. */
  readonly keptFiles: number;
}

export const DEFAULT_LOG_ROTATION: LogRotation = { mostBytes: 32 * 2 ** 20, keptFiles: 4 };

/** A log file of bounded size. Written by its only writer, line by line and at once, so that no line is lost between two files. */
export class RotatingLog {
  readonly #path: string;
  readonly #rotation: LogRotation;
  #file: number;
  #bytes: number;

  constructor(path: string, rotation: LogRotation = DEFAULT_LOG_ROTATION) {
    this.#path = path;
    this.#rotation = rotation;
    this.#file = openSync(path, "a", 0o600);
    this.#bytes = fstatSync(this.#file).size;
  }

  /** @throws what the file system says, such as ENOSPC; the line is not written then, and the next one may be. */
  writeLine(line: string): void {
    const bytes = Buffer.from(`${line}\n`);
    if (this.#bytes > 0 && this.#bytes + bytes.length > this.#rotation.mostBytes) this.#rotate();
    writeSync(this.#file, bytes);
    this.#bytes += bytes.length;
  }

  close(): void {
    closeSync(this.#file);
  }

  #rotate(): void {
    const { keptFiles } = this.#rotation;
    const nameOf = (age: number): string => (age === 0 ? this.#path : `${this.#path}.${age}`);
    rmSync(nameOf(keptFiles), { force: true });
    for (let age = keptFiles - 1; age >= 0; age -= 1) {
      try {
        renameSync(nameOf(age), nameOf(age + 1));
      } catch (error) {
        // Fewer are kept than could be.
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    }
    // Opened before the other is closed: should it fail, lines go on into the old file.
    const next = openSync(this.#path, "a", 0o600);
    closeSync(this.#file);
    this.#file = next;
    this.#bytes = fstatSync(next).size;
  }
}
