import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { lockDirectory } from "@internevo/local-stack";
import type { Settings } from "@internevo/testbed/options";
import { clustersFileOf, down, up, type State } from "@internevo/testbed/testbed";
import type { Place } from "./measure.ts";

export interface OnTestbed extends Required<Place> {
  readonly state: State;
}

/** A signal that ^C and its like abort while `work` runs; a second one ends the process at once. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const abort = (name: NodeJS.Signals): void => {
    if (stop.signal.aborted) process.exit(130);
    console.error(`${name}: ending the ranks and taking everything down; once more to leave at once`);
    stop.abort();
  };
  const names = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const name of names) process.on(name, abort);
  try {
    return await work(stop.signal);
  } finally {
    for (const name of names) process.off(name, abort);
  }
}

/**
 * Runs `work` on a testbed of its own, which is taken down afterwards, also on ^C. One that a killed
 * benchmark left is replaced.
 * @throws ProblemError `conflict` while another process has a testbed of the name.
 */
export async function onTestbed<T>(
  name: string,
  settings: Settings,
  signal: AbortSignal,
  work: (place: OnTestbed) => Promise<T>,
): Promise<T> {
  const directory = join(tmpdir(), `internevo-bench-${process.getuid?.() ?? 0}-${name}`);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const lock = lockDirectory(directory);
  try {
    await down(name);
    const { state } = await up(name, settings);
    try {
      return await work({ state, clustersFile: clustersFileOf(name), signal });
    } finally {
      await down(name);
    }
  } finally {
    lock.release();
  }
}
