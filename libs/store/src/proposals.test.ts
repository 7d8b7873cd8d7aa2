import { eq, sql } from "drizzle-orm";
import type { JobSpec, ReplanPolicy } from "@internevo/domain";
import { eventually } from "@internevo/test-kit";
import { exampleCandidate, examplePlanning, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import type { Transaction } from "./database.ts";
import { submitJob } from "./jobs.ts";
import {
  MOST_PLANNINGS,
  newestWorkloadPlanning,
  removeOrphanedPlannings,
  storePlanning,
} from "./plannings.ts";
import { createProject } from "./projects.ts";
import { createProposal, proposalsToPursue } from "./proposals.ts";
import { ensureRun } from "./runs.ts";
import { jobs, planningCandidates, plannings, workloads } from "./schema/index.ts";
import { createWorkload, deleteWorkload, fireWorkloadNow, holdWorkload } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
  for (const name of ["greedy", "modest"])
    await test.database.transaction((tx) => createProject(tx, { name }));
});
beforeEach(() => test.database.db.delete(workloads));
afterAll(() => test.drop());

const within = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => test.database.transaction(work);
const specIn = (project: string, hiddenSize = 256): JobSpec => {
  const spec = exampleSpec("work");
  return { ...spec, project, model: { ...spec.model, hiddenSize } };
};

const workloadIn = (spec: JobSpec, name: string, policy: ReplanPolicy = "apply") =>
  within((tx) => createWorkload(tx, { name, spec, policy, cron: "0 3 * * *", nextRunAt: null }));

async function propose(workloadId: string): Promise<string> {
  const { id: firingId } = await within((tx) => fireWorkloadNow(tx, workloadId));
  const planningId = await within((tx) => storePlanning(tx, examplePlanning(3), { workloadId }));
  await within((tx) =>
    createProposal(tx, {
      workloadId,
      firingId,
      planningId,
      current: null,
      proposed: exampleCandidate(),
      predictedGain: 0.1,
      differences: [],
    }),
  );
  return planningId;
}

/** A job that trains. */
async function train(spec: JobSpec): Promise<void> {
  const id = await within((tx) => submitJob(tx, spec));
  await within((tx) => ensureRun(tx, id, exampleCandidate()));
  await test.database.db.update(jobs).set({ state: "running" }).where(eq(jobs.id, id));
}

it("runs are asked for in turns of the projects, oldest first, and only where one trains", async () => {
  const of = async (project: string, name: string, hiddenSize?: number, policy?: ReplanPolicy) =>
    propose((await workloadIn(specIn(project, hiddenSize), name, policy)).id);
  for (let at = 0; at < 60; at += 1) await of("greedy", `no run ${at}`, 512);
  await of("greedy", "first");
  await of("modest", "asks", 256, "notify");
  await of("greedy", "second");
  await of("modest", "waits");
  await of("greedy", "third");
  for (let at = 60; at < 80; at += 1) await of("greedy", `no run ${at}`, 512);
  const names = async (limit?: number) =>
    (await proposalsToPursue(test.database.db, limit)).map(({ workload }) => workload.name);
  expect(await names()).toEqual([]);
  const { minNodes: _, ...cluster } = specIn("greedy").cluster;
  await train({ ...specIn("greedy"), cluster: { ...cluster, minNodes: 1 } });
  expect(await names()).toEqual(["first", "second", "third"]);
  await train(specIn("modest"));
  expect(await names()).toEqual(["first", "waits", "second", "third"]);
  expect(await names(2)).toEqual(["first", "waits"]);
});

it("a workload keeps its newest plannings and those that it proposed, and takes them with it", async () => {
  const { id: workloadId } = await workloadIn(specIn("modest"), "often");
  const { id: other } = await workloadIn(specIn("modest"), "another");
  const proposed = await propose(workloadId);
  const ofOther = await within((tx) => storePlanning(tx, examplePlanning(1), { workloadId: other }));
  const stored: string[] = [];
  for (let at = 0; at < MOST_PLANNINGS + 5; at += 1)
    stored.push(await within((tx) => storePlanning(tx, examplePlanning(2), { workloadId })));
  const kept = async (id: string) =>
    (
      await test.database.db
        .select({ id: plannings.id })
        .from(plannings)
        .where(eq(plannings.workloadId, id))
        .orderBy(plannings.createdAt)
    ).map((row) => row.id);
  expect(await kept(workloadId)).toEqual([proposed, ...stored.slice(-MOST_PLANNINGS)]);
  expect((await newestWorkloadPlanning(test.database.db, workloadId))?.id).toBe(stored.at(-1));
  const jobId = await within((tx) => submitJob(tx, specIn("modest")));
  const ofJob = stored.at(-2) as string;
  await test.database.db.update(jobs).set({ planningId: ofJob }).where(eq(jobs.id, jobId));
  expect(await within((tx) => deleteWorkload(tx, workloadId))).toBe(true);
  expect(await kept(workloadId)).toEqual([ofJob]);
  expect(await kept(other)).toEqual([ofOther]);
  const candidates = await test.database.db.select().from(planningCandidates);
  expect(new Set(candidates.map(({ planningId }) => planningId)).size).toBeGreaterThan(1);
});

it("a workload that is deleted while its plans are stored takes them with it", async () => {
  const { id: workloadId } = await workloadIn(specIn("modest"), "deleted");
  let deletion: Promise<boolean> | undefined;
  const planningId = await within(async (tx) => {
    expect(await holdWorkload(tx, workloadId)).toBe(true);
    deletion = within((other) => deleteWorkload(other, workloadId));
    await eventually("the deletion waits", async () => {
      const { rows } = await tx.execute(sql`select 1 from pg_locks where not granted`);
      return rows.length > 0;
    });
    return storePlanning(tx, examplePlanning(1), { workloadId });
  });
  expect(await deletion).toBe(true);
  const left = await test.database.db.select().from(plannings).where(eq(plannings.id, planningId));
  expect(left).toEqual([]);
  expect(await within((tx) => holdWorkload(tx, workloadId))).toBe(false);
});

it("what was stored of workloads that are gone is removed, and nothing else", async () => {
  const { id: workloadId } = await workloadIn(specIn("modest"), "stays");
  const stays = await within((tx) => storePlanning(tx, examplePlanning(1), { workloadId }));
  const jobId = await within((tx) => submitJob(tx, specIn("modest")));
  const ofJob = await within((tx) => storePlanning(tx, examplePlanning(1), { jobId }));
  const { id: gone } = await workloadIn(specIn("modest"), "gone");
  await within((tx) => deleteWorkload(tx, gone));
  await removeOrphanedPlannings(test.database.db);
  const orphan = await within((tx) => storePlanning(tx, examplePlanning(1), { jobId }));
  await test.database.db
    .update(plannings)
    .set({ jobId: null, workloadId: gone })
    .where(eq(plannings.id, orphan));
  expect(await removeOrphanedPlannings(test.database.db)).toBe(1);
  const left = (await test.database.db.select({ id: plannings.id }).from(plannings)).map(({ id }) => id);
  expect(left).toEqual(expect.arrayContaining([stays, ofJob]));
  expect(left).not.toContain(orphan);
});
