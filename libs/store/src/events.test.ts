import { shippedProfile } from "@internevo/cost-model";
import { eventSchema, EVENT_DATA, cloudEventOf, isEventType, type EventType } from "@internevo/contracts";
import {
  exampleCandidate,
  exampleMeasurement,
  examplePlanning,
  exampleSpec,
  exampleStep,
} from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { asc, eq, isNotNull } from "drizzle-orm";
import { Check, Errors } from "typebox/value";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import type { Transaction } from "./database.ts";
import { giveWay } from "./give-way.ts";
import { claimHosts } from "./host-queue.ts";
import { getJob, requestCancel, setPriority, submitJob, transitionJob } from "./jobs.ts";
import { jobLease } from "./leases.ts";
import { relayOutbox } from "./outbox.ts";
import { storePlanning } from "./plannings.ts";
import { storeProfile } from "./profiles.ts";
import { createProposal } from "./proposals.ts";
import { createProject } from "./projects.ts";
import { ensureRun, finishAttempt, recordCheckpoint, recordSteps, startAttempt } from "./runs.ts";
import { outbox } from "./schema/index.ts";
import { newTraceparent } from "./trace.ts";
import { createTrials, finishTrial, repeatTrial, startTrial } from "./trials.ts";
import { createWorkload, fireWorkloadNow } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
  await within((tx) => createProject(tx, { name: "nlp" }));
});
afterAll(() => test.drop());
beforeEach(async () => {
  await test.database.db.execute("truncate host_claims, host_waiters, host_holds, preemptible_holds, outbox");
});

const within = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => test.database.transaction(work);
const submit = (over: object = {}): Promise<string> =>
  within((tx) => submitJob(tx, { ...exampleSpec("small"), project: "nlp", ...over }));

interface Told {
  readonly type: EventType;
  readonly project: string | null;
  readonly data: Record<string, unknown>;
}
/** The events in the outbox, in order, each as its schema says; they are taken out of it. */
async function told(only?: EventType): Promise<Told[]> {
  const { db } = test.database;
  const rows = await db.select().from(outbox).orderBy(asc(outbox.sequence));
  await db.delete(outbox).where(isNotNull(outbox.id));
  const events = rows.flatMap((row) => (isEventType(row.type) ? [{ ...row, type: row.type }] : []));
  for (const { id, type, occurredAt, traceparent, project, data } of events) {
    const event = cloudEventOf(
      { id, type, occurredAt: occurredAt.toISOString(), traceparent, project: project ?? "", data },
      "here",
    );
    const schema = eventSchema(type);
    expect(Check(schema, event) ? [] : [...Errors(schema, event)], type).toEqual([]);
    const known = Object.keys(EVENT_DATA[type].properties);
    expect(
      Object.keys(data).filter((key) => !known.includes(key)),
      type,
    ).toEqual([]);
    expect([type, project]).toEqual([type, "nlp"]);
  }
  return events.filter(({ type }) => only === undefined || type === only);
}
const typesOf = (events: readonly Told[]): string[] => events.map(({ type }) => type);

it("tells each move of a job with its name and project, in one insert with the command", async () => {
  const id = await submit();
  await within((tx) => transitionJob(tx, { jobId: id, from: "profiling", to: "planning", reason: "r" }));
  const events = await told();
  expect(events).toMatchObject([
    { type: "job.transitioned", data: { jobId: id, jobName: "small", from: null, to: "profiling" } },
    { type: "job.transitioned", data: { from: "profiling", to: "planning", reason: "r" } },
  ]);
});

it("tells nothing of what is rolled back", async () => {
  const id = await submit();
  await told();
  await expect(
    within(async (tx) => {
      await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
      await storePlanning(tx, examplePlanning(2), { jobId: id });
      throw new Error("no");
    }),
  ).rejects.toThrow("no");
  expect(await told()).toEqual([]);
});

