import { randomUUID } from "node:crypto";
import type { Profile } from "@internevo/domain";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { createToken, revokeToken } from "./access.ts";
import {
  claimHosts,
  queueLimit,
  releaseAbandonedHosts,
  releaseHosts,
  setQueueSettings,
} from "./host-queue.ts";
import { queuePlace, queuePositions } from "./queue-reads.ts";
import { listJobs } from "./job-reads.ts";
import { submitJob } from "./jobs.ts";
import { jobLease } from "./leases.ts";
import type { Queryable } from "./database.ts";
import { discardProfile, storeGivenProfile } from "./profiles.ts";
import { createProject, deleteProject, getProject, listProjects, updateProject } from "./projects.ts";
import { newTraceparent } from "./trace.ts";
import { projectUse, usageBetween } from "./usage.ts";
import { createWorkload } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());
beforeEach(async () => {
  await test.database.db.execute(
    "truncate host_claims, host_waiters, host_holds, project_usage, queue_settings, outbox, workloads, jobs cascade",
  );
  await test.database.db.execute("delete from api_tokens");
  await test.database.db.execute("delete from projects where name <> 'default'");
});

const tx: TestDatabase["database"]["transaction"] = (work) => test.database.transaction(work);
/** A job of two GPUs on a host unless it says otherwise. @returns its resource */
async function job(project: string, gpus = 2, owner = "ada"): Promise<string> {
  const spec = exampleSpec();
  const cluster = { ...spec.cluster, nodes: 1, gpusPerNode: gpus };
  return jobLease(await tx((t) => submitJob(t, { ...spec, project, cluster }, { owner })));
}
/** Asks with the place of the n-th minute. */
const ask = (owner: string, hosts: string[], minute: number): Promise<boolean> =>
  tx((t) =>
    claimHosts(t, {
      owner,
      hosts,
      submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
      command: { type: "job.profile", data: { jobId: owner.split(":")[1] }, traceparent: newTraceparent() },
    }),
  );
const release = (owner: string) => tx((t) => releaseHosts(t, owner));
const limit = (owner: string) => queueLimit(test.database.db, owner);
const project = (name: string, quotas: { maxGpus?: number; gpuHoursPerMonth?: number } = {}) =>
  tx((t) => createProject(t, { name, ...quotas }));
/** Says that work has held its hosts for so many hours longer. */
const longer = (owner: string, hours: number) =>
  test.database.db.execute(
    `update host_holds set began_at = began_at - make_interval(hours => ${hours}) where owner = '${owner}'`,
  );

/** A workload of a project. */
const nightly = (db: Queryable, name: string) =>
  createWorkload(db, {
    name: "nightly",
    spec: { ...exampleSpec(), project: name },
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 60,
    gainThreshold: 0.1,
    nextRunAt: null,
  });

describe("a quota of GPUs", () => {
  it("keeps a job waiting with its reason, and nobody of another project behind it", async () => {
    await project("nlp", { maxGpus: 4 });
    const [first, second, third, other] = [
      await job("nlp"),
      await job("nlp"),
      await job("nlp"),
      await job("default"),
    ];
    expect([await ask(first, ["a"], 0), await ask(second, ["b"], 1)]).toEqual([true, true]);
    expect(await ask(third, ["c"], 2)).toBe(false);
    expect(await limit(third)).toBe("project nlp uses 4 of 4 GPUs");
    expect(await queuePlace(test.database.db, third)).toMatchObject({
      limit: "project nlp uses 4 of 4 GPUs",
      hosts: ["c"],
      startsAt: null,
    });
    const listed = (await listJobs(test.database.db, { state: "queued" })).items;
    expect(listed.map(({ queue }) => queue?.limit)).toEqual(["project nlp uses 4 of 4 GPUs"]);
    expect(await ask(other, ["c"], 3), "the host that nlp waits for is free").toBe(true);
    const last = await job("default");
    await ask(last, ["c"], 4);
    expect(await queuePlace(test.database.db, last), "who waits for a quota is not ahead").toMatchObject({
      position: 1,
      behindCount: 1,
      behind: [{ holds: true }],
    });
    const positions = await queuePositions(test.database.db, [third, last]);
    expect(positions.get(last), "nlp has used more").toMatchObject({ position: 1, limit: null });
    expect(positions.get(third)?.position).toBe(2);
    await release(last);
    await release(first);
    expect(await limit(third), "now it waits for its host").toBeNull();
    await release(other);
    expect(await queuePlace(test.database.db, third)).toBeUndefined();
  });

  it("is not passed within a project, so that a job of many GPUs starts some time", async () => {
    await project("nlp", { maxGpus: 4 });
    const [small, wide, later] = [await job("nlp"), await job("nlp", 4), await job("nlp")];
    await ask(small, ["a"], 0);
    expect(await ask(wide, ["b"], 1)).toBe(false);
    expect(await limit(wide)).toBe("project nlp uses 2 of 4 GPUs, and this needs 4");
    expect(await ask(later, ["c"], 2)).toBe(false);
    expect(await limit(later)).toBe("earlier work of project nlp waits for its GPUs");
    await release(small);
    expect(await queuePlace(test.database.db, wide)).toBeUndefined();
    await release(wide);
    expect(await queuePlace(test.database.db, later)).toBeUndefined();
  });

  it("that a job can never meet keeps no other one waiting, and lets it go when it is raised", async () => {
    await project("nlp", { maxGpus: 2 });
    const [wide, small] = [await job("nlp", 4), await job("nlp")];
    await ask(wide, ["a"], 0);
    expect(await limit(wide)).toBe("project nlp may use 2 GPUs, and this needs 4");
    expect(await ask(small, ["b"], 1)).toBe(true);
    await tx((t) => updateProject(t, "nlp", { maxGpus: null }));
    expect(await queuePlace(test.database.db, wide)).toBeUndefined();
    expect((await getProject(test.database.db, "nlp")).gpusInUse).toBe(6);
  });
});

