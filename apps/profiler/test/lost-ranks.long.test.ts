import { existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { countMissing, requiredMeasurements } from "@internevo/cost-model";
import { measuredSoFarPath } from "@internevo/stages";
import { getProfile, requestCancel, resumeJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";
import { profiler } from "../src/index.ts";

const LIMIT = 2;

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.start(profiler, { INTERNEVO_LOST_RANK_LIMIT: String(LIMIT) });
});
afterAll(() => world.close());

const submit = (name: string): Promise<string> =>
  world.submit(
    smallJob({ cluster: { name, nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" }, until: "profiling" }),
  );

const resume = (id: string) => world.database.transaction((tx) => resumeJob(tx, id));

/** What is kept of each point, by what was measured; attempts are counted apart. */
function kept(id: string): { readonly attempts: number; readonly points: string[] } {
  const path = measuredSoFarPath(world.dataDirectory, id);
  const records = (existsSync(path) ? readFileSync(path, "utf8") : "")
    .split("\n")
    .slice(1, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const points = records.flatMap(({ kind, event, slice }) => {
    if (kind === "slice") return [JSON.stringify((slice as { shape: unknown }).shape)];
    if (kind !== "probe") return kind === "attempt" ? [] : [String(kind)];
    const { event: name, shape, op, bytes, groupSize } = event as Record<string, unknown>;
    return name === "hosts" ? [] : [JSON.stringify([name, shape, op, bytes, groupSize])];
  });
  return { attempts: records.filter(({ kind }) => kind === "attempt").length, points };
}

/** A point of a slice stands for one of its rounds. */
const mostOften = (points: readonly string[]): number =>
  Math.max(...Object.values(Object.groupBy(points, (point) => point)).map((same) => same?.length ?? 0));

async function isComplete(id: string): Promise<boolean> {
  const { profileId, spec } = await world.job(id);
  const record = profileId === null ? undefined : await getProfile(world.database.db, profileId);
  return record !== undefined && countMissing(record.profile, requiredMeasurements(spec)) === 0;
}

function killRanks(): void {
  for (const pid of world.rankPids())
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      // It may have ended by itself.
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
}

it("measures on with what it has, however often ranks are killed while points are newly measured", async () => {
  const id = await submit("killed-again");
  const whole = requiredMeasurements((await world.job(id)).spec);
  const seen: number[] = [];
  // Ranks that are killed when they have just ended in order cost nothing: the same attempt goes on.
  while (kept(id).attempts <= LIMIT + 2) {
    const before = kept(id).points.length;
    await eventually(
      "newly measured points, and ranks",
      () => kept(id).points.length > before + 3 && world.rankPids().length > 0,
      120,
      world.logs,
    );
    seen.push(kept(id).points.length);
    killRanks();
    await world.untilNoRanks();
    await eventually("ranks", () => world.rankPids().length > 0, 120, world.logs);
  }
  await eventually("slices", () => kept(id).points.length > whole.modules.length + 20, 240);
  expect(seen).toEqual([...seen].sort((a, b) => a - b));
  expect(mostOften(kept(id).points.filter((point) => point.startsWith("[")))).toBe(1);
  await world.untilState(id, "succeeded", 300);
  expect(await isComplete(id)).toBe(true);
  // The next measurement of the cluster measures everything.
  expect(existsSync(measuredSoFarPath(world.dataDirectory, id))).toBe(false);
}, 900_000);

it("is held with its reason when nothing is newly measured, and goes on when it is let", async () => {
  const id = await submit("killed-at-once");
  const killing = new AbortController();
  const killer = (async () => {
    while (!killing.signal.aborted) {
      killRanks();
      await sleep(20);
    }
  })();
  await world.untilState(id, "held", 120);
  killing.abort();
  await killer;
  expect((await world.job(id)).failure).toMatchObject({
    code: "too-many-restarts",
    message: expect.stringMatching(/^2 attempts in a row ended without a newly measured point; the last: /),
    remedy: expect.stringContaining("internevo resume"),
  });
  expect(await resume(id)).toEqual({ outcome: "resumed", from: "held", stage: "profiling" });
  await eventually("the profile", async () => (await world.job(id)).state === "succeeded", 300);
  expect(await isComplete(id)).toBe(true);
  expect((await world.job(id)).failure).toBeNull();
}, 900_000);

it("measures only what is missing when a cancelled job goes on", async () => {
  const id = await submit("cancelled-once");
  await eventually("measured points", () => kept(id).points.length > 5, 120);
  await world.database.transaction((tx) => requestCancel(tx, id));
  await world.untilState(id, "cancelled", 60);
  const { points } = kept(id);
  expect(await resume(id)).toMatchObject({ outcome: "resumed", stage: "profiling" });
  await eventually("newly measured points", () => kept(id).points.length > points.length, 120);
  expect(kept(id).points.slice(0, points.length)).toEqual(points);
  expect(mostOften(kept(id).points.filter((point) => point.startsWith("[")))).toBe(1);
  await eventually("the profile", async () => (await world.job(id)).state === "succeeded", 300);
  expect(await isComplete(id)).toBe(true);
}, 900_000);
