import { spawn } from "node:child_process";
import { dirname, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");

/** A set-up step that could not be done: the message tells the person what to do. */
export class SetupError extends Error {}

/**
 * Says what is done and why, does it, and stops the set-up when it fails. Output goes to stderr: stdout
 * belongs to the program that follows.
 * @param options of spawn, and `quiet`: output is shown only when the step fails.
 * @throws SetupError naming the command and its status.
 */
export async function runStep(title, why, command, args, { quiet = false, ...options } = {}) {
  console.error(`\n▸ ${title} (${why})`);
  const stdio = quiet ? ["ignore", "pipe", "pipe"] : ["ignore", 2, 2];
  const child = spawn(command, args, { cwd: root, stdio, ...options });
  const said = [];
  child.stdout?.on("data", (chunk) => said.push(chunk));
  child.stderr?.on("data", (chunk) => said.push(chunk));
  await succeeded(child, title, command, args, () => {
    if (quiet) console.error(Buffer.concat(said).toString());
  });
}

/** @throws SetupError, after `tell`, when the child does not end well. */
async function succeeded(child, title, command, args, tell) {
  const status = await new Promise((resolve, reject) => {
    child.once("error", (error) => reject(new SetupError(`${title} failed: ${error.message}`)));
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  if (status === 0) return;
  tell();
  throw new SetupError(`${title} failed: \`${command} ${args.join(" ")}\` ended with ${status}`);
}

/**
 * As runStep, quiet, for a step of minutes: its output is read while it runs, and shown only when it fails.
 * @param onLine is given every line of its standard output.
 */
export async function followStep(title, why, command, args, { onLine, ...options }) {
  console.error(`\n▸ ${title} (${why})`);
  const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"], ...options });
  const said = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    said.push(line);
    onLine(line);
  });
  createInterface({ input: child.stderr }).on("line", (line) => said.push(line));
  await succeeded(child, title, command, args, () => console.error(said.join("\n")));
}
