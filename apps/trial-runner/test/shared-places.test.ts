import { mkdtempSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { encodeHeader, FULLY_READ_BYTES, TOKEN_FILE } from "@internevo/data";
import { resolveJob } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { MOST_AT_A_TIME } from "@internevo/stages";
import { createProject, createTrials, submitJob, transitionJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { trialRunner } from "../src/index.ts";

let world: World;
let directory: string;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "internevo-places-"));
  world = await createWorld();
});
afterAll(async () => {
  await world.close();
  rmSync(directory, { recursive: true });
});

/** Tokens that take seconds to read, and of which only the last is beyond every vocabulary. */
async function longTokens(): Promise<string> {
  const path = join(directory, "long.tokens");
  const tokenCount = (FULLY_READ_BYTES - TOKEN_FILE.headerBytes) / 2;
  const handle = await open(path, "w");
  await handle.write(encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize: 256 }), 0, 64, 0);
  await handle.write(Buffer.from([255, 255]), 0, 2, FULLY_READ_BYTES - 2);
  await handle.close();
  return path;
}

/** Jobs that stand before their trials. */
async function trialling(count: number, job: Record<string, unknown>): Promise<string[]> {
  const spec = resolveJob(job);
  const cluster = { ...spec.cluster, memoryPerGpuBytes: 1e12 };
  const { runnableCandidates } = planJob({ ...spec, cluster }, world.profile, { top: 1 });
  const ids: string[] = [];
  await world.database.transaction(async (tx) => {
    for (let at = 0; at < count; at += 1) {
      const id = await submitJob(tx, spec);
      await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
      await createTrials(tx, id, runnableCandidates.slice(0, 1));
      await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
      ids.push(id);
    }
  });
  return ids;
}

const held = async (): Promise<number> => {
  const { rows } = await world.database.db.execute(
    "select count(*)::int as held from leases where resource like 'job:%' and expires_at > clock_timestamp()",
  );
  return (rows[0] as { held: number }).held;
};

it("tries a project's job while another one has more data to prepare than there are places", async () => {
  for (const name of ["greedy", "modest"])
    await world.database.transaction((tx) => createProject(tx, { name }));
  const data = { format: "tokens", path: await longTokens() };
  await trialling(2 * MOST_AT_A_TIME + 4, smallJob({ project: "greedy", data }));
  await world.start(trialRunner);
  await eventually("greedy's places", async () => (await held()) >= MOST_AT_A_TIME, 60, world.logs);
  const trials = { count: 1, warmupSteps: 1, steps: 2 };
  const [modest = ""] = await trialling(1, smallJob({ project: "modest", trials }));
  await world.untilState(modest, "running", 60);
  expect(await held()).toBeGreaterThan(MOST_AT_A_TIME / 2);
}, 400_000);
