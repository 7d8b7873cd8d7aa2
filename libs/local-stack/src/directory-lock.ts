import { randomUUID } from "node:crypto";
import { existsSync, linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ProblemError } from "@internevo/domain";
import { refusal } from "./data-directory.ts";
import { processStart } from "./proc.ts";

interface Owner {
  readonly pid: number;
  readonly start: string;
}

function ownerOf(path: string): Owner | undefined {
  try {
    const owner = JSON.parse(readFileSync(path, "utf8")) as Owner;
    return processStart(owner.pid) === owner.start ? owner : undefined;
  } catch {
    // No lock, or one that its writer did not finish: locks appear whole, so it is nobody's.
    return undefined;
  }
}

export interface DirectoryLock {
  /** False when the lock was removed, with its directory or without. */
  isHeld(): boolean;
  release(): void;
}

/**
 * Takes a directory for this process, until `release` or its death. A lock of a dead process is replaced: its
 * pid must be alive and have begun when the lock says.
 * @throws ProblemError `conflict` while another process has it; `bad-request` where no file can be made
 * there.
 */
export function lockDirectory(directory: string): DirectoryLock {
  const path = join(directory, "stack.lock");
  const mine = join(directory, `stack.lock.${randomUUID()}`);
  try {
    writeFileSync(mine, JSON.stringify({ pid: process.pid, start: processStart(process.pid) }), {
      mode: 0o600,
    });
  } catch (error) {
    if (existsSync(mine)) rmSync(mine);
    throw refusal(directory, error as NodeJS.ErrnoException);
  }
  try {
    for (;;) {
      try {
        linkSync(mine, path);
        const isHeld = (): boolean => ownerOf(path)?.pid === process.pid;
        return { isHeld, release: () => void (isHeld() && rmSync(path, { force: true })) };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
      const owner = ownerOf(path);
      if (owner) {
        throw new ProblemError("conflict", `process ${owner.pid} uses ${directory} already`, [
          {
            field: "dataDirectory",
            value: directory,
            message: `is in use by process ${owner.pid}`,
            remedy:
              "`internevo status` prints its link, `internevo down` stops it; or choose another directory with --data-directory",
          },
        ]);
      }
      // Moved away under a name of our own: two processes that both saw a dead owner cannot both remove what
      // the faster one made.
      const aside = `${mine}.stale`;
      try {
        renameSync(path, aside);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
      if (ownerOf(aside)) {
        try {
          linkSync(aside, path);
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
        }
      }
      rmSync(aside, { force: true });
    }
  } finally {
    rmSync(mine, { force: true });
  }
}
