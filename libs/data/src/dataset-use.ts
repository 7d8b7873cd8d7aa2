import { lstat, mkdir, open, readdir, readFile, rm, rmdir, stat, unlink, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ifThere } from "@internevo/domain";
import { diskOf, textRoomFault } from "./disk-room.ts";
import { removeUnnamedLinks } from "./handed-over.ts";
import { isAbandoned, passingName } from "./passing-files.ts";

/**
 * Text as tokens is a copy that can be made again. Each copy says which jobs use it, by a file for each in
 * `users/<copy>/`. Whoever removes one writes first that it is about to, and looks at the users afterwards; whoever
 * begins to use one writes itself down first, and looks for removals afterwards. So one of the two sees the other.
 */

/** A copy that no job needs goes when it was not used for so many days. */
export const DATASET_DAYS = 7;

/** Where room is needed, what was used so lately stays: somebody may be about to say that it is theirs. */
const JUST_USED_SECONDS = 60;
const DAY_MILLISECONDS = 86_400_000;
const COPY = ".tokens";
const SIDECAR = /^source-[0-9a-f]{64}\.json$/;
const REMOVAL = ".removal";

/** Which of some jobs have not ended. */
export type Unended = (jobIds: readonly string[]) => Promise<ReadonlySet<string>>;

/** Whose stage prepares data. */
export interface DatasetUser {
  readonly jobId: string;
  readonly unended: Unended;
}

export interface RemovedDatasets {
  readonly files: number;
  readonly bytes: number;
}

const usersOf = (copy: string): string => join(copy, "..", "users", basename(copy));

async function writeUser(copy: string, jobId: string): Promise<void> {
  for (;;) {
    await mkdir(usersOf(copy), { recursive: true, mode: 0o700 });
    // A removal may take the folder away at this moment.
    const handle = await ifThere(() => open(join(usersOf(copy), jobId), "w", 0o600));
    if (handle) return handle.close();
  }
}

/** Whether somebody who lives is about to remove a copy. */
async function isAboutToGo(copy: string): Promise<boolean> {
  const directory = join(copy, "..");
  const begins = `${basename(copy)}${REMOVAL}.`;
  for (const name of (await ifThere(() => readdir(directory))) ?? [])
    if (name.startsWith(begins) && !(await isAbandoned(join(directory, name)))) return true;
  return false;
}

/**
 * Says that a copy is used from now on. @returns false where it is gone: then it has to be made again
 * @param jobId undefined of whoever is no job: the copy stays for {@link DATASET_DAYS}
 */
export async function beginUse(
  copy: string,
  jobId: string | undefined,
  signal?: AbortSignal,
): Promise<boolean> {
  if (jobId !== undefined) await writeUser(copy, jobId);
  while (await isAboutToGo(copy)) {
    signal?.throwIfAborted();
    await sleep(20);
  }
  const now = new Date();
  return (await ifThere(() => utimes(copy, now, now).then(() => true))) ?? false;
}

interface Copy {
  readonly path: string;
  readonly bytes: number;
  readonly usedMs: number;
  readonly users: readonly string[];
}

/** The copies of a folder, those first whose last use is longest ago. */
async function copiesIn(directory: string): Promise<Copy[]> {
  const copies: Copy[] = [];
  for (const name of (await ifThere(() => readdir(directory))) ?? []) {
    if (!name.endsWith(COPY)) continue;
    const path = join(directory, name);
    const found = await ifThere(() => lstat(path));
    if (!found?.isFile()) continue;
    const users = (await ifThere(() => readdir(usersOf(path)))) ?? [];
    copies.push({ path, bytes: found.size, usedMs: found.mtimeMs, users });
  }
  return copies.sort((a, b) => a.usedMs - b.usedMs);
}

/** Of copies those that no job uses which has not ended. */
async function unneeded(copies: readonly Copy[], unended: Unended): Promise<Copy[]> {
  const ids = [...new Set(copies.flatMap(({ users }) => users))];
  const needing = ids.length === 0 ? new Set<string>() : await unended(ids);
  return copies.filter(({ users }) => !users.some((id) => needing.has(id)));
}

