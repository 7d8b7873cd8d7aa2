import { randomBytes } from "node:crypto";
import { createWriteStream, existsSync, statSync } from "node:fs";
import { link, mkdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { formatBytes, ProblemError } from "@internevo/domain";
import { cannotWrite } from "./new-files.ts";

/**
 * Where something is saved: a file that is not there yet, or in a folder under its own name. What ends in a slash is a
 * folder, whether it is there or not.
 * @throws ProblemError `bad-request`
 */
export function savedPath(out: string | undefined, name: string): string {
  if (out === "-")
    throw cannotWrite(out, "is no file: a download is kept whole or not at all", "give a file or a folder");
  // A name comes from elsewhere, and may lead anywhere: its last part does not.
  const place = out ?? basename(name);
  const there = statSync(resolve(place), { throwIfNoEntry: false });
  const isFolder = there?.isDirectory() ?? place.endsWith("/");
  if (there && !isFolder && place.endsWith("/"))
    throw cannotWrite(place, "is a file, and no folder", "leave the slash out, or give another place");
  const path = isFolder ? join(place, basename(name)) : place;
  if (existsSync(path)) throw cannotWrite(path, "exists already", "give another place, or remove it");
  return resolve(path);
}

export interface SavedOptions {
  readonly signal: AbortSignal;
  /** Of what has come so far. */
  readonly onBytes: (bytes: number) => void;
}

/** Gives a whole file its name, unless somebody else has taken it meanwhile. */
async function become(temporary: string, path: string): Promise<void> {
  try {
    await link(temporary, path);
  } catch (error) {
    // Disks without hard links: there is a moment in which another file of that name would be replaced.
    const { code = "" } = error as NodeJS.ErrnoException;
    if (!["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS"].includes(code) || existsSync(path)) throw error;
    await rename(temporary, path);
    return;
  }
  await rm(temporary);
}

/** Saves an answer whole or not at all. @returns its bytes */
export async function saveBody(
  response: Response,
  path: string,
  { signal, onBytes }: SavedOptions,
): Promise<number> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString("hex")}`);
  const length = response.headers.get("content-length");
  let bytes = 0;
  async function* counted(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const chunk of chunks) {
      bytes += chunk.length;
      onBytes(bytes);
      yield chunk;
    }
  }
  try {
    await mkdir(dirname(path), { recursive: true });
    const body = response.body ?? new ReadableStream<Uint8Array>();
    const chunks = Readable.fromWeb(body);
    await pipeline(chunks, counted, createWriteStream(temporary, { flags: "wx" }), { signal });
    if (length !== null && Number(length) !== bytes) throw new Error("it ended early");
    await become(temporary, path);
    return bytes;
  } catch (error) {
    // What is in the way of it, a file where a folder should be, is in the way of this too: the first error is told.
    await rm(temporary, { force: true }).catch(() => undefined);
    if (signal.aborted) throw error;
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && syscall === "link")
      throw cannotWrite(path, "exists already", "give another place, or remove it", error);
    if (syscall !== undefined && ["mkdir", "open", "write", "link", "rename"].includes(syscall)) {
      const remedy = code === "ENOSPC" ? "give a place with room" : "give a place that may be written";
      throw cannotWrite(path, `cannot be written (${code ?? syscall})`, remedy, error);
    }
    const whole = length === null ? "" : ` of ${formatBytes(Number(length))}`;
    throw new ProblemError("unavailable", `the download broke off after ${formatBytes(bytes)}${whole}`, [], {
      cause: error,
    });
  }
}
