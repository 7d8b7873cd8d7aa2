import { existsSync, readFileSync } from "node:fs";
import { countMissing, requiredMeasurements } from "@internevo/cost-model";
import { measuredSoFarPath } from "@internevo/stages";
import { getProfile } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";
import { profiler } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.start(profiler, { INTERNEVO_PROBE_SILENCE_SECONDS: "10" });
});
afterAll(() => world.close());

it("measures on when the probe's ranks hang", async () => {
  const id = await world.submit(
    smallJob({
      cluster: { name: "frozen", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      until: "profiling",
    }),
  );
  const path = measuredSoFarPath(world.dataDirectory, id);
  const kept = (): number => (existsSync(path) ? readFileSync(path, "utf8").split("\n").length : 0);
  await eventually("measured points", () => kept() > 5 && world.rankPids().length === 2, 120);
  const frozen = world.rankPids();
  for (const pid of frozen) process.kill(pid, "SIGSTOP");
  await eventually("other ranks", () => world.rankPids().some((pid) => !frozen.includes(pid)), 120);
  expect(world.rankPids().filter((pid) => frozen.includes(pid))).toEqual([]);
  await world.untilState(id, "succeeded", 300);
  const { profileId, spec } = await world.job(id);
  const record = await getProfile(world.database.db, profileId as string);
  expect(countMissing(record!.profile, requiredMeasurements(spec))).toBe(0);
}, 900_000);
