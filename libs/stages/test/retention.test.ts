import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, symlink, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  KEEP_FOR_EVER,
  RETENTION_KINDS,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import {
  acquireLease,
  appendJobEvents,
  askRetentionRun,
  beginRetentionRun,
  createProject,
  getJobDetail,
  lastRetentionRun,
  listRemovals,
  listStepMetrics,
  listValidations,
  recordRemoval,
  releaseLease,
  resumeJob,
  setKeep,
  setRetentionSettings,
  StaleFenceError,
  storePlanChange,
  submitJob,
  transitionJob,
  type Fence,
} from "@internevo/store";
import { exampleCandidate, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { storedRun } from "@internevo/test-kit/stored-run";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  checkpointDirectory,
  exportDirectory,
  jobDirectory,
  timelineDirectory,
  weightsDirectory,
} from "../src/directories.ts";
import { dueJobs, Remarks, type DueJob } from "../src/retention/due.ts";
import { removeDue, type RetentionWork } from "../src/retention/remove.ts";

let test: TestDatabase;
let dataDirectory: string;
beforeEach(async () => {
  test = await createTestDatabase();
  dataDirectory = await mkdtemp(join(tmpdir(), "internevo-retention-"));
});
afterEach(async () => {
  await test.drop();
  await rm(dataDirectory, { recursive: true });
});

const EVERYTHING = Object.fromEntries(RETENTION_KINDS.map((kind) => [kind, 30])) as RetentionSettings;
const set = (settings: Partial<RetentionSettings>) =>
  test.database.transaction((tx) => setRetentionSettings(tx, settings));
const daysAgo = (days: number): Date => new Date(Date.now() - days * 86_400_000);

/** A file of 1000 bytes, as old as its job. */
async function aFile(path: string, ageDays: number): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(path, Buffer.alloc(1000));
  for (const each of [path, join(path, ".."), join(path, "..", "..")])
    await utimes(each, daysAgo(ageDays), daysAgo(ageDays));
}

/** A job with eight steps, a validation loss and files of each kind, that ended so many days ago. */
async function trained(ageDays: number | null, name = "trained"): Promise<string> {
  const run = await storedRun(test.database, name);
  const { jobId } = run;
  await run.step(1, 8);
  await run.validate(4);
  await run.validate(8);
  await test.database.transaction((tx) =>
    appendJobEvents(tx, jobId, [
      { type: "log", data: { level: "info", source: "trainer", message: "training starts" } },
      { type: "progress", data: { stage: "running", message: "step 8" } },
    ]),
  );
  await aFile(join(checkpointDirectory(dataDirectory, jobId), "step-4", "shard-0"), ageDays ?? 1000);
  await aFile(join(checkpointDirectory(dataDirectory, jobId), "step-8", "shard-0"), ageDays ?? 1000);
  await aFile(join(timelineDirectory(dataDirectory, jobId), "attempt-1.json"), ageDays ?? 1000);
  await aFile(join(exportDirectory(dataDirectory, jobId), "hf", "config.json"), ageDays ?? 1000);
  if (ageDays === null) return jobId;
  await run.end("failed");
  await endedAgo(jobId, ageDays);
  return jobId;
}
const endedAgo = (jobId: string, days: number) =>
  test.database.db.execute(
    `update jobs set ended_at = clock_timestamp() - interval '${days} days' where id = '${jobId}'`,
  );

const look = async (settings: RetentionSettings, remarks = new Remarks()): Promise<DueJob[]> => {
  const found: DueJob[] = [];
  const signal = new AbortController().signal;
  const scope = { db: test.database.db, dataDirectory, settings, now: new Date(), signal, remarks };
  for await (const job of dueJobs(scope)) found.push(job);
  return found;
};

async function withLease<T>(work: (fence: Fence) => Promise<T>): Promise<T> {
  const fence = await acquireLease(test.database.db, "maintenance:retention", "test", 60);
  if (!fence) throw new Error("the lease is another's");
  try {
    return await work(fence);
  } finally {
    await releaseLease(test.database.db, fence);
  }
}
const remove = (over: Partial<RetentionWork> = {}) =>
  withLease(async (fence) => {
    const { database } = test;
    const runId = await database.transaction((tx) => beginRetentionRun(tx, fence));
    await removeDue({
      database,
      dataDirectory,
      fence,
      runId,
      now: new Date(),
      signal: new AbortController().signal,
      ...over,
    });
    const run = await lastRetentionRun(database.db);
    if (!run?.endedAt) throw new Error("the run has not ended");
    return run;
  });