describe("fair share", () => {
  /** A host that is held by nobody's project, so that all wait for it. */
  const hold = async (): Promise<string> => {
    const holder = `job:${randomUUID()}`;
    expect(await ask(holder, ["x"], 0)).toBe(true);
    return holder;
  };
  const inOrder = async (...asked: string[]): Promise<string[]> => [
    ...(await queuePositions(test.database.db, asked)).keys(),
  ];

  it("lets the project go first that has used less for its weight", async () => {
    await project("nlp");
    await project("vision");
    const used = [await job("nlp"), await job("vision")] as const;
    await ask(used[0], ["a"], 0);
    await ask(used[1], ["b"], 0);
    await longer(used[0], 20);
    await longer(used[1], 10);
    const holder = await hold();
    const [ofNlp, ofVision, ofDefault] = [await job("nlp"), await job("vision"), await job("default")];
    await ask(ofNlp, ["x"], 1);
    await ask(ofVision, ["x"], 2);
    await ask(ofDefault, ["x"], 3);
    const all = [ofNlp, ofVision, ofDefault] as const;
    expect(await inOrder(...all)).toEqual([ofDefault, ofVision, ofNlp]);
    expect(await queuePlace(test.database.db, ofVision)).toMatchObject({
      position: 2,
      behind: [{ id: ofDefault.split(":")[1], holds: false }],
    });
    await release(used[0]);
    await release(used[1]);
    expect(await inOrder(...all), "what has ended counts as what runs").toEqual([ofDefault, ofVision, ofNlp]);
    await tx((t) => updateProject(t, "nlp", { weight: 4 }));
    expect(await inOrder(...all)).toEqual([ofDefault, ofNlp, ofVision]);
    expect(await getProject(test.database.db, "nlp")).toMatchObject({ weight: 4 });
    await release(holder);
    expect(await queuePlace(test.database.db, ofDefault), "it was called").toBeUndefined();
  });

  it("forgets usage by the half-life that is set, and lets who waited long go first", async () => {
    await project("nlp");
    await project("vision");
    const used = [await job("nlp"), await job("vision")] as const;
    await ask(used[0], ["a"], 0);
    await ask(used[1], ["b"], 0);
    await longer(used[0], 2);
    await longer(used[1], 1);
    for (const owner of used) await release(owner);
    // nlp used twice as much, a hundred hours earlier.
    await test.database.db.execute(
      `update host_holds set began_at = began_at - interval '100 hours', ended_at = ended_at - interval '100 hours' where owner = '${used[0]}'`,
    );
    await hold();
    const [ofNlp, ofVision] = [await job("nlp"), await job("vision")];
    await ask(ofNlp, ["x"], 1);
    await ask(ofVision, ["x"], 0);
    expect(await inOrder(ofNlp, ofVision)).toEqual([ofVision, ofNlp]);
    const set = (change: object) => tx((t) => setQueueSettings(t, change));
    expect(await set({ halfLifeHours: 10 })).toEqual({
      halfLifeHours: 10,
      patienceHours: 336,
      leastRunMinutes: 10,
    });
    expect(await inOrder(ofNlp, ofVision)).toEqual([ofNlp, ofVision]);
    await set({ halfLifeHours: 1000 });
    expect(await inOrder(ofNlp, ofVision)).toEqual([ofVision, ofNlp]);
    await test.database.db.execute(
      `update host_waiters set waiting_since = waiting_since - interval '7 hours' where owner = '${ofNlp}'`,
    );
    await set({ patienceHours: 6 });
    expect(await inOrder(ofNlp, ofVision)).toEqual([ofNlp, ofVision]);
  });
});

