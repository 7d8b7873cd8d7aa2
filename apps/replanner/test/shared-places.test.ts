import { eventually } from "@internevo/test-kit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { resolveJob } from "@internevo/domain";
import { createProject, createWorkload, deleteWorkload, fireWorkloadNow, getFiring } from "@internevo/store";
import { MOST_AT_A_TIME } from "@internevo/stages";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { replanner } from "../src/index.ts";

let world: World;
beforeAll(async () => void (world = await createWorld()));
afterAll(() => world.close());

/** So many plans that none of these searches ends within the test. */
const VAST = {
  model: {
    name: "vast",
    hiddenSize: 10_080,
    layers: 720,
    heads: 5040,
    kvHeads: 5040,
    ffnHiddenSize: 50_400,
    vocabularySize: 50_400,
  },
  precision: "bf16",
  sequenceLengthTokens: 720_720,
  globalBatchTokens: 720_720 * 5040,
};

async function runNow(name: string, project: string, over: Record<string, unknown> = {}) {
  const { db } = world.database;
  const cluster = { name, nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" };
  const size = over["model"] === undefined ? {} : { nodes: 630 };
  const spec = resolveJob(smallJob({ project, ...over, cluster: { ...cluster, ...size } }));
  const { id } = await createWorkload(db, {
    name,
    spec,
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 3600,
    gainThreshold: 0.05,
    nextRunAt: null,
  });
  return { id, firing: await world.database.transaction((tx) => fireWorkloadNow(tx, id)) };
}

const PATIENCE_SECONDS = 120;

it(
  "answers a project's workload while another one has more long searches than there are places",
  async () => {
    const { db } = world.database;
    for (const name of ["greedy", "modest"])
      await world.database.transaction((tx) => createProject(tx, { name }));
    await world.start(replanner);
    const vast: string[] = [];
    for (let at = 0; at < MOST_AT_A_TIME + 6; at += 1)
      vast.push((await runNow(`vast-${at}`, "greedy", VAST)).id);
    const held = async (): Promise<number> => {
      const { rows } = await db.execute(
        "select count(*)::int as held from leases where resource like 'workload:%' and expires_at > clock_timestamp()",
      );
      return (rows[0] as { held: number }).held;
    };
    // As many as one project may have at once.
    await eventually("greedy's places", async () => (await held()) >= MOST_AT_A_TIME / 2, PATIENCE_SECONDS);
    const { firing } = await runNow("small", "modest", { precision: "bf16" });
    const ended = await eventually(
      "modest's answer",
      async () => {
        const now = await getFiring(db, firing.id);
        return now && now.state !== "pending" && now;
      },
      PATIENCE_SECONDS,
      world.logs,
    );
    expect(ended.outcome).not.toBeNull();
    expect(await held()).toBeGreaterThan(0);
    for (const id of vast) await deleteWorkload(db, id);
  },
  4 * PATIENCE_SECONDS * 1000,
);
