import { existsSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { ProblemError } from "@internevo/domain";

export const cannotWrite = (path: string, message: string, remedy: string, cause?: unknown): ProblemError =>
  new ProblemError("bad-request", `${path} ${message}`, [{ field: "--out", value: path, message, remedy }], {
    cause,
  });

/**
 * Writes files, each named by its path, that must not exist yet: all of them, or none. @returns where they
 * are.
 */
export async function writeNew(
  files: readonly { readonly name: string; readonly text: string }[],
): Promise<string[]> {
  const paths = files.map(({ name }) => name);
  const taken = paths.find((path) => existsSync(path));
  if (taken !== undefined) throw cannotWrite(taken, "exists already", "give another place, or remove it");
  for (const [index, path] of paths.entries()) {
    try {
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, files[index]?.text ?? "", { flag: "wx" });
    } catch (error) {
      const isTaken = (error as NodeJS.ErrnoException).code === "EEXIST";
      for (const written of isTaken ? paths.slice(0, index) : paths.slice(0, index + 1))
        // What kept it from being written may keep it from being removed: the first error is the one to tell.
        await rm(written, { force: true }).catch(() => undefined);
      throw cannotWrite(
        path,
        `cannot be written (${(error as NodeJS.ErrnoException).code ?? String(error)})`,
        "give a place that may be written",
        error,
      );
    }
  }
  return paths.map((path) => resolve(path));
}