describe("a quota of GPU-hours", () => {
  it("lets what runs go on, and nothing begin before the next month", async () => {
    await project("nlp", { gpuHoursPerMonth: 3 });
    const now = new Date();
    const [runs, waits] = [await job("nlp"), await job("nlp")];
    expect(await ask(runs, ["a"], 0)).toBe(true);
    await test.database.db.execute(
      `update host_holds set began_at = date_trunc('month', now() at time zone 'UTC') at time zone 'UTC'`,
    );
    // So long since the month began that two GPUs have used the quota up, whatever the day is.
    await tx((t) =>
      updateProject(t, "nlp", {
        gpuHoursPerMonth: (now.getTime() - Date.UTC(now.getUTCFullYear(), now.getUTCMonth())) / 3.6e6,
      }),
    );
    expect(await ask(waits, ["b"], 1)).toBe(false);
    expect(await limit(waits)).toMatch(/^project nlp has used [\d.,]+ of [\d.,]+ GPU-hours of this month$/);
    expect((await getProject(test.database.db, "nlp")).gpusInUse).toBe(2);
    // The month is over: what was used is of the month before.
    await test.database.db.execute(
      "update host_holds set began_at = began_at - interval '40 days', ended_at = began_at - interval '30 days'",
    );
    await tx(releaseAbandonedHosts);
    expect(await queuePlace(test.database.db, waits)).toBeUndefined();
  });
});

describe("usage", () => {
  it("is GPUs times hours that hosts were held, by project, owner, cluster and day", async () => {
    await project("nlp");
    const [of, also] = [await job("nlp", 4, "grace"), await job("default", 2)];
    await ask(of, ["a"], 0);
    await ask(also, ["b"], 1);
    await release(of);
    await release(also);
    const day = (n: number, hour = 0) => new Date(Date.UTC(2026, 0, n, hour));
    await test.database.db.execute(
      `update host_holds set began_at = '2026-01-10T22:00Z', ended_at = '2026-01-11T03:00Z' where owner = '${of}'`,
    );
    await test.database.db.execute(
      `update host_holds set began_at = '2026-01-11T12:00Z', ended_at = '2026-01-11T13:00Z' where owner = '${also}'`,
    );
    const usage = (by: "project" | "owner" | "cluster" | "day", from = day(1), to = day(31)) =>
      usageBetween(test.database.db, { from, to, by });
    expect(await usage("project")).toEqual({
      from: day(1).toISOString(),
      to: day(31).toISOString(),
      by: "project",
      gpuHours: 22,
      rows: [
        { key: "nlp", gpuHours: 20, jobs: 1 },
        { key: "default", gpuHours: 2, jobs: 1 },
      ],
    });
    expect((await usage("owner")).rows.map(({ key, gpuHours }) => [key, gpuHours])).toEqual([
      ["grace", 20],
      ["ada", 2],
    ]);
    expect((await usage("cluster")).rows).toMatchObject([{ gpuHours: 22, jobs: 2 }]);
    expect((await usage("day")).rows).toEqual([
      { key: "2026-01-10", gpuHours: 8, jobs: 1 },
      { key: "2026-01-11", gpuHours: 14, jobs: 2 },
    ]);
    expect((await usage("day", day(10, 23), day(11, 1))).rows).toEqual([
      { key: "2026-01-10", gpuHours: 4, jobs: 1 },
      { key: "2026-01-11", gpuHours: 4, jobs: 1 },
    ]);
    expect((await usage("project", day(12), day(13))).rows).toEqual([]);
    const only = await usageBetween(test.database.db, {
      from: day(1),
      to: day(31),
      by: "owner",
      project: "nlp",
    });
    expect(only.rows).toEqual([{ key: "grace", gpuHours: 20, jobs: 1 }]);
  });

  it("of a month is what its holds say, whenever they began and whoever changed them", async () => {
    const { db } = test.database;
    const hours = fc.integer({ min: 0, max: 24 * 100 });
    const hold = fc.record({
      project: fc.constantFrom("nlp", "vision"),
      gpus: fc.integer({ min: 1, max: 64 }),
      from: hours,
      for: fc.option(hours),
    });
    const start = Date.UTC(2025, 10, 20);
    const at = (hour: number): string => `'${new Date(start + hour * 3.6e6).toISOString()}'`;
    await fc.assert(
      fc.asyncProperty(fc.array(hold, { maxLength: 12 }), async (holds) => {
        await db.execute("truncate host_holds");
        for (const [index, each] of holds.entries())
          await db.execute(`insert into host_holds (owner, project, cluster, gpus, began_at, ended_at)
            values ('job:${index}', '${each.project}', 'c', ${each.gpus}, ${at(each.from)},
              ${each.for === null ? "null" : at(each.from + each.for)})`);
        await db.execute(
          "update host_holds set ended_at = began_at + interval '1000 hours' where owner = 'job:0'",
        );
        await db.execute("update host_holds set project = 'vision', gpus = 3 where owner = 'job:1'");
        await db.execute("delete from host_holds where owner = 'job:2'");
        for (const month of [10, 11, 12, 13, 14]) {
          const [from, to] = [new Date(Date.UTC(2025, month)), new Date(Date.UTC(2025, month + 1))];
          const { rows } = await usageBetween(db, { from, to, by: "project" });
          const use = await projectUse(db, new Date(to.getTime() - 1));
          for (const name of ["nlp", "vision"]) {
            const expected = rows.find(({ key }) => key === name)?.gpuHours ?? 0;
            const open = await db.execute<{ gpus: number }>(
              `select coalesce(sum(gpus), 0)::int as gpus from host_holds where project = '${name}' and ended_at is null`,
            );
            // What has not ended counts until a millisecond before the month's end.
            const missing = (open.rows[0]?.gpus ?? 0) / 3.6e6;
            const lacks = expected - (use.get(name)?.gpuHoursThisMonth ?? 0);
            expect(lacks).toBeGreaterThan(-1e-6);
            expect(lacks).toBeLessThan(missing + 1e-6);
          }
        }
      }),
      { numRuns: 30 },
    );
  });

  it("counts what holds its hosts still until now, and a job that asks again once", async () => {
    const one = await job("default", 2);
    await ask(one, ["a"], 0);
    await longer(one, 3);
    expect(await ask(one, ["a"], 0)).toBe(true);
    const from = new Date(Date.now() - 48 * 3.6e6);
    const { rows } = await usageBetween(test.database.db, {
      from,
      to: new Date(Date.now() + 3.6e6),
      by: "project",
    });
    expect(rows).toHaveLength(1);
    expect(rows[0]?.gpuHours).toBeCloseTo(6, 1);
  });
});

