import { lstat, readdir, rename, rmdir, unlink } from "node:fs/promises";
import { basename, join } from "node:path";
import { ifThere, type FileKind } from "@internevo/domain";
import {
  checkpointDirectory,
  exportDirectory,
  jobDirectory,
  timelineDirectory,
  weightsDirectory,
} from "../directories.ts";

type Directory = (dataDirectory: string, jobId: string) => string;

/** The folder of each kind, and those that go with it. */
const DIRECTORIES: Readonly<Record<FileKind, readonly [Directory, ...Directory[]]>> = {
  // Documents and links to begin with: without checkpoints, a job is not let go on.
  checkpoints: [checkpointDirectory, weightsDirectory],
  timelines: [timelineDirectory],
  exports: [exportDirectory],
};

/** One folder of a job. */
export interface JobFolder {
  readonly dataDirectory: string;
  readonly jobId: string;
  readonly kind: FileKind;
}

export const folderPath = ({ dataDirectory, jobId, kind }: JobFolder): string =>
  DIRECTORIES[kind][0](dataDirectory, jobId);

const allPaths = ({ dataDirectory, jobId, kind }: JobFolder): string[] =>
  DIRECTORIES[kind].map((directory) => directory(dataDirectory, jobId));

/** Where a folder lies while it is deleted: no reader takes it for the folder of a job. */
const doomedPath = (path: string): string => join(path, "..", `.removed-${basename(path)}`);

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

type Found = FolderContents | "absent" | "link";

async function contentsAt(path: string, signal: AbortSignal): Promise<Found> {
  const found = await ifThere(() => lstat(path));
  if (!found) return "absent";
  return found.isDirectory() ? contentsOf(path, signal) : "link";
}

/**
 * What a folder of a job holds. @returns `absent` where it is not there; `link` where it is a link: what it leads to
 * may be anybody's
 */
export const folderContents = (folder: JobFolder, signal: AbortSignal): Promise<Found> =>
  contentsAt(folderPath(folder), signal);

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
 * Deletes a folder of a job whose removal was decided, and those that go with it. A folder changes its name first, so
 * that half of one is never found; whoever begins again goes on where the last one died. A folder that somebody made
 * since then stays.
 * @param decidedAt before it everything in the folder was written
 * @throws Error where the job has no folder here; the signal's reason when it aborts
 */
export async function deleteFolder(folder: JobFolder, decidedAt: Date, signal: AbortSignal): Promise<void> {
  const own = jobDirectory(folder.dataDirectory, folder.jobId);
  // Gone, or on another machine: it had one when the removal was decided.
  if (!(await ifThere(() => lstat(own)))) throw new Error(`${own} is not on this machine`);
  for (const path of allPaths(folder)) {
    const doomed = doomedPath(path);
    if (!(await ifThere(() => lstat(doomed)))) {
      const contents = await contentsAt(path, signal);
      if (typeof contents === "string" || contents.newestMs > decidedAt.getTime()) continue;
      await ifThere(() => rename(path, doomed));
    }
    await deleteAll(doomed, signal);
  }
}
