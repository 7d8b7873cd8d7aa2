import { randomBytes } from "node:crypto";
import { constants, createReadStream, type Stats } from "node:fs";
import { access, open, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { addAbortSignal } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { ProblemError, type ProblemCode } from "@internevo/domain";
import { stopSignal } from "./stop-signal.ts";

/** What a file is expected to be, for whoever gives another. */
export interface Expected {
  readonly code: ProblemCode;
  /** For a file that is not there; default: `code`. */
  readonly missing?: ProblemCode;
  readonly field: string;
  /** "a job file, in YAML or JSON" */
  readonly what: string;
  /** Default: 1 MiB. */
  readonly maximumBytes?: number;
  /** What to do about a file that is larger. */
  readonly smaller?: string;
  /** Whether a file of nothing but blanks is refused for that: whoever reads it would name another reason. */
  readonly filled?: boolean;
}

const MIB = 1 << 20;
const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);

const UNREADABLE: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  EISDIR: "is a directory",
  EACCES: "cannot be read",
};

const PIPE_CHUNK_BYTES = 1 << 16;
const PIPE_WAIT_MS = 20;
/** Names of what the process was given open: by process substitution, for example. */
const GIVEN_OPEN = /^\/(?:dev|proc\/[^/]+)\/(?:fd\/|stdin$)/;

/**
 * What a pipe holds. To open it in the usual way waits for a writer, and nothing can end that wait, not even
 * a signal.
 */
async function* pipeChunks(path: string): AsyncGenerator<Buffer> {
  const signal = stopSignal();
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  // Before a writer comes, a pipe seems to be at its end.
  let hadWriter = GIVEN_OPEN.test(path);
  try {
    for (;;) {
      const buffer = Buffer.allocUnsafe(PIPE_CHUNK_BYTES);
      const read = await file.read(buffer).catch((error: unknown) => {
        if (codeOf(error) !== "EAGAIN") throw error;
        return null;
      });
      if (read?.bytesRead === 0 && hadWriter) return;
      if (read === null || read.bytesRead > 0) hadWriter = true;
      if (read !== null && read.bytesRead > 0) yield buffer.subarray(0, read.bytesRead);
      else await wait(PIPE_WAIT_MS, undefined, signal === undefined ? {} : { signal });
    }
  } finally {
    await file.close();
  }
}

async function chunksOf(path: string): Promise<AsyncIterable<Buffer>> {
  const signal = stopSignal();
  if (path === "-") return signal === undefined ? process.stdin : addAbortSignal(signal, process.stdin);
  if ((await stat(path)).isFIFO()) return pipeChunks(path);
  return createReadStream(path);
}

/**
 * The text of a file, or of standard input for `-`; of what has no end no more is read than fits.
 * @throws ProblemError of the code that is given when the file cannot be read, is too large or is no text.
 */
export async function readText(
  path: string,
  { code, missing, field, what, maximumBytes = MIB, smaller, filled = false }: Expected,
): Promise<string> {
  const refusal = (message: string, remedy: string, cause?: unknown, as = code): ProblemError =>
    new ProblemError(as, `${path} ${message}`, [{ field, value: path, message, remedy }], { cause });
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    for await (const chunk of await chunksOf(path)) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > maximumBytes) break;
    }
  } catch (error) {
    const cause = codeOf(error);
    const message = UNREADABLE[cause] ?? `cannot be read (${cause})`;
    throw refusal(message, `give the path of ${what}`, error, cause === "ENOENT" ? missing : code);
  }
  if (length > maximumBytes)
    throw refusal(`is larger than ${maximumBytes / MIB} MiB`, smaller ?? `give ${what}`);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch (error) {
    throw refusal("is not UTF-8", `give ${what}, as UTF-8 text`, error);
  }
  if (filled && text.trim() === "") throw refusal("is empty", `give ${what}`);
  return text;
}

const refuse = (
  path: string,
  field: string,
  message: string,
  remedy: string,
  cause?: unknown,
): ProblemError =>
  new ProblemError("bad-request", `${path} ${message}`, [{ field, value: path, message, remedy }], { cause });

/**
 * What is there; undefined when nothing is, or when it cannot be told: the write that follows says why, by
 * its own error.
 */
const knownAt = (path: string): Promise<Stats | undefined> => stat(path).catch(() => undefined);

/**
 * Whether a file can be written there, asked before the work that it is to hold.
 * @throws ProblemError `bad-request`: it is a directory, or its directory is missing or closed.
 */
export async function assertWritable(path: string, field: string): Promise<void> {
  const remedy = "give a file in a directory that may be written";
  const known = await knownAt(path);
  if (known?.isDirectory() === true || path.endsWith("/"))
    throw refuse(path, field, known === undefined ? "does not exist" : "is a directory", remedy);
  try {
    await access(known === undefined ? dirname(path) : path, constants.W_OK);
  } catch (error) {
    const cause = codeOf(error);
    throw refuse(
      path,
      field,
      cause === "ENOENT" ? "is in a directory that does not exist" : `cannot be written (${cause})`,
      remedy,
      error,
    );
  }
}

/**
 * Writes a file whole or not at all; one that was there is replaced. What is no regular file (a pipe, a
 * device) is written to.
 * @throws ProblemError `bad-request` when it cannot be written.
 */
export async function writeWhole(path: string, text: string, field: string): Promise<void> {
  await assertWritable(path, field);
  const place = await realpath(path).catch(() => path);
  const known = await knownAt(place);
  const temporary =
    known === undefined || known.isFile()
      ? join(dirname(place), `.${basename(place)}.${randomBytes(6).toString("hex")}`)
      : undefined;
  try {
    await writeFile(
      temporary ?? place,
      text,
      temporary === undefined ? {} : { flag: "wx", ...(known === undefined ? {} : { mode: known.mode }) },
    );
    if (temporary !== undefined) await rename(temporary, place);
  } catch (error) {
    if (temporary !== undefined) await rm(temporary, { force: true });
    throw refuse(
      path,
      field,
      `cannot be written (${codeOf(error)})`,
      "give a file in a directory that may be written, with room",
      error,
    );
  }
}
