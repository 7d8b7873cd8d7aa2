import { randomBytes } from "node:crypto";
import { constants, createReadStream, type Stats } from "node:fs";
import { access, realpath, rename, rm, stat, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { ProblemError, type ProblemCode } from "@internevo/domain";

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
    for await (const chunk of path === "-" ? process.stdin : createReadStream(path)) {
      chunks.push(chunk as Buffer);
      length += (chunk as Buffer).length;
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
