import { createHash } from "node:crypto";
import { constants, createWriteStream } from "node:fs";
import { mkdir, open, readdir, rm, stat, statfs, writeFile, type FileHandle } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { Transform, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { formatBytes, ifThere, ProblemError } from "@internevo/domain";

const CHUNK_BYTES = 1 << 20;

export interface Copied {
  readonly bytes: number;
  readonly sha256: string;
}

/** Whether a path is a folder, or lies below it. */
export const isInside = (path: string, folder: string): boolean =>
  path === folder || !relative(folder, path).startsWith("..");

/**
 * A refusal of the file system, with what to do. Other errors stay as they are.
 * @param below where what could not be written is
 */
export function cannotWrite(field: string, path: string, error: unknown, below = path): unknown {
  const { code, syscall, path: at = below } = error as NodeJS.ErrnoException;
  if (error instanceof ProblemError || code === undefined || syscall === undefined || !isInside(at, below))
    return error;
  const remedies: Readonly<Record<string, string>> = {
    ENOSPC: "make room, or choose a place in another file system",
    EACCES: "choose a place that this user may write",
    EROFS: "choose a place in another file system",
    EBUSY: "it is a mount point: name a folder in it that is not there yet",
  };
  return new ProblemError(
    "bad-request",
    `${path} cannot be written (${code})`,
    [
      {
        field,
        value: path,
        message: `${syscall} failed: ${code}`,
        remedy: remedies[code] ?? "choose another place",
      },
    ],
    { cause: error },
  );
}

/** A backup that cannot be restored, with what is wrong. */
export const damaged = (path: string, message: string): ProblemError =>
  new ProblemError("data-invalid", `${path} ${message}`, [
    { field: "from", value: path, message, remedy: "restore another backup, or another copy of this one" },
  ]);

/** Follows no link, and does not wait for whoever may write into a pipe. */
const AS_IT_IS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
/** What Linux says of a link, and of a socket or a pipe's other end, when they are opened so. */
const NOT_ORDINARY = ["ELOOP", "ENXIO"];

/** @throws ProblemError `data-invalid` for what is no ordinary file: links, pipes, devices, folders */
async function openOrdinary(path: string): Promise<FileHandle> {
  const refused = damaged(path, "is no ordinary file");
  const file = await open(path, AS_IT_IS).catch((error: NodeJS.ErrnoException) => {
    throw NOT_ORDINARY.includes(error.code ?? "") ? refused : error;
  });
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw refused;
}

/**
 * An ordinary file's content, piece by piece. A piece is to be used before the next one is asked for.
 * @param atMost so many bytes it may have
 * @throws ProblemError `data-invalid` for a larger one, and for what is no ordinary file
 */
export async function* piecesOf(path: string, atMost: number): AsyncGenerator<Buffer, void, undefined> {
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let bytes = 0;
  const source = await openOrdinary(path);
  try {
    for (;;) {
      const { bytesRead } = await source.read(buffer, 0, CHUNK_BYTES);
      if (bytesRead === 0) return;
      bytes += bytesRead;
      if (bytes > atMost) throw damaged(path, `is damaged: it has more than ${atMost} bytes`);
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await source.close();
  }
}

/** Reads an ordinary file to its end, and hands each piece on. @returns its size and sum. */
export async function readHashed(
  from: string,
  atMost: number,
  signal: AbortSignal,
  onPiece: (piece: Buffer) => unknown = () => {},
): Promise<Copied> {
  const hash = createHash("sha256");
  let bytes = 0;
  for await (const piece of piecesOf(from, atMost)) {
    signal.throwIfAborted();
    hash.update(piece);
    await onPiece(piece);
    bytes += piece.length;
  }
  return { bytes, sha256: hash.digest("hex") };
}

/**
 * Copies an ordinary file to a new one that only its owner reads, and has it on the disk before it returns.
 * @param atMost so many bytes it may have
 */
export async function copyHashed(
  from: string,
  to: string,
  signal: AbortSignal,
  atMost = Infinity,
): Promise<Copied> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  const target = await open(to, "wx", 0o600);
  try {
    const copied = await readHashed(from, atMost, signal, (piece) => target.writeFile(piece));
    await target.sync();
    return copied;
  } finally {
    await target.close();
  }
}

/** Writes what comes, compressed, to a new file. @returns what the file has. */
export async function writeCompressed(
  to: string,
  signal: AbortSignal,
  feed: (sink: Writable) => Promise<void>,
): Promise<Copied> {
  await mkdir(dirname(to), { recursive: true, mode: 0o700 });
  const hash = createHash("sha256");
  let bytes = 0;
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  const gzip = createGzip({ level: 1 });
  const written = pipeline(gzip, counted, createWriteStream(to, { flags: "wx", mode: 0o600, flush: true }), {
    signal,
  });
  const fed = feed(gzip).then(
    () => void gzip.end(),
    (error: unknown) => {
      gzip.destroy(error as Error);
      throw error;
    },
  );
  const ends = await Promise.allSettled([fed, written]);
  for (const end of ends) if (end.status === "rejected") throw end.reason;
  return { bytes, sha256: hash.digest("hex") };
}

/** Writes a small file that only its owner reads, and has it on the disk. */
export const writePrivate = (path: string, text: string): Promise<void> =>
  writeFile(path, text, { flag: "wx", mode: 0o600, flush: true });

/** Has names of a folder on the disk. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** The same of a folder and all folders in it. */
export async function syncTree(path: string): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true }))
    if (entry.isDirectory()) await syncTree(join(path, entry.name));
  await syncFolder(path);
}

/** Files below a folder, each with its size, as paths relative to it with slashes. */
export async function filesBelow(
  root: string,
  below = "",
): Promise<{ readonly path: string; readonly bytes: number }[]> {
  const found = [];
  const entries = (await ifThere(() => readdir(join(root, below), { withFileTypes: true }))) ?? [];
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = below === "" ? entry.name : `${below}/${entry.name}`;
    if (entry.isDirectory()) found.push(...(await filesBelow(root, path)));
    else found.push({ path, bytes: (await stat(join(root, path))).size });
  }
  return found;
}

/** What a directory's file system has left. */
export async function freeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

/** @throws ProblemError `bad-request` where a file system has less room than is needed. */
export async function assertRoom(field: string, directory: string, neededBytes: number): Promise<void> {
  const free = await freeBytes(directory);
  if (free < neededBytes) throw noRoom(field, directory, free, `needs ${formatBytes(neededBytes)}`);
}

/** A file system that has less room than is needed. */
export function noRoom(field: string, directory: string, free: number, needs: string): ProblemError {
  const message = `has ${formatBytes(free)} free, and ${needs}`;
  return new ProblemError("bad-request", `the file system of ${directory} ${message}`, [
    { field, value: directory, message, remedy: "make room, or choose a place in another file system" },
  ]);
}

/**
 * Whether a folder may be filled: it is not there, or has nothing in it.
 * @throws ProblemError `conflict`
 */
export async function assertNothingIn(field: string, path: string, remedy: string): Promise<void> {
  const names = await readdir(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    if (error.code === "ENOTDIR") return ["."];
    throw cannotWrite(field, path, error);
  });
  if (names.length === 0) return;
  const message = names[0] === "." ? "is no folder" : `is not empty: it has ${names[0] ?? ""}`;
  throw new ProblemError("conflict", `${path} ${message}`, [{ field, value: path, message, remedy }]);
}

export const removeTree = (path: string): Promise<void> => rm(path, { recursive: true, force: true });
