import { existsSync, readdirSync, rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isAtRest, resolveJob, type JobState } from "@internevo/domain";
import { productServices, startLocalStack, type LocalStack } from "@internevo/local-stack";
import {
  allSteps,
  findRun,
  getJob,
  listAttempts,
  openDatabase,
  resumeJob,
  submitJob,
  type Database,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { QUICK, smallJob } from "@internevo/test-kit/world";
import { backupsIn, ok } from "./backups.ts";
import { run } from "./processes.ts";

/** So many that a backup begins and ends in the middle of them, on an idle machine too. */
const STEPS = 800;
const EVERY = 20;

const folder = (name: string): string => join(root, name);
let root: string;
let stack: LocalStack;
let database: Database;
/** In the order in which they train: one machine runs one of them at a time. */
const ids: string[] = [];

/** The stages of a job, without the replanner and the API, which submit nothing here. */
const services = productServices()
  .filter(({ name }) => name !== "api" && name !== "replanner")
  .map((service) => ({ ...service, env: QUICK }));

async function startStack(dataDirectory: string, withServices: boolean): Promise<LocalStack> {
  return startLocalStack({
    dataDirectory,
    services: withServices ? services : [],
    databaseUrl: "",
    natsUrl: "",
    durable: false,
  });
}

const open = (url: string): Database => openDatabase({ url, applicationName: "test" });

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "internevo-backup-"));
  stack = await startStack(folder("old"), true);
  database = open(stack.info().databaseUrl);
  for (const name of ["first", "second"]) {
    const job = smallJob({
      name,
      steps: STEPS,
      cluster: { name: "small", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
      trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
      checkpointing: { everySteps: EVERY, keepLast: 2 },
    });
    const id = await database.transaction((tx) => submitJob(tx, resolveJob(job)));
    ids.push(id);
    // Whoever asks first has the hosts first.
    if (ids.length === 1)
      await eventually(
        "the first job's hosts",
        async () => (await stateOf(database, id)) !== "profiling",
        60,
      );
  }
}, 300_000);
afterAll(async () => {
  await database.close();
  await stack.stop();
  rmSync(root, { recursive: true, force: true });
});

const stepsOf = async (of: Database, id: string) => {
  const found = await findRun(of.db, id);
  return found ? allSteps(of.db, found.id) : [];
};
const lossesOf = async (of: Database, id: string) => (await stepsOf(of, id)).map(({ loss }) => loss);
const stateOf = async (of: Database, id: string): Promise<JobState | undefined> =>
  (await getJob(of.db, id))?.state;

const { backUp, restore } = backupsIn(folder);

/** Waits until a job has stored more steps than so many. */
const trains = (id: string, steps: number): Promise<true> =>
  eventually(
    `step ${steps} of job ${id}`,
    async () => {
      const job = await getJob(database.db, id);
      if (job?.state === "failed") throw new Error(`job ${job.name} failed: ${job.reason ?? ""}`);
      return (await stepsOf(database, id)).length > steps;
    },
    240,
  );

const checkpointsIn = (dataDirectory: string, id: string): number[] => {
  const directory = join(dataDirectory, "jobs", id, "checkpoints");
  return (existsSync(directory) ? readdirSync(directory) : [])
    .map((name) => Number(/^step-(\d+)$/.exec(name)?.[1] ?? Number.NaN))
    .sort((a, b) => a - b);
};

/** What must agree of a job, in a restored stack that does not work. */
async function assertAgrees(of: Database, dataDirectory: string, id: string): Promise<void> {
  const steps = (await stepsOf(of, id)).map(({ step }) => step);
  expect(steps).toEqual(steps.map((_, index) => index + 1));
  const found = await findRun(of.db, id);
  const last = found && (await listAttempts(of.db, found.id)).at(-1);
  expect(last?.state).not.toBe("running");
  const { rows } = await of.db.execute<{ step: number }>(
    `select coalesce(checkpoint_step, resumed_from_step) as step from attempts a join runs r on r.id = a.run_id
     where r.job_id = '${id}' order by number desc limit 1`,
  );
  const announced = rows[0]?.step ?? 0;
  const present = checkpointsIn(dataDirectory, id);
  expect(present.at(-1) ?? 0).toBe(announced);
  if (announced === 0) return;
  // Training goes on from a checkpoint whose steps are all stored.
  if (steps.length < announced) expect(present.some((step) => step <= steps.length)).toBe(true);
  for (const step of present) {
    const path = join(dataDirectory, "jobs", id, "checkpoints", `step-${step}`);
    expect((await run(["checkpoint", "verify", path])).status).toBe(0);
  }
}

describe("a backup under load", { timeout: 1_200_000 }, () => {
  const taken: string[] = [];
  const original = new Map<string, number[]>();

  it("is taken again and again while jobs train", async () => {
    for (const [at, id] of ids.entries()) {
      await trains(id, 30);
      // The second comes at once, of the same training.
      for (const again of at === 0 ? [1, 2] : [1]) {
        const name = `backup-${at}-${again}`;
        const { stderr } = await ok(backUp(name));
        expect(stderr).toContain("2 jobs");
        expect(stderr).not.toContain("warning");
        taken.push(name);
      }
    }
    expect(existsSync(folder("old/backup.staging"))).toBe(false);
    for (const id of ids) {
      await eventually(`the end of job ${id}`, async () => isAtRest((await stateOf(database, id))!), 300);
      expect(await stateOf(database, id)).toBe("succeeded");
      original.set(id, await lossesOf(database, id));
      expect(original.get(id)).toHaveLength(STEPS);
    }
  });

  it("restores to jobs whose state, steps and checkpoints agree, held until somebody lets them go on", async () => {
    /** Jobs that were in the middle of their training. */
    let atWork = 0;
    for (const name of taken) {
      await ok(restore(name, `${name}-restored`));
      const dataDirectory = folder(`${name}-restored`);
      const restored = await startStack(dataDirectory, false);
      const there = open(restored.info().databaseUrl);
      try {
        for (const id of ids) {
          await assertAgrees(there, dataDirectory, id);
          const losses = await lossesOf(there, id);
          expect(losses).toEqual(original.get(id)?.slice(0, losses.length));
          const job = await getJob(there.db, id);
          if (job?.state === "succeeded") continue;
          if (losses.length > 0) atWork += 1;
          expect(job).toMatchObject({
            state: "held",
            reason: expect.stringMatching(/^restored from a backup of 20.* UTC$/) as string,
          });
        }
      } finally {
        await there.close();
        await restored.stop();
      }
    }
    expect(atWork).toBeGreaterThan(0);
  });

  it("goes on to the same losses bit by bit, where it is asked to and where somebody resumes it", async () => {
    for (const [from, goesOn] of [
      [taken[1], true],
      [taken[0], false],
    ] as const) {
      const into = `goes-on-${String(goesOn)}`;
      await ok(restore(from as string, into, ...(goesOn ? ["--go-on"] : [])));
      const restored = await startStack(folder(into), true);
      const there = open(restored.info().databaseUrl);
      try {
        if (!goesOn)
          for (const id of ids)
            if ((await stateOf(there, id)) === "held") await there.transaction((tx) => resumeJob(tx, id));
        for (const id of ids) {
          await eventually(`the end of job ${id}`, async () => isAtRest((await stateOf(there, id))!), 300);
          expect([await stateOf(there, id), (await getJob(there.db, id))?.reason]).toEqual([
            "succeeded",
            null,
          ]);
          expect(await lossesOf(there, id)).toEqual(original.get(id));
        }
      } finally {
        await there.close();
        await restored.stop();
      }
    }
  });
});