describe("projects", () => {
  it("have names of their own, keep what is not changed, and are deleted when nothing belongs to them", async () => {
    const { db } = test.database;
    await project("nlp", { maxGpus: 8 });
    await expect(project("nlp")).rejects.toMatchObject({ code: "conflict" });
    expect(await tx((t) => updateProject(t, "nlp", { description: "Texts" }))).toMatchObject({
      description: "Texts",
      maxGpus: 8,
      gpuHoursPerMonth: null,
    });
    await expect(tx((t) => updateProject(t, "none", { maxGpus: 1 }))).rejects.toMatchObject({
      code: "not-found",
    });
    expect((await listProjects(db)).map(({ name }) => name)).toEqual(["default", "nlp"]);
    const made = await tx((t) =>
      createToken(t, { name: "ci", role: "viewer", project: "nlp", validForSeconds: null }),
    );
    await expect(tx((t) => deleteProject(t, "nlp"))).rejects.toMatchObject({
      code: "conflict",
      message: "project nlp has 0 jobs, 0 workloads, 1 valid token and 0 profiles",
    });
    await tx((t) => revokeToken(t, made.record.id));
    const profile = await storeGivenProfile(db, { name: "p" } as Profile, "nlp");
    await db.execute(
      `insert into plannings (id, profile_id, summary, counts) values (gen_random_uuid(), '${profile}', '{}', '{}')`,
    );
    await expect(tx((t) => deleteProject(t, "nlp"))).rejects.toMatchObject({
      message: "project nlp has 0 jobs, 0 workloads, 0 valid tokens and 1 profile",
    });
    // The planning of a workload that is gone has it still.
    await discardProfile(db, profile);
    await tx((t) => deleteProject(t, "nlp"));
    await expect(tx((t) => deleteProject(t, "nlp"))).rejects.toMatchObject({ code: "not-found" });
    await expect(tx((t) => deleteProject(t, "default"))).rejects.toMatchObject({ code: "conflict" });
  });

  it("takes nothing that comes when it is gone", async () => {
    const gone = { code: "not-found", message: "there is no project gone" };
    await expect(job("gone")).rejects.toMatchObject(gone);
    await expect(tx((t) => nightly(t, "gone"))).rejects.toMatchObject(gone);
  });

  it("may have workloads of the same name", async () => {
    await project("nlp");
    const { db } = test.database;
    expect((await nightly(db, "nlp")).project).toBe("nlp");
    expect((await nightly(db, "default")).project).toBe("default");
    await expect(nightly(db, "nlp")).rejects.toMatchObject({ code: "conflict" });
  });
});
