import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

/** What is built is kept here. */
export const KEPT = resolve(import.meta.dirname, "../../../.tools/kubernetes");

export function go(cwd: string, args: readonly string[], stdio: "inherit" | "pipe"): string {
  const { status, error, stdout } = spawnSync("go", args, {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", stdio === "pipe" ? "pipe" : 2, "inherit"],
  });
  if (error) throw new Error(`go cannot be started: ${error.message}. Install Go 1.26 or newer`);
  if (status !== 0) throw new Error(`go ${args[0] ?? ""} ended with ${status}`);
  return stdout ?? "";
}

/** Programs of a Go module of this tool, whose versions the module pins. */
export interface GoPrograms {
  readonly module: string;
  readonly sources: readonly string[];
  readonly packages: readonly string[];
  readonly linked: string;
  /** A folder of the programs' own. */
  readonly directory: string;
  /** What is said before. */
  readonly words: string;
}

/** Builds programs, unless they are there. @returns whether they were built. */
export function buildGo({ module, sources, packages, linked, directory, words }: GoPrograms): boolean {
  const stamp = join(directory, "built-from");
  const wanted = createHash("sha256")
    .update([linked, ...sources.map((name) => readFileSync(join(module, name), "utf8"))].join("\0"))
    .digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return false;
  mkdirSync(directory, { recursive: true });
  rmSync(stamp, { force: true });
  console.error(words);
  go(
    module,
    ["build", "-p", "2", "-trimpath", "-ldflags", linked, "-o", `${directory}/`, ...packages],
    "inherit",
  );
  writeFileSync(stamp, wanted);
  return true;
}
