// Steps of making a Python environment, and what is said when one fails.
import { spawnSync } from "node:child_process";

/** Something that the check needs is not there; the message says what, and what to do. */
export class EnvironmentError extends Error {}

/** Runs one step of the making, and says in words what it was when it fails. */
export function step(
  what: string,
  note: string,
  remedy: string,
  command: string,
  args: readonly string[],
): void {
  console.error(`${what}${note} …`);
  const { status, error } = spawnSync(command, args, {
    stdio: ["ignore", 2, 2],
    env: { ...process.env, DS_BUILD_OPS: "0" },
  });
  if (error !== undefined)
    throw new EnvironmentError(`${what} failed: ${command} cannot be started (${error.message}). ${remedy}`);
  if (status !== 0) throw new EnvironmentError(`${what} failed, and above is why. ${remedy}`);
}
