import { eq } from "drizzle-orm";
import { DEFAULT_DOCUMENTS_PER_SEQUENCE, type Candidate, type JobSpec } from "@internevo/domain";
import { exampleCandidate, examplePlanning, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Transaction } from "./database.ts";
import { submitJob } from "./jobs.ts";
import { isBeingTrained, planInUse, runningWork } from "./plan-in-use.ts";
import { storePlanning } from "./plannings.ts";
import { createProposal, proposalsToPursue } from "./proposals.ts";
import { ensureRun } from "./runs.ts";
import { jobs, workloads } from "./schema/index.ts";
import { createWorkload, fireWorkloadNow } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterEach(async () => {
  await test.database.db.update(jobs).set({ state: "cancelled", chosen: null });
  await test.database.db.delete(workloads);
});
afterAll(() => test.drop());

const within = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => test.database.transaction(work);

/** Another plan than that of runs. */
const other: Candidate = {
  ...exampleCandidate(),
  plan: { ...exampleCandidate().plan, recompute: true, recomputeLayers: 1 },
};

/** A job that trains. */
async function train(spec: JobSpec, candidate = exampleCandidate()): Promise<string> {
  const id = await within((tx) => submitJob(tx, spec));
  await within((tx) => ensureRun(tx, id, candidate));
  await test.database.db.update(jobs).set({ state: "running", chosen: candidate }).where(eq(jobs.id, id));
  return id;
}

/** A workload whose policy has a run go over to what is proposed. */
async function propose(spec: JobSpec): Promise<string> {
  const { id: workloadId } = await within((tx) =>
    createWorkload(tx, { name: "nightly", spec, policy: "apply", cron: "0 3 * * *", nextRunAt: null }),
  );
  const { id: firingId } = await within((tx) => fireWorkloadNow(tx, workloadId));
  const planningId = await within((tx) => storePlanning(tx, examplePlanning(1), { workloadId }));
  await within((tx) =>
    createProposal(tx, {
      workloadId,
      firingId,
      planningId,
      current: null,
      proposed: other,
      predictedGain: 0.1,
      differences: [],
    }),
  );
  return workloadId;
}

const plain = exampleSpec("work");
const fixed: JobSpec = { ...plain, plan: { tensorParallel: 1 } };
const packed = (more: object = {}): JobSpec => ({
  ...plain,
  data: { format: "tokens", path: "/data/tokens.bin", packing: "documents", ...more },
});
const counted = (spec: JobSpec): JobSpec => ({
  ...spec,
  documents: {
    sequenceLengthTokens: spec.sequenceLengthTokens,
    sequences: 1,
    meanDocuments: 2,
    keysShare: 0.5,
    rings: [{ ranks: 1, work: 0.5, deviation: 0, most: 0.5, firstTurn: 1 }],
  },
});

it.each([
  ["equal job files", plain, plain, true],
  ["equal job files that fix the plan", fixed, { ...fixed }, true],
  ["a run that fixes its plan", fixed, plain, false],
  ["a workload that fixes its plan", plain, fixed, false],
  ["another fixed plan", fixed, { ...plain, plan: { tensorParallel: 2 } }, false],
  ["equal packing, counted for the run alone", counted(packed()), packed(), true],
  ["equal packing, counted for the workload alone", packed(), counted(packed()), true],
  [
    "as many documents, once by default",
    packed({ maxDocumentsPerSequence: DEFAULT_DOCUMENTS_PER_SEQUENCE }),
    packed(),
    true,
  ],
  ["a run that packs documents", packed(), plain, false],
  ["a workload that packs documents", plain, packed(), false],
  ["packing that is none", { ...packed(), data: { ...packed().data, packing: "none" } }, plain, true],
  ["more documents", packed({ maxDocumentsPerSequence: 7 }), packed({ maxDocumentsPerSequence: 9 }), false],
  ["other data", { ...plain, data: { format: "tokens", path: "/data/tokens.bin" } }, plain, true],
] as const)("decides whose work it is, in both directions: %s", async (_, run, workload, same) => {
  const jobId = await train(run as JobSpec);
  const workloadId = await propose(workload);
  const { db } = test.database;
  const work = { id: workloadId, project: "default", spec: workload as JobSpec };
  expect((await runningWork(db, work))?.jobId).toBe(same ? jobId : undefined);
  expect((await planInUse(db, work)) !== undefined).toBe(same);
  const pursued = await proposalsToPursue(db);
  expect(pursued.map((each) => each.workload.id)).toEqual(same ? [workloadId] : []);
});

it("a plan that was proposed is in use where a run takes it up, though its job file fixes it", async () => {
  const { db } = test.database;
  const workloadId = await propose(plain);
  const work = { id: workloadId, project: "default", spec: plain };
  await train(fixed);
  expect(await planInUse(db, work)).toBeUndefined();
  await train(fixed, other);
  expect((await planInUse(db, work))?.plan).toEqual(other.plan);
  // It holds the cluster, and nothing changes its plan by itself.
  expect([await isBeingTrained(db, work), await runningWork(db, work)]).toEqual([true, undefined]);
  expect(await isBeingTrained(db, { ...work, spec: packed() })).toBe(false);
});
