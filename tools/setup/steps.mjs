import { spawn, spawnSync } from "node:child_process";
import { dirname, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** A set-up step that could not be done: the message tells the person what to do. */
export class SetupError extends Error {}

/**
 * Says what is done and why, does it, and stops the set-up when it fails. Output goes to stderr: stdout belongs to the program that follows.
 * @param options of spawnSync, and `quiet`: output is shown only when the step fails.
 * @throws SetupError naming the command and its status.
 */
export function runStep(title, why, command, args, { quiet = false, ...options } = {}) {
  console.error(`\n▸ ${title} (${why})`);
  const stdio = quiet ? ["ignore", "pipe", "pipe"] : ["ignore", 2, 2];
  const result = spawnSync(command, args, {
    cwd: root,
    stdio,
    maxBuffer: 1 << 28,
    encoding: "utf8",
    ...options,
  });
  if (result.error) throw new SetupError(`${title} failed: ${result.error.message}`);
  if (result.status === 0) return;
  if (quiet) console.error(`${result.stdout}${result.stderr}`);
  throw new SetupError(
    `${title} failed: \`${command} ${args.join(" ")}\` ended with ${result.status ?? result.signal}`,
  );
}

/**
 * As runStep, quiet, for a step of minutes: its output is read while it runs, and shown only when it fails.
 * @param onLine is given every line of its standard output.
 */
export async function followStep(title, why, command, args, { onLine, ...options }) {
  console.error(`\n▸ ${title} (${why})`);
  const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"], ...options });
  const said = [];
  const ended = new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new SetupError(`${title} failed: ${error.message}`)));
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  createInterface({ input: child.stdout }).on("line", (line) => {
    said.push(line);
    onLine(line);
  });
  createInterface({ input: child.stderr }).on("line", (line) => said.push(line));
  const status = await ended;
  if (status === 0) return;
  console.error(said.join("\n"));
  throw new SetupError(`${title} failed: \`${command} ${args.join(" ")}\` ended with ${status}`);
}
