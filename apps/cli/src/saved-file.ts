import { randomBytes } from "node:crypto";
import { createWriteStream, existsSync, statSync } from "node:fs";
import { rename, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { formatBytes, ProblemError } from "@internevo/domain";
import { cannotWrite } from "./new-files.ts";

/** Where something is saved: a file that is not there yet, or in a folder under its own name. */
export function savedPath(out: string | undefined, name: string): string {
  const place = out ?? name;
  const path = existsSync(place) && statSync(place).isDirectory() ? join(place, basename(name)) : place;
  if (existsSync(path)) throw cannotWrite(path, "exists already", "give another place, or remove it");
  return resolve(path);
}

export interface SavedOptions {
  readonly signal: AbortSignal;
  /** Of what has come so far. */
  readonly onBytes: (bytes: number) => void;
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
    const body = response.body ?? new ReadableStream<Uint8Array>();
    const chunks = Readable.fromWeb(body);
    await pipeline(chunks, counted, createWriteStream(temporary, { flags: "wx" }), { signal });
    if (length !== null && Number(length) !== bytes) throw new Error("it ended early");
    await rename(temporary, path);
    return bytes;
  } catch (error) {
    await rm(temporary, { force: true });
    if (signal.aborted) throw error;
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (syscall !== undefined && ["open", "write", "rename"].includes(syscall))
      throw cannotWrite(path, `cannot be written (${code ?? syscall})`, "give a place with room", error);
    const whole = length === null ? "" : ` of ${formatBytes(Number(length))}`;
    throw new ProblemError("unavailable", `the download broke off after ${formatBytes(bytes)}${whole}`, [], {
      cause: error,
    });
  }
}