it("tells of a measured profile and of a planning, for jobs and workloads", async () => {
  const jobId = await submit();
  const profile = shippedProfile("a800-128");
  const workload = await createWorkload(test.database.db, {
    name: "nightly",
    spec: { ...exampleSpec(), project: "nlp" },
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 60,
    gainThreshold: 0.1,
    nextRunAt: null,
  });
  const firing = await within((tx) => fireWorkloadNow(tx, workload.id));
  await told();
  const measured = { clusterKey: "local:here:1x2", profile, freshForSeconds: 60 };
  const profileId = await within((tx) => storeProfile(tx, measured, { jobId }));
  await within((tx) => storeProfile(tx, measured, { workloadId: workload.id }));
  await within((tx) => storePlanning(tx, examplePlanning(3), { jobId, profileId }));
  await within((tx) =>
    storePlanning(tx, { ...examplePlanning(3), runnableCandidates: [] }, { workloadId: workload.id }),
  );
  const proposal = {
    workloadId: workload.id,
    firingId: firing.id,
    planningId: null,
    current: null,
    proposed: exampleCandidate(2),
    predictedGain: 0.25,
    differences: [],
  };
  expect(await within((tx) => createProposal(tx, proposal))).toBeDefined();
  expect(await within((tx) => createProposal(tx, proposal)), "one a firing").toBeUndefined();
  const ofWorkload = { jobId: null, workloadId: workload.id, workloadName: "nightly" };
  expect(await told()).toMatchObject([
    { type: "profile.measured", data: { jobId, workloadId: null, profileId, clusterKey: "local:here:1x2" } },
    { type: "profile.measured", data: ofWorkload },
    {
      type: "planning.done",
      data: { jobId, profileId, evaluated: 10, feasible: 3, best: { stepTimeSeconds: 2 } },
    },
    { type: "planning.done", data: { ...ofWorkload, best: null } },
    { type: "proposal.made", data: { workloadId: workload.id, predictedGain: 0.25, current: null } },
  ]);
});

it("tells of each trial once, when it ends, also by the end of its job", async () => {
  const id = await submit();
  const trials = await within((tx) => createTrials(tx, id, [1, 2, 3, 4].map(exampleCandidate)));
  const [first, second, third] = trials.map((trial) => trial.id) as [string, string, string];
  await within((tx) => transitionJob(tx, { jobId: id, from: "profiling", to: "planning" }));
  await within((tx) => transitionJob(tx, { jobId: id, from: "planning", to: "trialling" }));
  await told();
  const measured = exampleMeasurement();
  for (const trial of [first, second, third]) await within((tx) => startTrial(tx, trial));
  await within((tx) => finishTrial(tx, first, { measured }));
  await within((tx) => finishTrial(tx, first, { measured }));
  await within((tx) => repeatTrial(tx, first, { ...measured, runStepTimeSeconds: [1, 2] }));
  await within((tx) => finishTrial(tx, second, { failure: { code: "rank-lost", message: "gone" } }));
  await within((tx) => requestCancel(tx, id));
  expect(await told()).toMatchObject([
    { data: { trialId: first, rank: 1, state: "succeeded", stepTimeSeconds: 1, failure: null } },
    { data: { trialId: second, state: "failed", stepTimeSeconds: null, failure: { code: "rank-lost" } } },
    // The fourth had not begun.
    { type: "trial.ended", data: { trialId: third, state: "cancelled" } },
    { type: "job.transitioned", data: { to: "cancelled" } },
  ]);
});

