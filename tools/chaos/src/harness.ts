import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { InternEvoClient } from "@internevo/client";
import type { JobState } from "@internevo/domain";
import {
  productServices,
  startLocalStack,
  type LocalStack,
  type LocalStackOptions,
} from "@internevo/local-stack";
import { parse } from "yaml";

export const STAGES = [
  "profiling",
  "planning",
  "trialling",
  "running",
] as const satisfies readonly JobState[];
export type Stage = (typeof STAGES)[number];

export interface TestedStack {
  readonly stack: LocalStack;
  readonly client: InternEvoClient;
  readonly dataDirectory: string;
}

/**
 * A real stack of its own, thrown away afterwards, and a client for it. @param chosen its services; all when
 * left out. @param settings more of their environment. @param servers how NATS runs, and how services reach it.
 */
export async function withStack<T>(
  work: (tested: TestedStack) => Promise<T>,
  chosen = productServices(),
  settings: Readonly<Record<string, string>> = {},
  servers: Pick<LocalStackOptions, "natsServers" | "addressesOf" | "databaseUrl"> = {},
): Promise<T> {
  const dataDirectory = await mkdtemp(join(tmpdir(), "internevo-chaos-"));
  // The profile only has to be real, not precise: what is tested is that nothing is lost.
  const services = chosen.map((service) => ({
    ...service,
    env: { ...service.env, INTERNEVO_PROBE_POINT_SECONDS: "0.05", ...settings },
  }));
  const stack = await startLocalStack({
    dataDirectory,
    services,
    ...servers,
    onRestart: (name, end) =>
      console.error(`  ${name} ended (${end.signal ?? end.code}) and is started again`),
  });
  try {
    const { apiUrl, apiToken } = stack.info();
    if (apiUrl === null) throw new Error("the stack has no API");
    return await work({
      stack,
      client: new InternEvoClient({ baseUrl: apiUrl, token: apiToken }),
      dataDirectory,
    });
  } finally {
    await stack.stop();
    await rm(dataDirectory, { recursive: true, force: true });
  }
}

/**
 * The quickstart's job, shortened. A cluster name of its own makes it profile for real; it checkpoints often,
 * so that a restart has something to go on from.
 */
export async function chaosJob(name: string): Promise<Record<string, unknown>> {
  const file = resolve(import.meta.dirname, "../../../examples/quickstart.yaml");
  const job = parse(await readFile(file, "utf8")) as Record<string, Record<string, unknown>>;
  return {
    ...job,
    name,
    steps: 60,
    checkpointing: { everySteps: 5, keepLast: 2 },
    trials: { count: 10, warmupSteps: 1, steps: 3 },
    optimizer: { ...job["optimizer"], warmupSteps: 5 },
    cluster: { ...job["cluster"], name },
  };
}

/** Asks until the answer is there: the API itself may be the process that was killed. */
export async function insist<T>(ask: () => Promise<T>, seconds = 60): Promise<T> {
  const deadline = performance.now() + seconds * 1000;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(200);
    }
  }
}

/** Waits until `done` says so, polling; fails loudly after `seconds`. */
export async function until(
  what: string,
  done: () => Promise<boolean> | boolean,
  seconds: number,
): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  while (!(await done())) {
    if (performance.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`);
    await sleep(50);
  }
}

/** Pids of native ranks of this machine whose stack is `dataDirectory`. */
export function rankPids(dataDirectory: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")[0] ?? "";
        return (
          /internevo-(trainer|probe)$/.test(command) &&
          readFileSync(`/proc/${pid}/environ`, "latin1").includes(dataDirectory)
        );
      } catch {
        return false; // gone meanwhile
      }
    });
}

/** Every process that belongs to a stack's directory. */
export function stackPids(dataDirectory: string): number[] {
  return readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        return (
          readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(dataDirectory) ||
          readFileSync(`/proc/${pid}/environ`, "latin1").includes(dataDirectory)
        );
      } catch {
        return false;
      }
    });
}
