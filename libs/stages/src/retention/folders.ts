import { lstat, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ifThere, type FileKind } from "@internevo/domain";
import { checkpointDirectory, exportDirectory, jobDirectory, timelineDirectory } from "../directories.ts";

const DIRECTORIES: Readonly<Record<FileKind, (dataDirectory: string, jobId: string) => string>> = {
  checkpoints: checkpointDirectory,
  timelines: timelineDirectory,
  exports: exportDirectory,
};

/** One folder of a job. */
export interface JobFolder {
  readonly dataDirectory: string;
  readonly jobId: string;
  readonly kind: FileKind;
}

export const folderPath = ({ dataDirectory, jobId, kind }: JobFolder): string =>
  DIRECTORIES[kind](dataDirectory, jobId);

/** Where a folder lies while it is deleted: no reader takes it for the folder of a job. */
const doomedPath = ({ dataDirectory, jobId, kind }: JobFolder): string =>
  join(jobDirectory(dataDirectory, jobId), `.removed-${kind}`);

export interface FolderContents {
  /** Files below it, links included. */
  readonly files: number;
  readonly bytes: number;
  /** When something in it was changed last, milliseconds since 1970. */
  readonly newestMs: number;
}

async function contentsOf(path: string, signal: AbortSignal): Promise<FolderContents> {
  signal.throwIfAborted();
  const found = await ifThere(() => lstat(path));
  if (!found) return { files: 0, bytes: 0, newestMs: 0 };
  if (!found.isDirectory()) return { files: 1, bytes: found.size, newestMs: found.mtimeMs };
  let [files, bytes, newestMs] = [0, 0, found.mtimeMs];
  for (const name of (await ifThere(() => readdir(path))) ?? []) {
    const inner = await contentsOf(join(path, name), signal);
    files += inner.files;
    bytes += inner.bytes;
    newestMs = Math.max(newestMs, inner.newestMs);
  }
  return { files, bytes, newestMs };
}

/**
 * What a folder of a job holds. @returns `absent` where it is not there; `link` where it is a link: what it leads to
 * may be anybody's
 */
export async function folderContents(
  folder: JobFolder,
  signal: AbortSignal,
): Promise<FolderContents | "absent" | "link"> {
  const path = folderPath(folder);
  const found = await ifThere(() => lstat(path));
  if (!found) return "absent";
  return found.isDirectory() ? contentsOf(path, signal) : "link";
}

/** Deletes whatever is there; links are not followed. */
async function deleteAll(path: string, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const found = await ifThere(() => lstat(path));
  if (!found) return;
  if (!found.isDirectory()) return void (await ifThere(() => unlink(path)));
  for (const name of (await ifThere(() => readdir(path))) ?? []) await deleteAll(join(path, name), signal);
  await ifThere(() => rmdir(path));
}

/**
 * Deletes a folder of a job whose removal was decided. It changes its name first, so that half of one is never found;
 * whoever begins again goes on where the last one died. A folder that somebody made since then stays.
 * @param decidedAt before it everything in the folder was written
 * @throws Error where the job has no folder here; the signal's reason when it aborts
 */
export async function deleteFolder(folder: JobFolder, decidedAt: Date, signal: AbortSignal): Promise<void> {
  const doomed = doomedPath(folder);
  // Gone, or on another machine: it had one when the removal was decided.
  if (!(await ifThere(() => lstat(dirname(doomed)))))
    throw new Error(`${dirname(doomed)} is not on this machine`);
  if (!(await ifThere(() => lstat(doomed)))) {
    const contents = await folderContents(folder, signal);
    if (typeof contents === "string" || contents.newestMs > decidedAt.getTime()) return;
    await ifThere(() => rename(folderPath(folder), doomed));
  }
  await deleteAll(doomed, signal);
}
