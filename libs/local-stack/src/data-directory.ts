import { accessSync, constants, existsSync, mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { ProblemError } from "@internevo/domain";

/** What is wrong with a directory, in words. */
const REASONS: Readonly<Record<string, readonly [message: string, remedy: string]>> = {
  ENOTDIR: ["leads through something that is no directory", "choose a directory"],
  EEXIST: ["is no directory", "choose a directory"],
  EACCES: ["may not be written by this user", "choose a directory of yours, or change its rights"],
  EPERM: ["is in a file system that refuses new directories", "choose a directory in another file system"],
  ENOENT: ["is in a file system that refuses new directories", "choose a directory in another file system"],
  EROFS: ["is in a file system that is read-only", "choose a directory in another file system"],
  ENOSPC: ["is in a file system that is full", "make room, or choose another directory"],
  ENAMETOOLONG: ["is too long", "choose a shorter path"],
  ELOOP: ["leads through links that lead in a circle", "choose another directory"],
};

/** Why a directory cannot be a stack's, from what the file system said. */
export const refusal = (directory: string, error: NodeJS.ErrnoException): ProblemError => {
  const [message, remedy] = REASONS[error.code ?? ""] ?? [
    `cannot be used (${error.code ?? error.message})`,
    "choose another directory",
  ];
  return new ProblemError(
    "bad-request",
    `the data directory ${directory} ${message}`,
    [{ field: "dataDirectory", value: directory, message, remedy }],
    { cause: error },
  );
};

/**
 * Makes a directory with its parents, one by one. Not by mkdir's `recursive`, which never returns in a file
 * system that has no place for new directories and says "no such file" (/proc): it makes the parents, which
 * are there, and begins again.
 */
function makeWithParents(directory: string): void {
  const missing: string[] = [];
  for (
    let at = directory;
    statSync(at, { throwIfNoEntry: false }) === undefined && dirname(at) !== at;
    at = dirname(at)
  )
    missing.push(at);
  for (const path of missing.reverse()) {
    try {
      mkdirSync(path, { mode: 0o700 });
    } catch (error) {
      // Somebody else may make it at the same moment; a file in its place fails below.
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}

/**
 * Makes a stack's data directory, and its folder of logs, unless they are there.
 * @throws ProblemError `bad-request` with the path, what is wrong with it, and what to do.
 */
export function makeDataDirectory(directory: string): void {
  try {
    makeWithParents(join(directory, "logs"));
    accessSync(directory, constants.R_OK | constants.W_OK | constants.X_OK);
    if (!statSync(join(directory, "logs")).isDirectory())
      throw Object.assign(new Error("no directory"), { code: "EEXIST" });
  } catch (error) {
    throw refusal(directory, error as NodeJS.ErrnoException);
  }
}

/** Lies in a data directory while a backup is restored into it. */
export const RESTORE_MARKER = "restore-unfinished";

/**
 * Refuses a directory into which a backup was restored in part: a stack would run with what is there.
 * @throws ProblemError `conflict`
 */
export function assertNotHalfRestored(directory: string): void {
  if (!existsSync(join(directory, RESTORE_MARKER))) return;
  throw new ProblemError("conflict", `a restore into ${directory} is not finished`, [
    {
      field: "dataDirectory",
      value: directory,
      message: "holds a part of a backup: `internevo restore` is at work there, or was ended",
      remedy: "wait for it; if it was ended, remove the directory and restore once more",
    },
  ]);
}