const leftOf = async (jobId: string): Promise<string[]> =>
  (await readdir(jobDirectory(dataDirectory, jobId))).sort();
const ALL = ["checkpoints", "exports", "timelines"];
const removalsOf = async (jobId: string): Promise<RetentionKind[]> =>
  (await listRemovals(test.database.db, jobId)).map(({ kind }) => kind);

describe("what is due", () => {
  it("is nothing where everything is kept for ever", async () => {
    await trained(1000);
    expect(await look(KEEP_FOR_EVER)).toEqual([]);
    expect((await remove()).removed.checkpoints.jobs).toBe(0);
  });

  it("is what is then removed, of each kind by its own days", async () => {
    const [old, older, fresh] = [await trained(40), await trained(400), await trained(5)];
    const settings = { ...EVERYTHING, steps: 365 };
    await set(settings);
    const due = await look(settings);
    expect(due.map(({ id, parts }) => [id, parts.map(({ kind }) => kind)])).toEqual([
      [older, [...RETENTION_KINDS]],
      [old, ["checkpoints", "timelines", "exports", "logs"]],
    ]);
    expect(due[0]?.parts.map(({ files, bytes, rows }) => [files, bytes, rows])).toEqual([
      [2, 2000, 0],
      [1, 1000, 0],
      [1, 1000, 0],
      [0, 0, 2],
      // Seven of the steps, which are their events too; one of the losses, and the events of both.
      [0, 0, 7 + 1 + 2],
    ]);
    const { removed, remarks } = await remove();
    for (const kind of RETENTION_KINDS) {
      const parts = due.flatMap((job) => job.parts.filter((part) => part.kind === kind));
      const sum = (of: "files" | "bytes" | "rows") => parts.reduce((total, part) => total + part[of], 0);
      expect(removed[kind], kind).toEqual({
        jobs: parts.length,
        files: sum("files"),
        bytes: sum("bytes"),
        rows: sum("rows"),
      });
    }
    expect(remarks).toEqual([]);
    expect(await leftOf(old)).toEqual([]);
    expect(await leftOf(fresh)).toEqual(ALL);
    expect(await look(settings)).toEqual([]);
    expect(await removalsOf(older)).toEqual([...RETENTION_KINDS]);
    expect(await removalsOf(fresh)).toEqual([]);
    // How far the job came is still known.
    const { db } = test.database;
    expect((await listStepMetrics(db, older)).items.map(({ step }) => step)).toEqual([8]);
    expect((await listValidations(db, older)).items.map(({ step }) => step)).toEqual([8]);
    expect((await listStepMetrics(db, old)).items).toHaveLength(8);
    expect(await getJobDetail(db, older)).toMatchObject({ lastStep: 8, lastValidation: { step: 8 } });
  });

  it("has the folder with it that ranks read the weights from which the job began with", async () => {
    await set({ checkpoints: 30 });
    const [old, fresh] = [await trained(40), await trained(5)];
    for (const [id, age] of [
      [old, 40],
      [fresh, 5],
    ] as const) {
      const folder = join(weightsDirectory(dataDirectory, id), "0a");
      await aFile(join(folder, "config.json"), age);
      await symlink("/weights/model.safetensors", join(folder, "model.safetensors"));
      await utimes(folder, daysAgo(age), daysAgo(age));
    }
    await remove();
    expect(await leftOf(old)).toEqual(["exports", "timelines"]);
    expect(await leftOf(fresh)).toEqual([...ALL, "weights"]);
  });

  it("is nothing of a job that has not ended, is held, is exempt or is to change its plan", async () => {
    await set(EVERYTHING);
    const [running, held, exempt, changing] = [
      await trained(null),
      await trained(null),
      await trained(100),
      await trained(100),
    ];
    const { database } = test;
    await database.transaction((tx) => transitionJob(tx, { jobId: held, from: "running", to: "held" }));
    await database.transaction((tx) => setKeep(tx, exempt, true));
    const { rows } = await database.db.execute(`select id from runs where job_id = '${changing}'`);
    await database.transaction((tx) =>
      storePlanChange(
        tx,
        { id: String(rows[0]?.["id"]), jobId: changing },
        {
          origin: "person",
          askedBy: "here",
          predictedGain: 0,
          gainThreshold: 0,
          compareSteps: 10,
          from: exampleCandidate(),
          to: exampleCandidate(),
        },
      ),
    );
    expect(await look(EVERYTHING)).toEqual([]);
    await remove();
    for (const jobId of [running, held, exempt, changing]) expect(await leftOf(jobId)).toEqual(ALL);
    await database.transaction((tx) => setKeep(tx, exempt, false));
    await remove();
    expect(await leftOf(exempt)).toEqual([]);
  });

  it("is no checkpoint and no export of a job whose weights another begins with, by any path", async () => {
    await set(EVERYTHING);
    const [named, linked] = [await trained(100), await trained(100)];
    const { database } = test;
    const name = async (path: string): Promise<string> =>
      database.transaction((tx) => submitJob(tx, { ...exampleSpec("later"), initialWeights: path }));
    const link = join(dataDirectory, "best");
    await symlink(join(checkpointDirectory(dataDirectory, linked), "step-8"), link);
    const later = [await name(`/elsewhere/jobs/${named}/exports/hf`), await name(link)];
    const { remarks } = await remove();
    for (const jobId of [named, linked]) {
      expect(await leftOf(jobId)).toEqual(["checkpoints", "exports"]);
      expect(await removalsOf(jobId)).toEqual(["timelines", "logs", "steps"]);
      expect(remarks.join("\n")).toContain(`checkpoints of job ${jobId} are left: a job that has not ended`);
    }
    for (const jobId of later)
      await database.transaction((tx) => transitionJob(tx, { jobId, from: "profiling", to: "cancelled" }));
    await remove();
    for (const jobId of [named, linked]) expect(await leftOf(jobId)).toEqual([]);
  });

  it("is also of a job whose id another project's job has in a path that leads elsewhere", async () => {
    await set(EVERYTHING);
    const [written, led] = [await trained(100), await trained(100)];
    const { database } = test;
    await database.transaction((tx) => createProject(tx, { name: "nlp" }));
    const submit = (path: string, weightsOf?: string): Promise<string> =>
      database.transaction((tx) =>
        submitJob(tx, { ...exampleSpec("later"), project: "nlp", initialWeights: path }, { weightsOf }),
      );
    await submit(`/elsewhere/${written}/weights`);
    // Whoever may use jobs of all projects named it: it was found to be the job's when it was submitted.
    await submit("/mounted/weights", led);
    await remove();
    expect(await leftOf(written)).toEqual([]);
    expect(await leftOf(led)).toEqual(["checkpoints", "exports"]);
  });

  it("counts an export from when it was put there, and leaves links alone", async () => {
    const [jobId, linked] = [await trained(100), await trained(100)];
    await aFile(join(exportDirectory(dataDirectory, jobId), "again", "config.json"), 2);
    const elsewhere = join(dataDirectory, "elsewhere");
    await aFile(join(elsewhere, "file"), 100);
    await rm(timelineDirectory(dataDirectory, linked), { recursive: true });
    await symlink(elsewhere, timelineDirectory(dataDirectory, linked));
    await set(EVERYTHING);
    const { remarks } = await remove();
    expect(await leftOf(jobId)).toEqual(["exports"]);
    expect(await leftOf(linked)).toEqual(["timelines"]);
    expect(existsSync(join(elsewhere, "file"))).toBe(true);
    expect(remarks).toEqual([
      `${timelineDirectory(dataDirectory, linked)} is left: it is a link, or no folder`,
    ]);
  });

  it("is rows alone where the files are on another machine", async () => {
    const jobId = await trained(100);
    await set(EVERYTHING);
    const elsewhere = await mkdtemp(join(tmpdir(), "internevo-elsewhere-"));
    try {
      const { removed, remarks } = await remove({ dataDirectory: elsewhere });
      expect([removed.checkpoints.jobs, removed.logs.jobs]).toEqual([0, 1]);
      expect(remarks).toEqual([expect.stringContaining(`files are left: ${join(elsewhere, "jobs")}`)]);
    } finally {
      await rm(elsewhere, { recursive: true });
    }
    expect(await leftOf(jobId)).toEqual(ALL);
  });
});

