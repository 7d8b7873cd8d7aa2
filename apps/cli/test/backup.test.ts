import { createHash, randomUUID } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
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
import { createTestDatabase, testStack } from "@internevo/test-kit/stack";
import { QUICK, smallJob } from "@internevo/test-kit/world";
import { run, start, type Ended } from "./processes.ts";

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
  for (const name of ["first", "second", "third"]) {
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

const backUp = (to: string): Promise<Ended> => run(["backup", folder(to), "--data-directory", folder("old")]);
const restore = (from: string, into: string, ...more: string[]): Promise<Ended> =>
  run(["restore", folder(from), "--data-directory", folder(into), ...more]);
const ok = async (ended: Promise<Ended>): Promise<Ended> => {
  const said = await ended;
  expect([said.status, said.stderr]).toEqual([0, expect.any(String)]);
  return said;
};

/** Waits until a job has stored more steps than so many. */
const trains = (id: string, steps: number): Promise<true> =>
  eventually(
    `step ${steps} of job ${id}`,
    async () => {
      expect(await stateOf(database, id)).not.toBe("failed");
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
    expect((await run(["checkpoint", "verify", path])).stdout).toBeTruthy();
  }
}

describe("a backup under load", { timeout: 1_200_000 }, () => {
  const taken: string[] = [];
  const original = new Map<string, number[]>();

  it("is taken again and again while jobs train", async () => {
    for (const [at, id] of ids.entries()) {
      await trains(id, 50);
      for (const again of [1, 2]) {
        const name = `backup-${at}-${again}`;
        const { stderr } = await ok(backUp(name));
        expect(stderr).toContain("3 jobs");
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
      [taken[2], true],
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

/** Whatever a backup has written beside its target, or at it. */
const besides = (name: string): string[] => readdirSync(root).filter((each) => each.includes(name));

describe("a backup that is killed", { timeout: 600_000 }, () => {
  it("leaves nothing that looks like a backup, and the next one removes the rest", async () => {
    const staging = folder("old/backup.staging");
    const moments: readonly (readonly [what: string, came: () => boolean])[] = [
      ["files are held", () => existsSync(join(staging, "jobs"))],
      [
        "tables are written",
        () => besides("killed").some((each) => existsSync(join(root, each, "database"))),
      ],
      ["files are copied", () => besides("killed").some((each) => existsSync(join(root, each, "files")))],
    ];
    for (const [what, came] of moments) {
      const killed = start(["backup", folder("killed"), "--data-directory", folder("old")]);
      await eventually(what, () => came() || killed.child.exitCode !== null, 60);
      killed.child.kill("SIGKILL");
      await killed.ended;
      // It may have been faster.
      if (killed.child.exitCode === 0) rmSync(folder("killed"), { recursive: true });
      expect(existsSync(folder("killed"))).toBe(false);
    }
    await ok(backUp("after"));
    expect(besides("killed")).toEqual([]);
    expect(existsSync(staging)).toBe(false);
    for (const id of ids) expect(await stateOf(database, id)).toBe("succeeded");
  });

  it("by Ctrl-C removes what it began", async () => {
    const interrupted = start(["backup", folder("interrupted"), "--data-directory", folder("old")]);
    await eventually("its begin", () => existsSync(folder("old/backup.staging")), 60);
    interrupted.child.kill("SIGINT");
    const { status } = await interrupted.ended;
    if (status === 0) return;
    expect([status, besides("interrupted"), existsSync(folder("old/backup.staging"))]).toEqual([
      130,
      [],
      false,
    ]);
  });
});

describe("a restore", { timeout: 600_000 }, () => {
  /** Changes a byte in the middle of a file of a backup. @returns what puts it right */
  function flip(path: string): () => void {
    const before = readFileSync(path);
    const after = Buffer.from(before);
    const middle = after.length >> 1;
    after[middle] = (after[middle] as number) ^ 1;
    writeFileSync(path, after);
    return () => writeFileSync(path, before);
  }

  it("refuses a backup with one changed byte, wherever it is, and leaves nothing", async () => {
    const from = folder("after");
    const checkpoint = `files/jobs/${ids[0]}/checkpoints/step-${STEPS}/shard-00000.safetensors`;
    for (const path of ["manifest.json", "database/step_metrics.copy.gz", checkpoint, "secrets.json"]) {
      const mend = flip(join(from, path));
      const refused = await restore("after", "damaged");
      mend();
      expect([path, refused.status, refused.stderr]).toEqual([
        path,
        2,
        expect.stringContaining("is damaged") as string,
      ]);
      expect(existsSync(folder("damaged"))).toBe(false);
    }
    const shorter = join(from, "database/jobs.copy.gz");
    const whole = readFileSync(shorter);
    rmSync(shorter);
    expect(await restore("after", "damaged")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("jobs.copy.gz is missing") as string,
    });
    writeFileSync(shorter, whole);
  });

  it("refuses a backup of a newer version", async () => {
    const path = join(folder("after"), "manifest.json");
    const [before, sum] = [readFileSync(path, "utf8"), readFileSync(`${path}.sha256`, "utf8")];
    const changed = JSON.stringify({ ...(JSON.parse(before) as object), productVersion: "99.0.0" });
    writeFileSync(path, changed);
    writeFileSync(`${path}.sha256`, `${createHash("sha256").update(changed).digest("hex")}  manifest.json\n`);
    const refused = await restore("after", "newer");
    writeFileSync(path, before);
    writeFileSync(`${path}.sha256`, sum);
    expect([refused.status, refused.stderr]).toEqual([7, expect.stringContaining("99.0.0") as string]);
    expect(existsSync(folder("newer"))).toBe(false);
  });

  it("and a backup refuse places that are not empty", async () => {
    mkdirSync(folder("full"));
    writeFileSync(folder("full/note"), "mine");
    for (const refused of [
      await backUp("full"),
      await backUp("full/note"),
      await restore("after", "full"),
      await restore("after", "old"),
    ])
      expect([refused.status, refused.stdout]).toEqual([7, ""]);
    expect(readdirSync(folder("full"))).toEqual(["note"]);
    const inside = await backUp("old/backup");
    expect([inside.status, inside.stderr]).toEqual([
      2,
      expect.stringContaining("lies in the data directory") as string,
    ]);
    const nowhere = await run(["backup", folder("x"), "--data-directory", folder("none")]);
    expect([nowhere.status, nowhere.stderr]).toEqual([
      4,
      expect.stringContaining("there is no stack in") as string,
    ]);
    expect((await restore("full", "x")).status).toBe(4);
  });

  it("that is killed leaves a directory in which no stack starts", async () => {
    const killed = start(["restore", folder("after"), "--data-directory", folder("half")]);
    await eventually("its database", () => existsSync(folder("half/postgres")), 60);
    killed.child.kill("SIGKILL");
    await killed.ended;
    const up = await run(["up", "--data-directory", folder("half")]);
    expect([up.status, up.stderr]).toEqual([7, expect.stringContaining("is not finished") as string]);
    rmSync(folder("half"), { recursive: true });
    await ok(restore("after", "half"));
  });

  it("keeps the tokens, and is backed up where nothing runs", async () => {
    const secrets = (name: string) =>
      JSON.parse(readFileSync(folder(`${name}/secrets.json`), "utf8")) as Record<string, unknown>;
    expect(secrets("half")["apiToken"]).toBe(secrets("old")["apiToken"]);
    expect(statSync(folder("after")).mode & 0o777).toBe(0o700);
    expect(statSync(folder("after/secrets.json")).mode & 0o777).toBe(0o600);
    const again = await run(["backup", folder("again"), "--json", "--data-directory", folder("half")]);
    expect(JSON.parse(again.stdout)).toMatchObject({ written: folder("again"), counts: { jobs: 3 } });
  });

  it("fills a database of one's own, which must be empty, and a backup has it again", async () => {
    const { databaseUrl } = testStack();
    const own = await createTestDatabase();
    const name = `restored_${randomUUID().replaceAll("-", "")}`;
    const url = new URL(databaseUrl);
    url.pathname = `/${name}`;
    const env = { DATABASE_URL: url.href };
    const maintenance = open(databaseUrl);
    await maintenance.db.execute(`create database ${name}`);
    const args = ["restore", folder("after"), "--data-directory", folder("external")];
    try {
      const refused = await run(args, { DATABASE_URL: own.url });
      expect([refused.status, refused.stderr]).toEqual([
        7,
        expect.stringContaining("the database has tables already") as string,
      ]);
      const nobody = await run(args, { DATABASE_URL: "postgres://me@127.0.0.1:1/none" });
      expect([nobody.status, nobody.stderr]).toEqual([
        5,
        expect.stringContaining("the database does not answer") as string,
      ]);
      expect(existsSync(folder("external"))).toBe(false);
      await ok(run(args, env));
      expect(readdirSync(folder("external"))).not.toContain("postgres");
      await ok(run(["backup", folder("external-again"), "--data-directory", folder("external")], env));
      const there = open(url.href);
      for (const id of ids) await assertAgrees(there, folder("external"), id);
      await there.close();
    } finally {
      await own.drop();
      await maintenance.db.execute(`drop database ${name} with (force)`);
      await maintenance.close();
    }
  });
});
