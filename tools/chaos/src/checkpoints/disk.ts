import { execFile, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { NATIVE_DIRECTORY } from "./attempt.ts";

const run = promisify(execFile);

/** Names under which something whole is found: what is half made has another ending. */
export function checkpointSteps(directory: string): number[] {
  return readdirSync(directory)
    .flatMap((name) => (/^step-\d+$/.test(name) ? [Number(name.slice(5))] : []))
    .sort((a, b) => a - b);
}

export const leftovers = (directory: string): string[] =>
  readdirSync(directory).filter((name) => name.endsWith(".tmp"));

/** SHA-256 of every file of a checkpoint, by name. */
export function digestsOf(checkpoint: string): Readonly<Record<string, string>> {
  return Object.fromEntries(
    readdirSync(checkpoint)
      .sort()
      .map((name) => [
        name,
        createHash("sha256")
          .update(readFileSync(join(checkpoint, name)))
          .digest("hex"),
      ]),
  );
}

export const bytesOf = (checkpoint: string): number =>
  readdirSync(checkpoint).reduce((sum, name) => sum + readFileSync(join(checkpoint, name)).length, 0);

interface Verified {
  readonly event?: string;
  readonly message?: string;
  readonly ok?: boolean;
  readonly checkpoints?: readonly {
    readonly path: string;
    readonly problems: readonly { readonly file: string; readonly message: string }[];
  }[];
}

/** What `internevo-checkpoint verify` finds wrong: undefined when all is well. */
export async function verify(checkpoint: string): Promise<string | undefined> {
  const { stdout, code } = await run(
    join(NATIVE_DIRECTORY, "bin", "internevo-checkpoint"),
    ["verify", checkpoint],
    { timeout: 60_000 },
  ).then(
    (done) => ({ stdout: done.stdout, code: 0 as number | string }),
    (error: { stdout?: string; code?: number | string }) => ({
      stdout: error.stdout ?? "",
      code: error.code ?? "a signal",
    }),
  );
  const last = JSON.parse(stdout.trim().split("\n").at(-1) || "{}") as Verified;
  if (code === 0 && last.event === "result" && last.ok === true) return undefined;
  if (last.event === "error" && code === 5) return last.message;
  const problems = (last.checkpoints ?? []).flatMap(({ path, problems }) =>
    problems.map(({ file, message }) => `${join(path, file)}: ${message}`),
  );
  return code === 5 && problems.length > 0
    ? problems.join("; ")
    : `internevo-checkpoint ended by ${code} without saying why: ${stdout.slice(0, 300)}`;
}

function command(file: string, ...args: string[]): void {
  const { status, stderr, error } = spawnSync(file, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`${file} ${args.join(" ")} failed: ${error?.message ?? stderr.trim()}`);
}

/** A file system of its own, of a real size. Needs the mount namespace that checkpoints.ts makes. */
export const mountSmall = (directory: string, sizeBytes: number, files: number | null): void =>
  command(
    "mount",
    "-t",
    "tmpfs",
    "-o",
    `size=${sizeBytes}${files === null ? "" : `,nr_inodes=${files}`}`,
    "chaos",
    directory,
  );
export const makeRoom = (directory: string): void =>
  command("mount", "-o", "remount,size=256m,nr_inodes=100000", directory);
export const unmount = (directory: string): void => command("umount", directory);

/** From now on the process cannot make a file longer (RLIMIT_FSIZE). */
export const limitFileSize = (pid: number, bytes: number): void =>
  command("prlimit", "--pid", String(pid), `--fsize=${bytes}`);
