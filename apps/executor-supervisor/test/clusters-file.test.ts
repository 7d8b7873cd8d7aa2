import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { resumeJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { afterAll, beforeAll, expect, it } from "vitest";
import { executorSupervisor } from "../src/index.ts";

let world: World;
let directory: string;
let file: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "internevo-clusters-"));
  file = join(directory, "clusters.json");
  world = await createWorld();
  for (const service of [profiler, planner, trialRunner, executorSupervisor])
    await world.start(service as typeof profiler, { INTERNEVO_CLUSTERS: file });
}, 300_000);
afterAll(async () => {
  await world.close();
  rmSync(directory, { recursive: true });
});

const describeClusters = (slots: unknown): void =>
  writeFileSync(
    file,
    JSON.stringify({
      clusters: { lab: { hosts: [{ name: "localhost", slots }] }, badmod: { slurm: { modules: [5] } } },
    }),
  );
const submit = (profile: string | undefined): Promise<string> =>
  world.submit(
    smallJob({
      steps: 20,
      cluster: {
        name: "lab",
        launcher: "ssh",
        nodes: 1,
        gpusPerNode: 2,
        memoryPerGpu: "4GiB",
        ...(profile === undefined ? {} : { profile }),
      },
      trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
    }),
  );
const stateIs = (id: string, state: string) =>
  eventually(`the job is ${state}`, async () => (await world.job(id)).state === state, 120);

it("holds jobs of the cluster whose entry is wrong until somebody mends it, and no other's", async () => {
  describeClusters(2);
  await world.untilState(await submit(world.profileId), "succeeded", 200);

  describeClusters("two");
  const held = [await submit(world.profileId), await submit(undefined)];
  for (const id of held) {
    await stateIs(id, "held");
    expect((await world.job(id)).failure).toMatchObject({
      code: "not-started",
      message: expect.stringContaining(
        `the clusters file ${file} is not valid: clusters.lab.hosts.0.slots`,
      ) as string,
      remedy: expect.stringContaining("internevo resume") as string,
    });
  }
  rmSync(file);
  const unread = await submit(world.profileId);
  await stateIs(unread, "held");
  expect((await world.job(unread)).failure?.message).toContain("cannot be read");

  describeClusters(2);
  for (const id of [held[0] as string, unread]) {
    await world.database.transaction((tx) => resumeJob(tx, id));
    await stateIs(id, "succeeded");
  }
}, 900_000);
