import { spawnSync } from "node:child_process";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** A set-up step that could not be done: the message tells the person what to do. */
export class SetupError extends Error {}

/**
 * Says what is done and why, does it, and stops the set-up when it fails. Output goes to stderr: stdout belongs to the program that follows.
 * @throws SetupError naming the command and its status.
 */
export function runStep(title, why, command, args, options = {}) {
  console.error(`\n▸ ${title} (${why})`);
  const result = spawnSync(command, args, { cwd: root, stdio: ["ignore", 2, 2], ...options });
  if (result.error) throw new SetupError(`${title} failed: ${result.error.message}`);
  if (result.status !== 0) throw new SetupError(`${title} failed: \`${command} ${args.join(" ")}\` ended with ${result.status ?? result.signal}`);
}
