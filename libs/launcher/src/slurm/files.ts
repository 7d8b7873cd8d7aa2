import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { Type, type Static } from "typebox";
import { validate } from "@internevo/domain";

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

const EndSchema = Type.Object(
  { jobId: Type.Integer(), exitCode: Type.Union([Type.Integer(), Type.Null()]), told: Type.String() },
  { additionalProperties: false },
);
/**
 * What the batch script left of how the ranks ended. `told`: USR1, TERM, REQUEUED, NODES, MODULE, or nothing.
 */
export type JobEnd = Static<typeof EndSchema>;

/** Undefined while the file is not there. */
export function readEnd(path: string): JobEnd | undefined {
  try {
    return validate(EndSchema, JSON.parse(readFileSync(path, "utf8")), "internal", path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The Slurm job that has claimed a submission's directory; undefined while none has. */
export function readClaim(path: string): number | undefined {
  try {
    // Without its newline it has not been written to its end.
    const [, id] = /^([1-9]\d*)\n/.exec(readFileSync(path, "utf8")) ?? [];
    return id === undefined ? undefined : Number(id);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The node of every rank, in the order of ranks; empty while none was placed. */
export function readHosts(path: string): string[] {
  try {
    return readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => line !== "");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