/**
 * Removes a copy that nobody needs. @returns false where it was used meanwhile
 * @param copy as it was when it was chosen
 */
async function remove(copy: Copy, unended: Unended): Promise<boolean> {
  const intent = passingName(`${copy.path}${REMOVAL}`);
  await (await open(intent, "wx", 0o600)).close();
  try {
    const found = await ifThere(() => stat(copy.path));
    if (!found || found.mtimeMs !== copy.usedMs) return false;
    const users = (await ifThere(() => readdir(usersOf(copy.path)))) ?? [];
    if ((await unneeded([{ ...copy, users }], unended)).length === 0) return false;
    await unlink(copy.path);
    for (const id of users) await rm(join(usersOf(copy.path), id), { force: true });
    await ifThere(() => rmdir(usersOf(copy.path))).catch((error: unknown) => {
      // Somebody waits for us, and has a file there: the copy is made again for them.
      if ((error as NodeJS.ErrnoException).code !== "ENOTEMPTY") throw error;
    });
    return true;
  } finally {
    await rm(intent, { force: true });
  }
}

/**
 * Makes room for text by removing copies that no job needs which has not ended, the longest unused first. Where all of
 * them would not do, none goes.
 * @param writtenBytes that need room beside what stays free
 */
export async function makeRoom(writtenBytes: number, directory: string, unended: Unended): Promise<void> {
  const disk = await diskOf(directory);
  if (!textRoomFault(writtenBytes, disk, directory)) return;
  const before = Date.now() - 1000 * JUST_USED_SECONDS;
  const old = (await copiesIn(directory)).filter(({ usedMs }) => usedMs < before);
  const copies = await unneeded(old, unended);
  const freeBytes = copies.reduce((sum, { bytes }) => sum + bytes, disk.freeBytes);
  if (textRoomFault(writtenBytes, { ...disk, freeBytes }, directory)) return;
  for (const copy of copies) {
    if (!textRoomFault(writtenBytes, await diskOf(directory), directory)) return;
    await remove(copy, unended);
  }
}

/** What a note says that ranks are given; undefined where it is gone. */
async function notedPath(note: string): Promise<string | undefined> {
  const text = await ifThere(() => readFile(note, "utf8"));
  return text === undefined ? undefined : (JSON.parse(text) as { path?: string }).path;
}

async function notedPaths(directory: string): Promise<ReadonlySet<string>> {
  const paths = new Set<string>();
  for (const name of (await ifThere(() => readdir(directory))) ?? []) {
    const path = SIDECAR.test(name) ? await notedPath(join(directory, name)) : undefined;
    if (path !== undefined) paths.add(path);
  }
  return paths;
}

/** Notes of where a copy is that is gone, and was not asked for since. */
async function removeNotes(directory: string, before: number): Promise<void> {
  for (const name of (await ifThere(() => readdir(directory))) ?? []) {
    const path = join(directory, name);
    if (!SIDECAR.test(name) || ((await ifThere(() => stat(path)))?.mtimeMs ?? Infinity) >= before) continue;
    const copy = await notedPath(path);
    if (copy === undefined || join(copy, "..") !== directory || (await ifThere(() => stat(copy)))) continue;
    await rm(path, { force: true });
  }
}

/**
 * Removes the copies of text that no job needs which has not ended, and that nobody used for {@link DATASET_DAYS}.
 * So it does with links that nothing names. Safe beside whoever prepares data, and beside another removal.
 * @throws the signal's reason when it aborts
 */
export async function removeUnusedCopies(
  directory: string,
  unended: Unended,
  { now, signal }: { readonly now: Date; readonly signal: AbortSignal },
): Promise<RemovedDatasets> {
  const before = now.getTime() - DATASET_DAYS * DAY_MILLISECONDS;
  const old = (await copiesIn(directory)).filter(({ usedMs }) => usedMs < before);
  let [files, bytes] = [0, 0];
  for (const copy of await unneeded(old, unended)) {
    signal.throwIfAborted();
    if (!(await remove(copy, unended))) continue;
    files += 1;
    bytes += copy.bytes;
  }
  await removeNotes(directory, before);
  await removeUnnamedLinks(directory, () => notedPaths(directory), before);
  return { files, bytes };
}