it("tells of attempts and their checkpoints once, and of no step", async () => {
  const jobId = await submit();
  const run = await within((tx) => ensureRun(tx, jobId, exampleCandidate()));
  await told();
  await within((tx) => startAttempt(tx, run.id));
  await within((tx) => recordSteps(tx, { jobId, runId: run.id }, [exampleStep(1, 1), exampleStep(2, 1)]));
  const write = (attempt: number, step: number) =>
    within((tx) => recordCheckpoint(tx, { runId: run.id, attempt }, { step, bytes: 10, seconds: 0.5 }));
  // Whoever finds the ranks again is told of all that they wrote.
  for (const step of [1, 2, 1, 2]) await write(1, step);
  await within((tx) => startAttempt(tx, run.id, 2));
  await write(2, 2);
  await within((tx) => finishAttempt(tx, run.id, 2, { state: "succeeded" }));
  await within((tx) => finishAttempt(tx, run.id, 2, { state: "succeeded" }));
  await within((tx) => startAttempt(tx, run.id, 2));
  await within((tx) => requestCancel(tx, jobId));
  expect(await told()).toMatchObject([
    { type: "attempt.begun", data: { number: 1, resumedFromStep: 0 } },
    { type: "checkpoint.written", data: { attempt: 1, step: 1, bytes: 10 } },
    { type: "checkpoint.written", data: { attempt: 1, step: 2 } },
    { type: "attempt.ended", data: { number: 1, state: "lost", lastStep: 2 } },
    { type: "attempt.begun", data: { number: 2, resumedFromStep: 2 } },
    { type: "checkpoint.written", data: { attempt: 2, step: 2 } },
    { type: "attempt.ended", data: { number: 2, state: "succeeded" } },
    { type: "attempt.begun", data: { number: 3 } },
    { type: "attempt.ended", data: { number: 3, state: "stopped" } },
    { type: "job.transitioned", data: { to: "cancelled" } },
  ]);
});

const claim = (jobId: string, minute: number, priority: "normal" | "high" = "normal") =>
  within((tx) =>
    claimHosts(tx, {
      owner: jobLease(jobId),
      hosts: ["node-1"],
      priority,
      submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
      command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
    }),
  );

it("tells when a job begins to wait, gets its hosts, and gives way", async () => {
  const preemptible = { preemptible: true, checkpointing: { everySteps: 10, keepLast: 1 } };
  const [holder, waiter] = [await submit(preemptible), await submit({ name: "urgent" })];
  await told();
  expect(await claim(holder, 0)).toBe(true);
  expect(await claim(holder, 0), "it asks again, and has them").toBe(true);
  expect(await claim(waiter, 1, "high")).toBe(false);
  expect(await claim(waiter, 1, "high"), "it waits already").toBe(false);
  expect(await told()).toMatchObject([
    {
      type: "queue.granted",
      data: { jobId: holder, hosts: ["node-1"], gpus: 2, waitedSeconds: expect.closeTo(0, 0) },
    },
    { type: "queue.waiting", data: { jobId: waiter, jobName: "urgent", priority: "high" } },
  ]);
  // It has run for long enough to be asked.
  await test.database.db.execute("update preemptible_holds set began_at = now() - interval '1 hour'");
  await within(async (tx) => {
    const job = await getJob(tx, waiter);
    if (job) await setPriority(tx, job, "high", "ada");
  });
  await test.database.db.execute("update host_waiters set waiting_since = now() - interval '90 seconds'");
  const run = await within((tx) => ensureRun(tx, holder, exampleCandidate()));
  await within((tx) => startAttempt(tx, run.id));
  await told();
  await within((tx) =>
    giveWay(tx, holder, { type: "job.profile", data: { jobId: holder }, traceparent: newTraceparent() }),
  );
  const events = await told();
  expect(typesOf(events)).toEqual(["queue.gave-way", "queue.granted", "attempt.ended"]);
  expect(events).toMatchObject([
    { data: { jobId: holder, gaveWayTo: expect.stringContaining("urgent") } },
    { data: { jobId: waiter, waitedSeconds: expect.closeTo(90, -1) } },
    { data: { jobId: holder, state: "stopped", gaveWayTo: expect.stringContaining("urgent") } },
  ]);
});

it("completes what a service of an earlier version wrote while both run", async () => {
  const id = await submit();
  await told();
  await test.database.db
    .insert(outbox)
    .values({
      id: "00000000-0000-4000-8000-000000000001",
      type: "job.transitioned",
      subjectId: id,
      data: { jobId: id, from: null, to: "profiling", reason: null },
      traceparent: newTraceparent(),
    });
  const published: unknown[] = [];
  await relayOutbox(test.database, {
    namespace: "here",
    async publish({ project, data }) {
      published.push({ project, data });
      return { streamSequence: 1 };
    },
  });
  expect(published).toEqual([
    { project: "nlp", data: { jobId: id, jobName: "small", from: null, to: "profiling", reason: null } },
  ]);
  expect(await test.database.db.$count(outbox, eq(outbox.subjectId, id))).toBe(1);
});
