import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { findShippedProfile } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { inNameOf } from "../src/work/caller.ts";
import { createProcessPool } from "../src/work/process-pool.ts";
import { StoppableThreads } from "../src/work/stoppable-threads.ts";
import { createWorkers, type Workers } from "../src/work/workers.ts";

const as = <T>(token: string, work: () => Promise<T>): Promise<T> =>
  new Promise((resolve, reject) => inNameOf(token, () => void work().then(resolve, reject)));
const outcome = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error);

/** Threads that this process makes from now on. */
let made: number;
const count = (): void => void (made += 1);
beforeEach(() => void ((made = 0), process.on("worker", count)));
afterEach(() => void process.off("worker", count));

describe("searches that are asked for and left, again and again", () => {
  let workers: Workers;
  afterEach(() => workers.close());

  it("end no thread, and keep no other token's waiting for a new one", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    workers = createWorkers({ planThreads: 2, idleThreadSeconds: 600 });
    const job = (name: string, over: object): Parameters<Workers["plan"]>[0] => ({
      spec: resolveJob({
        name,
        model: "llama-7b",
        sequenceLengthTokens: 4096,
        globalBatchTokens: 1024 * 4096,
        cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
        ...over,
      }),
      profile,
      top: 1,
    });
    /** Takes seconds. */
    const deep = (name: string) =>
      job(name, {
        model: { hiddenSize: 1024, heads: 16, layers: 2000, vocabularySize: 256 },
        sequenceLengthTokens: 1024,
        globalBatchTokens: 16 * 720_720 * 1024,
        cluster: { nodes: 72_072, gpusPerNode: 8, memoryPerGpu: "80TB" },
      });
    const greedy = async (at: number): Promise<void> => {
      for (let round = 0; round < 12; round += 1) {
        const gone = new AbortController();
        const asked = as("greedy", () => workers.plan(deep(`deep-${at}-${round}`), gone.signal));
        const left = pause(100 * (at + 1)).then(() => gone.abort(new Error("gone")));
        await expect(asked).rejects.toThrow("gone");
        await left;
      }
    };
    const small = (name: string) => as("modest", () => workers.plan(job(name, {})));
    // Both threads are there before anybody leaves.
    await Promise.all([small("first"), small("second")]);
    const all = Promise.all([0, 1, 2, 3].map(greedy));
    for (let round = 0; round < 5; round += 1) {
      expect((await small(`small-${round}`)).candidates).toHaveLength(1);
    }
    await all;
    // Two for what is quick, and two for what takes some seconds.
    expect(made).toBeLessThanOrEqual(4);
  });
});

describe("a thread that does not come back", () => {
  it("is ended, and its turn lasts until another one is ready", async () => {
    const threads = new StoppableThreads(
      { filename: new URL("./left-thread.ts", import.meta.url).href, minThreads: 0, maxThreads: 1 },
      () => undefined,
    );
    onTestFinished(() => threads.destroy());
    const never = new AbortController().signal;
    const first = await threads.run({}, { name: "who", signal: never });
    const gone = new AbortController();
    const stuck = threads.run({}, { name: "spin", signal: gone.signal });
    gone.abort(new Error("gone"));
    expect(await outcome(stuck)).toBeInstanceOf(Error);
    expect(made).toBe(2);
    expect(await threads.run({}, { name: "who", signal: never })).not.toBe(first);
    expect(made).toBe(2);
  });
});

describe("checks that are asked for and left", () => {
  let directory: string;
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), "internevo-left-"))));
  afterEach(() => rmSync(directory, { recursive: true }));

  it("leave their process to the next; only one that does not come back is killed", async () => {
    const pool = createProcessPool(join(import.meta.dirname, "left-check.ts"));
    onTestFinished(() => pool.destroy());
    const never = new AbortController().signal;
    const first = await pool.run({}, { signal: never });
    for (let round = 0; round < 3; round += 1) {
      const gone = new AbortController();
      const left = pool.run({}, { signal: gone.signal });
      gone.abort(new Error("gone"));
      await outcome(left);
    }
    expect(await pool.run({}, { signal: never })).toBe(first);
    const pipe = join(directory, "pipe");
    execFileSync("mkfifo", [pipe]);
    const gone = new AbortController();
    const stuck = pool.run({ pipe }, { signal: gone.signal });
    gone.abort(new Error("gone"));
    await expect(stuck).rejects.toThrow("gone");
    expect(await pool.run({}, { signal: never })).not.toBe(first);
  });
});
