import { readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { JobStreamEvent } from "@internevo/contracts";
import { isAtRest } from "@internevo/domain";
import { subscribeJobEvents } from "@internevo/store";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import { executorSupervisor } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner]) await world.start(service as typeof profiler);
  await world.start(executorSupervisor);
});
afterAll(() => world.close());

/** The run directories that live ranks work in, one a cluster. */
const directoriesOfRanks = (): Set<string> =>
  new Set(
    world.rankPids().flatMap((pid) => {
      try {
        // One that only waits to be reaped works no more.
        return / Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"))
          ? []
          : [readlinkSync(`/proc/${pid}/cwd`)];
      } catch {
        return []; // it has ended
      }
    }),
  );

type Interval = readonly [from: number, to: number];

/** When the job's trials ran, and when it trained, by its own events. */
async function intervalsOf(jobId: string): Promise<Interval[]> {
  const events: JobStreamEvent[] = [];
  for await (const event of subscribeJobEvents(world.database, jobId, 0, {
    signal: AbortSignal.timeout(30_000),
    pollSeconds: 0.2,
  })) {
    events.push(event);
    if (event.type === "state" && isAtRest(event.data["to"] as "failed")) break;
  }
  const trials = events.flatMap(({ type, data }) => {
    const { startedAt, endedAt } = (data["trial"] ?? {}) as { startedAt?: string; endedAt?: string | null };
    return type === "trial" && startedAt && endedAt
      ? [[Date.parse(startedAt), Date.parse(endedAt)] as const]
      : [];
  });
  const steps = events.flatMap(({ type, data }) =>
    type === "step" ? [Date.parse(data["at"] as string)] : [],
  );
  return [...trials, [Math.min(...steps), Math.max(...steps)]];
}

const overlap = ([a, b]: Interval, [c, d]: Interval): boolean => a < d && c < b;

it("two clusters of one machine never measure or train at once", async () => {
  const job = (cluster: string) =>
    smallJob({
      name: cluster,
      cluster: { name: cluster, nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      steps: 150,
    });
  const ids = await Promise.all(["one", "another"].map((cluster) => world.submit(job(cluster))));
  const seen = new Set<string>();
  const ended = Promise.all(ids.map((id) => world.untilState(id, "succeeded", 400)));
  let over = false;
  // A failure is thrown where `ended` is awaited, below.
  void ended.finally(() => (over = true)).catch(() => {});
  while (!over) {
    const now = directoriesOfRanks();
    for (const directory of now) seen.add(directory);
    expect([...now].length, `ranks of several clusters at once: ${[...now].join(", ")}`).toBeLessThanOrEqual(
      1,
    );
    await sleep(20);
  }
  await ended;
  expect(seen.size).toBe(2);
  const [one = [], another = []] = await Promise.all(ids.map(intervalsOf));
  expect(one.length).toBeGreaterThan(1);
  expect(another.length).toBeGreaterThan(1);
  expect(one.flatMap((a) => another.filter((b) => overlap(a, b)))).toEqual([]);
}, 900_000);