describe("a run of retention", () => {
  it("that is killed in the middle is finished by the next, and nothing is half there", async () => {
    const jobId = await trained(100);
    await set(EVERYTHING);
    const stop = new AbortController();
    const killed = remove({ signal: stop.signal, onDecided: () => stop.abort(new Error("killed")) });
    await expect(killed).rejects.toThrow("killed");
    // Decided, and not deleted: the job cannot go on any more.
    expect(await listRemovals(test.database.db, jobId)).toMatchObject([
      { kind: "checkpoints", isDone: false },
    ]);
    expect(await leftOf(jobId)).toEqual(ALL);
    const resumed = await test.database.transaction((tx) => resumeJob(tx, jobId));
    expect(resumed).toMatchObject({ outcome: "removed", removal: { kind: "checkpoints", days: 30 } });

    const { removed } = await remove();
    expect(removed.checkpoints).toEqual({ jobs: 1, files: 2, bytes: 2000, rows: 0 });
    expect(await leftOf(jobId)).toEqual([]);
    expect((await listRemovals(test.database.db, jobId)).every(({ isDone }) => isDone)).toBe(true);
  });

  it("that is killed while it deletes leaves no half of a checkpoint under its name", async () => {
    const jobId = await trained(100);
    await set({ checkpoints: 30 });
    const stop = new AbortController();
    const { signal } = stop;
    // Five looks at what is there, four at what is deleted: one of two checkpoints is gone.
    let looks = 0;
    const counting = new Proxy(signal, {
      get: (target, name) =>
        name === "throwIfAborted"
          ? () => {
              looks += 1;
              if (looks > before + 8) stop.abort(new Error("killed"));
              target.throwIfAborted();
            }
          : (Reflect.get(target, name) as unknown),
    });
    let before = Infinity;
    await expect(remove({ signal: counting, onDecided: () => void (before = looks) })).rejects.toThrow(
      "killed",
    );
    expect(await leftOf(jobId)).toEqual([".removed-checkpoints", "exports", "timelines"]);
    await remove();
    expect(await leftOf(jobId)).toEqual(["exports", "timelines"]);
  });

  it("decides nothing when its lease is another's", async () => {
    const jobId = await trained(100);
    await set(EVERYTHING);
    const stale = withLease(async (fence) => fence);
    await expect(remove({ fence: await stale })).rejects.toThrow(StaleFenceError);
    expect(await leftOf(jobId)).toEqual(ALL);
    expect(await removalsOf(jobId)).toEqual([]);
  });

  it("is asked for once, whoever asks", async () => {
    const ask = (by: string) => test.database.transaction((tx) => askRetentionRun(tx, by));
    const [first, second] = [await ask("ada"), await ask("grace")];
    expect(second).toEqual(first);
    expect(await remove()).toMatchObject({ id: first.id, askedBy: "ada" });
    expect((await ask("grace")).id).not.toBe(first.id);
  });

  it("takes nothing that is to be kept by the time that it is decided", async () => {
    const jobId = await trained(100);
    await set({ logs: 30 });
    const { database } = test;
    const decide = () =>
      withLease(async (fence) => {
        const runId = await database.transaction((tx) => beginRetentionRun(tx, fence));
        const part = { kind: "logs", files: 0, bytes: 0, rows: 2 } as const;
        const request = { ...part, fence, runId, jobId, now: new Date(), isNeeded: async () => false };
        return database.transaction((tx) => recordRemoval(tx, request));
      });
    await set({ logs: null });
    expect(await decide()).toBeUndefined();
    await set({ logs: 200 });
    expect(await decide()).toBeUndefined();
    await set({ logs: 30 });
    await database.transaction((tx) => setKeep(tx, jobId, true));
    expect(await decide()).toBeUndefined();
    await database.transaction((tx) => setKeep(tx, jobId, false));
    expect(await decide()).toMatchObject({ kind: "logs", days: 30 });
    // Once at a time.
    expect(await decide()).toBeUndefined();
  });
});
