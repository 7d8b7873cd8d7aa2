import { randomUUID } from "node:crypto";
import { readFileSync, readlinkSync } from "node:fs";
import { open, readdir, rename, rm, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { ifThere } from "@internevo/domain";

/** Of data that was prepared: other users of the machine may not read it. */
const OWN_FILE = 0o600;

/** Files that a writer of another machine has not touched for so long are nobody's. */
const ABANDONED_SECONDS = 600;

/** What names a kernel's process numbers for good: they mean the same to all who read the same here. */
const thisMachine = (): string => {
  const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").slice(0, 8);
  const [numbers = ""] = /\d+/.exec(readlinkSync("/proc/self/ns/pid")) ?? [];
  return `${boot}-${numbers}`;
};

/** When a process began, in the kernel's ticks; undefined where there is none. */
function startOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The command, in parentheses, may contain anything.
    return text.slice(text.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}

/** The end of a passing file's name says who writes it. */
const WRITER = /\.([0-9a-f]{8}-\d+)-(\d+)-(\d+)\.tmp$/;
/** A name for a file, or a folder, that only this process writes, and that is nobody's once it is dead. */
export const passingName = (path: string): string =>
  `${path}.${randomUUID()}.${thisMachine()}-${process.pid}-${String(startOf(process.pid))}.tmp`;

/**
 * Writes a file so that a reader sees all of it or nothing, even after a power cut. What fails leaves nothing.
 * @param fill writes it, and says its path, which may follow from what was written
 */
export async function writePassing<T extends { readonly path: string }>(
  base: string,
  fill: (handle: FileHandle) => Promise<T>,
): Promise<T> {
  const passing = passingName(base);
  try {
    const handle = await open(passing, "wx", OWN_FILE);
    let written: T;
    try {
      written = await fill(handle);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(passing, written.path);
    return written;
  } catch (error) {
    await rm(passing, { force: true });
    throw error;
  }
}

export async function isAbandoned(path: string): Promise<boolean> {
  const [, machine, pid, start] = WRITER.exec(path) ?? [];
  if (machine === thisMachine()) return startOf(Number(pid)) !== start;
  const found = await ifThere(() => stat(path));
  return found !== undefined && Date.now() - found.mtimeMs > ABANDONED_SECONDS * 1000;
}

/** Removes the passing files and folders in a folder that nobody writes any more. @returns their names */
export async function removeAbandoned(directory: string): Promise<string[]> {
  const names = (await ifThere(() => readdir(directory))) ?? [];
  const removed: string[] = [];
  for (const name of names.filter((one) => one.endsWith(".tmp"))) {
    const path = join(directory, name);
    if (!(await isAbandoned(path))) continue;
    await rm(path, { recursive: true, force: true });
    removed.push(name);
  }
  return removed;
}
