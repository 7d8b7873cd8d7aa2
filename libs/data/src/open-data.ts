import { constants, type BigIntStats } from "node:fs";
import { open, readlink, stat, type FileHandle } from "node:fs/promises";
import { formatBytes, ifThere, ProblemError } from "@internevo/domain";
import type { Judge } from "./data-roots.ts";
import { pathForRanksNow } from "./path-for-ranks.ts";

/** How files of data, or of weights, are read. */
export interface Reading {
  /** Ends it, with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called between parts of a file: whoever has read for long waits there until it is their turn again. */
  readonly pause?: (() => Promise<void>) | undefined;
  /** Refuses a file by where it lies once it is open: a link may have come into its path since it was looked at. */
  readonly judge?: Judge | undefined;
}

/** To be awaited between parts of what is read. */
export async function nextPart({ signal, pause }: Reading): Promise<void> {
  signal?.throwIfAborted();
  await pause?.();
  signal?.throwIfAborted();
}

export interface OpenData {
  readonly handle: FileHandle;
  readonly sizeBytes: number;
  readonly modifiedNanoseconds: bigint;
  /** Where it lies, with no link left in the path. */
  readonly leads: string;
}

/** A file that ranks open too. */
export interface OpenForRanks extends OpenData {
  /** Where it lies, as ranks are told it: see {@link pathForRanksNow}. */
  readonly forRanks: string;
}

/** Names a file without opening it: what it is can be asked, and nothing waits or acts. */
const O_PATH = 0o10000000;

/** Smaller files may have holes: what is in them is read within seconds. */
const MOST_WITH_HOLES_BYTES = 2 ** 30;
/** A file system that compresses keeps tokens in no fewer bytes than this share. */
const LEAST_ON_DISK = 1 / 16;
const BYTES_A_BLOCK = 512n;

/** What a file is that is no regular one; undefined for a regular one. */
function otherKind(found: BigIntStats): string | undefined {
  if (found.isFile()) return undefined;
  if (found.isDirectory()) return "a directory";
  if (found.isFIFO()) return "a pipe";
  if (found.isSocket()) return "a socket";
  return "a device";
}

type Refuse = (message: string, remedy: string, cause?: unknown) => ProblemError;

/** Opens, with an error that people understand. */
async function opened(path: string, flags: number, refuse: Refuse): Promise<FileHandle> {
  try {
    return await open(path, flags);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR")
      throw refuse("does not exist", "give the path of a file that exists on the machine that trains", error);
    if (code === "EACCES")
      throw refuse("cannot be read", "give the service's user the right to read it", error);
    throw refuse(`cannot be opened (${code ?? String(error)})`, "check the file", error);
  }
}

/** Where the file of a handle lies. @throws ProblemError where it is not there any more */
async function placeOf(handle: FileHandle, found: BigIntStats, refuse: Refuse): Promise<string> {
  const leads = await readlink(`/proc/self/fd/${handle.fd}`);
  const there = await ifThere(() => stat(leads, { bigint: true }));
  if (there?.dev === found.dev && there.ino === found.ino) return leads;
  throw refuse("was replaced while it was opened", "leave the file as it is, and submit the job again");
}

/** @throws ProblemError for a large file of holes, which would take hours to read and nothing to make */
function assertWritten({ size, blocks }: BigIntStats, refuse: Refuse): void {
  const onDiskBytes = Number(blocks * BYTES_A_BLOCK);
  if (size <= MOST_WITH_HOLES_BYTES || onDiskBytes >= LEAST_ON_DISK * Number(size)) return;
  throw refuse(
    `has ${formatBytes(Number(size))}, of which ${formatBytes(onDiskBytes)} were written; the rest are holes`,
    "give a file that was written whole: cp --sparse=never writes one",
  );
}

/**
 * Opens a file for reading, with an error that people understand. Only regular files: opening a pipe waits
 * for its writer, opening a device may act on it. What was judged is what is read, whatever its path means by then.
 */
export async function openData(
  path: string,
  field: string,
  { judge }: Pick<Reading, "judge"> = {},
): Promise<OpenData> {
  const refuse: Refuse = (message, remedy, cause) =>
    new ProblemError("data-invalid", `${path} ${message}`, [{ field, value: path, message, remedy }], {
      cause,
    });
  const named = await opened(path, O_PATH, refuse);
  try {
    const found = await named.stat({ bigint: true });
    const leads = await placeOf(named, found, refuse);
    await judge?.([{ path, field, leads }]);
    const kind = otherKind(found);
    if (kind !== undefined)
      throw refuse(
        `is ${kind}`,
        kind === "a directory" ? "give the files in it, one by one" : "give a regular file",
      );
    if (found.size === 0n) throw refuse("is empty", "give a file with content");
    const flags = constants.O_RDONLY | constants.O_NONBLOCK;
    const handle = await opened(`/proc/self/fd/${named.fd}`, flags, refuse);
    return { handle, sizeBytes: Number(found.size), modifiedNanoseconds: found.mtimeNs, leads };
  } finally {
    await named.close();
  }
}

/** @param leads where the file lies that is open: its path may lead to another by now */
async function forRanksOf(path: string, leads: string): Promise<string> {
  const found = await pathForRanksNow(path);
  return found?.real === leads ? found.path : leads;
}

/** As {@link openData}, of a file that ranks open too. */
export async function openForRanks(path: string, field: string, reading: Reading): Promise<OpenForRanks> {
  const file = await openData(path, field, reading);
  return { ...file, forRanks: await forRanksOf(path, file.leads) };
}

/** Opens a file of tokens, or of their index, as {@link openData} does; one of holes is refused. */
export async function openTokens(path: string, reading: Reading): Promise<OpenForRanks> {
  const field = "data.path";
  const file = await openForRanks(path, field, reading);
  try {
    assertWritten(
      await file.handle.stat({ bigint: true }),
      (message, remedy) =>
        new ProblemError("data-invalid", `${path} ${message}`, [{ field, value: path, message, remedy }]),
    );
    return file;
  } catch (error) {
    await file.handle.close();
    throw error;
  }
}

/** Exactly so many bytes of a file, from a place that its size says is there. */
export async function readExactly(handle: FileHandle, position: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await handle.read(bytes, filled, length - filled, position + filled);
    if (bytesRead === 0)
      throw new ProblemError(
        "data-invalid",
        `a data file became shorter while it was read: ${length - filled} bytes are missing at ${position + filled}`,
        [
          {
            field: "data",
            message: "changed while it was read",
            remedy: "submit the job again when the file is whole",
          },
        ],
      );
    filled += bytesRead;
  }
  return bytes;
}
