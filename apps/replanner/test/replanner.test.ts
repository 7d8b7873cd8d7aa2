import { randomUUID } from "node:crypto";
import { eventually } from "@internevo/test-kit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { resolveJob } from "@internevo/domain";
import { planJob } from "@internevo/search";
import {
  createProject,
  createWorkload,
  deleteWorkload,
  ensureRun,
  fireWorkloadNow,
  getFiring,
  getWorkload,
  listPlanChanges,
  listProposals,
  openPlanChange,
  submitJob,
  transitionJob,
  updateJob,
  newestWorkloadPlanning,
  updateWorkload,
  type Firing,
} from "@internevo/store";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { replan } from "../src/consumers/replan.ts";
import { replanner } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  // Two of them: nothing may fire twice.
  await world.start(replanner, { INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" });
  await world.start(replanner, { INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" });
});
afterAll(() => world.close());

const spec = (over: Record<string, unknown> = {}, cluster: Record<string, unknown> = {}) =>
  resolveJob(
    smallJob({
      ...over,
      cluster: {
        name: "fleet",
        nodes: 1,
        gpusPerNode: 8,
        memoryPerGpu: "80GB",
        profile: world.profileId,
        ...cluster,
      },
    }),
  );

const register = (name: string, over: Partial<Parameters<typeof createWorkload>[1]> = {}) =>
  createWorkload(world.database.db, {
    name,
    spec: spec(),
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 3600,
    gainThreshold: 0.05,
    nextRunAt: null,
    ...over,
  });

const ended = (firingId: string): Promise<Firing> =>
  eventually(
    `the end of firing ${firingId}`,
    async () => {
      const firing = await getFiring(world.database.db, firingId);
      return firing && firing.state !== "pending" && firing;
    },
    30,
    world.logs,
  );
const runNow = async (workloadId: string) =>
  ended((await world.database.transaction((tx) => fireWorkloadNow(tx, workloadId))).id);
const firings = (workloadId: string) =>
  world.database.db
    .execute(`select id, state, outcome from workload_firings where workload_id = '${workloadId}'`)
    .then((result) => result.rows as { id: string; state: string; outcome: string }[]);

/** A firing without a message: nobody else works on it. */
async function unsentFiring(workloadId: string): Promise<string> {
  const id = randomUUID();
  await world.database.db.execute(
    `insert into workload_firings (id, workload_id, scheduled_for, trigger, state, traceparent)
     values ('${id}', '${workloadId}', clock_timestamp(), 'person', 'pending', '')`,
  );
  return id;
}

describe("replanner", () => {
  it("proposes the best plan when none is in use, and nothing new the next time", async () => {
    const { id } = await register("first");
    expect(await runNow(id)).toMatchObject({
      state: "succeeded",
      outcome: expect.stringContaining("no plan was in use"),
    });
    const [proposal] = (await listProposals(world.database.db, id)).items;
    const planning = await newestWorkloadPlanning(world.database.db, id);
    expect(proposal).toMatchObject({ current: null, predictedGain: 0 });
    expect(proposal?.proposed.plan).toEqual(planning?.result.runnableCandidates[0]?.plan);
    expect(await runNow(id)).toMatchObject({
      state: "succeeded",
      outcome: expect.stringContaining("waits for an answer"),
    });
    expect((await listProposals(world.database.db, id)).items).toHaveLength(1);
    expect((await getWorkload(world.database.db, id))?.lastOutcome).toContain("waits for an answer");
  });

  it("proposes what is better than the plan that a job chose, with gain and differences", async () => {
    const own = spec({ name: "chosen" }, { name: "chosen-fleet" });
    const { id } = await register("chosen", { spec: own });
    await runNow(id);
    const all = planJob(own, world.profile, { top: 1000 }).runnableCandidates;
    const [fastest, slowest] = [all[0], all.at(-1)];
    if (!slowest || !fastest) throw new Error("no plans");
    await world.database.transaction(async (tx) => {
      const jobId = await submitJob(tx, own);
      await updateJob(tx, jobId, { chosen: slowest });
      await transitionJob(tx, { jobId, from: "profiling", to: "cancelled" });
    });
    const firing = await runNow(id);
    const gain = 1 - fastest.predicted.stepTimeSeconds / slowest.predicted.stepTimeSeconds;
    const proposals = (await listProposals(world.database.db, id)).items;
    expect(gain).toBeGreaterThan(0.05);
    expect(firing.outcome).toContain("predicted to gain");
    // What was proposed before a job ran waits no more.
    expect(proposals.map(({ state }) => state)).toEqual(["proposed", "superseded"]);
    expect(proposals[0]?.predictedGain).toBeCloseTo(gain, 9);
    expect(proposals[0]?.differences.length).toBeGreaterThan(0);
    expect(proposals[0]?.current?.plan).toEqual(slowest.plan);
  });

  it("says what would fit when nothing does, and what is missing without a profile", async () => {
    const { id } = await register("too big", { spec: spec({}, { memoryPerGpu: "1MB" }) });
    expect(await runNow(id)).toMatchObject({
      state: "failed",
      outcome: expect.stringContaining("the one that needs the least memory"),
    });
    const missing = await register("no profile", { spec: spec({}, { profile: "/absent.json" }) });
    expect(await runNow(missing.id)).toMatchObject({
      state: "failed",
      outcome: expect.stringContaining("no profile is named /absent.json"),
    });
  });

  it("fires what is due once, although two of it look, and plans the next night", async () => {
    const due = new Date(Date.now() - 5000);
    const { id } = await register("due", { nextRunAt: due });
    const [first] = await eventually("a firing", async () => {
      const found = await firings(id);
      return found.length > 0 && (found as [(typeof found)[number]]);
    });
    expect(await ended(first.id)).toMatchObject({
      state: "succeeded",
      trigger: "schedule",
      scheduledFor: due.toISOString(),
    });
    // Who fires one that is due later has looked again, and has left the first alone.
    const later: string[] = [];
    for (const name of ["due later", "due last"]) {
      const { id: another } = await register(name, { nextRunAt: new Date(Date.now() - 1000) });
      await eventually(`a firing of ${name}`, async () => (await firings(another)).length > 0);
      later.push(another);
    }
    for (const one of [id, ...later]) expect(await firings(one)).toHaveLength(1);
    const next = (await getWorkload(world.database.db, id))?.nextRunAt;
    expect(next && new Date(next).getTime()).toBeGreaterThan(Date.now());
    expect(next).toMatch(/T03:00:00/);
    expect((await listProposals(world.database.db, id)).items).toHaveLength(1);
  });

  it("says that a run waits for its project's quota, also to the runs that it keeps from", async () => {
    const { db } = world.database;
    await world.database.transaction((tx) => createProject(tx, { name: "narrow", maxGpus: 1 }));
    // Without a profile its cluster is measured, which takes hosts.
    const cluster = { name: "narrow", nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" };
    const { id } = await register("narrow", {
      spec: resolveJob(smallJob({ project: "narrow", cluster })),
      nextRunAt: new Date(Date.now() - 1000),
    });
    const why = "queued: project narrow may use 1 GPUs, and this needs 2";
    const outcome = (said: string) =>
      eventually(said, async () => (await getWorkload(db, id))?.lastOutcome === said, 30, world.logs);
    await outcome(why);
    await updateWorkload(db, id, { nextRunAt: new Date(Date.now() - 1000) });
    await outcome(`skipped: the run before has not ended (${why})`);
    await deleteWorkload(db, id);
  });

  it("has a run measure its cluster where nothing fresh is known of it, but not for a paused workload", async () => {
    const { database } = world;
    const own = resolveJob(smallJob({ name: "measures", steps: 1000 }));
    const { id: workloadId } = await register("measures", {
      spec: own,
      policy: "apply",
      mayMeasureRuns: true,
    });
    const jobId = await database.transaction((tx) => submitJob(tx, own));
    const run = await database.transaction((tx) => ensureRun(tx, jobId, exampleCandidate()));
    await database.db.execute(`update jobs set state = 'running' where id = '${jobId}'`);
    const probe = { name: "internevo-probe", path: "/absent/internevo-probe" };
    const settings = { top: 10, threadsPerRank: 1, probe } as unknown as Parameters<typeof replan>[0];
    const outcomeNow = async (): Promise<string | null | undefined> => {
      const firingId = await unsentFiring(workloadId);
      const work = replan(settings, database);
      const context = {
        data: { workloadId, firingId },
        signal: new AbortController().signal,
        log: { info: () => {}, debug: () => {}, warn: () => {} },
      };
      const store = await work(context as unknown as Parameters<typeof work>[0]);
      await database.transaction((tx) => store(tx));
      return (await getFiring(database.db, firingId))?.outcome;
    };
    await updateWorkload(database.db, workloadId, { enabled: false });
    expect(await outcomeNow()).toMatch(/^no profile: /);
    expect((await listPlanChanges(database.db, jobId)).items).toEqual([]);
    await updateWorkload(database.db, workloadId, { enabled: true });
    expect(await outcomeNow()).toBe(`job ${jobId} measures the cluster at its next checkpoint, and searches`);
    expect(await openPlanChange(database.db, { id: run.id, jobId })).toMatchObject({ state: "searching" });
    await database.db.execute(`update jobs set state = 'cancelled' where id = '${jobId}'`);
  });

  it("stores nothing of a workload that was deleted while its plans were searched", async () => {
    const { database } = world;
    const { id: workloadId } = await register("deleted meanwhile");
    // Nothing new is proposed the next time: only a planning is stored.
    await runNow(workloadId);
    const firingId = await unsentFiring(workloadId);
    const work = replan({ top: 10, threadsPerRank: 1 } as Parameters<typeof replan>[0], database);
    const store = await work({
      data: { workloadId, firingId },
      signal: new AbortController().signal,
      log: { info: () => {} },
    } as unknown as Parameters<typeof work>[0]);
    await database.transaction((tx) => deleteWorkload(tx, workloadId));
    await database.transaction((tx) => store(tx));
    const plannings = `select id from plannings where workload_id = '${workloadId}'`;
    expect((await database.db.execute(plannings)).rows).toEqual([]);
  });

  it("skips what is later than the catch-up window", async () => {
    const { id } = await register("late", { nextRunAt: new Date(Date.now() - 7_200_000) });
    await eventually("a firing", async () => (await firings(id)).length > 0);
    expect(await firings(id)).toMatchObject([
      { state: "skipped", outcome: expect.stringContaining("beyond the catch-up window") },
    ]);
  });
});
