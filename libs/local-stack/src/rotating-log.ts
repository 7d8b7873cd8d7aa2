import {
  closeSync,
  copyFileSync,
  fstatSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeSync,
} from "node:fs";

export interface LogRotation {
  /** A file that would grow beyond it is put away first. */
  readonly mostBytes: number;
  /** Files that were put away and are kept: `x.log.1` is the newest. */
  readonly keptFiles: number;
}

export const DEFAULT_LOG_ROTATION: LogRotation = { mostBytes: 32 * 2 ** 20, keptFiles: 4 };

const nameOf = (path: string, age: number): string => (age === 0 ? path : `${path}.${age}`);

/** Makes every file from an age on older by one, and the oldest goes: `x.log.1` becomes `x.log.2`. */
function makeOlder(path: string, fromAge: number, keptFiles: number): void {
  rmSync(nameOf(path, keptFiles), { force: true });
  for (let age = keptFiles - 1; age >= fromAge; age -= 1) {
    try {
      renameSync(nameOf(path, age), nameOf(path, age + 1));
    } catch (error) {
      // Fewer are kept than could be.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    }
  }
}

/**
 * A log file of bounded size. Written by its only writer, line by line and at once, so that no line is lost
 * between two files.
 */
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

  /**
   * @throws what the file system says, such as ENOSPC; the line is not written then, and the next one may be.
   */
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
    makeOlder(this.#path, 0, this.#rotation.keptFiles);
    // Opened before the other is closed: should it fail, lines go on into the old file.
    const next = openSync(this.#path, "a", 0o600);
    closeSync(this.#file);
    this.#file = next;
    this.#bytes = fstatSync(next).size;
  }
}

/**
 * Bounds a log that a process's standard error is, so that also what Node writes there at its end lands in
 * it. Whoever started the process opened the file, and no process can exchange its own standard error: the
 * content is copied away, and the file emptied. Does nothing where standard error is not this file.
 */
export function boundOwnLog(
  stream: NodeJS.WriteStream & { fd: number },
  path: string,
  { mostBytes, keptFiles }: LogRotation = DEFAULT_LOG_ROTATION,
): void {
  const own = fstatSync(stream.fd);
  const named = statSync(path, { throwIfNoEntry: false });
  if (!own.isFile() || named?.ino !== own.ino || named.dev !== own.dev) return;
  const write = stream.write.bind(stream) as (...all: unknown[]) => boolean;
  stream.write = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    try {
      const { size } = fstatSync(stream.fd);
      if (size > 0 && size + Buffer.byteLength(chunk) > mostBytes) {
        makeOlder(path, 1, keptFiles);
        copyFileSync(path, nameOf(path, 1));
        truncateSync(path);
      }
    } catch {
      // Such as a full disk: the line is worth more than the bound.
    }
    return write(chunk, ...rest);
  };
}
