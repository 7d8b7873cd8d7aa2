import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import type { Transaction } from "./database.ts";
import { listJobEvents } from "./job-events.ts";
import { appendJobEvent } from "./jobs.ts";
import { recordSteps } from "./runs.ts";

// Services of an earlier version know a table `job_events` that has a row for each step. These are their statements.

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

let jobId: string;
let runId: string;
beforeEach(async () => {
  [jobId, runId] = [randomUUID(), randomUUID()];
  await test.database.db.execute(sql`insert into jobs (id, name, spec, state, traceparent)
    values (${jobId}::uuid, 'j', '{}', 'running', 't')`);
  await test.database.db.execute(sql`insert into runs (id, job_id, candidate)
    values (${runId}::uuid, ${jobId}::uuid, '{}')`);
});

const metric = (step: number, attempt = 1) => ({
  step,
  attempt,
  loss: 3 - step / 10,
  gradientNorm: 1,
  learningRate: 0.1,
  stepTimeSeconds: attempt,
  tokensPerSecond: 100,
  exposedCommunicationSeconds: 0,
  at: "2026-11-28T10:00:00.123Z",
});
type Metric = ReturnType<typeof metric>;

/** First the figures, without the lock of the job's row. */
const oldFigures = (tx: Transaction, m: Metric) =>
  tx.execute(sql`insert into step_metrics (run_id, step, attempt, loss, gradient_norm, learning_rate,
      step_time_seconds, tokens_per_second, exposed_communication_seconds, at)
    values (${runId}::uuid, ${m.step}, ${m.attempt}, ${m.loss}, ${m.gradientNorm}, ${m.learningRate},
      ${m.stepTimeSeconds}, ${m.tokensPerSecond}, ${m.exposedCommunicationSeconds}, ${m.at}::timestamptz)
    on conflict (run_id, step) do update set attempt = excluded.attempt, step_time_seconds = excluded.step_time_seconds
    where step_metrics.attempt < excluded.attempt`);
const oldEvent = async (tx: Transaction, type: string, data: unknown): Promise<void> => {
  await tx.execute(sql`select id from jobs where id = ${jobId}::uuid for no key update`);
  await tx.execute(sql`insert into job_events (id, job_id, type, at, data)
    values (default, ${jobId}::uuid, ${type}, clock_timestamp(), ${JSON.stringify(data)}::jsonb)`);
};
const oldStep = (m: Metric): Promise<void> =>
  test.database.transaction(async (tx) => {
    await oldFigures(tx, m);
    await oldEvent(tx, "step", m);
  });
interface OldEvent {
  readonly [column: string]: unknown;
  readonly id: string;
  readonly type: string;
  readonly data: Record<string, unknown>;
}
const oldRead = async (afterId = 0): Promise<OldEvent[]> =>
  (
    await test.database.db.execute<OldEvent>(sql`select id, job_id, type, at, data from job_events
      where job_id = ${jobId}::uuid and id > ${afterId} order by id limit 500`)
  ).rows;

const kinds = (events: readonly { readonly type: string; readonly data: Record<string, unknown> }[]) =>
  events.map(({ type, data }) => (type === "step" ? `step ${String(data["step"])}` : type));

it("what either version writes, both read, in one order", async () => {
  await oldStep(metric(1));
  await test.database.transaction((tx) => appendJobEvent(tx, jobId, "log", { message: "new" }));
  await test.database.transaction((tx) => recordSteps(tx, { jobId, runId }, [metric(2), metric(3)]));
  await test.database.transaction((tx) => oldEvent(tx, "state", { to: "running" }));
  await oldStep(metric(4));
  const expected = ["step 1", "log", "step 2", "step 3", "state", "step 4"];
  const events = await listJobEvents(test.database.db, jobId);
  expect(kinds(events)).toEqual(expected);
  const old = await oldRead();
  expect(kinds(old)).toEqual(expected);
  expect(old.map(({ id }) => Number(id))).toEqual(events.map(({ id }) => id));
  expect(old.filter(({ type }) => type === "step").map(({ data }) => data)).toEqual(
    [1, 2, 3, 4].map((step) => metric(step)),
  );
  // Each is stored once.
  const { rows } = await test.database.db.execute(
    sql`select count(*)::int as count from job_log where job_id = ${jobId}::uuid`,
  );
  expect(rows).toEqual([{ count: 2 }]);
});

it("who followed to an event misses no step that an earlier version stored before and announced after it", async () => {
  const stored = Promise.withResolvers<void>();
  const logged = Promise.withResolvers<void>();
  const storing = test.database.transaction(async (tx) => {
    await oldFigures(tx, metric(1));
    stored.resolve();
    await logged.promise;
    await oldEvent(tx, "step", metric(1));
  });
  await stored.promise;
  await test.database.transaction((tx) => appendJobEvent(tx, jobId, "log", { message: "a rank is slow" }));
  const [log] = await listJobEvents(test.database.db, jobId);
  logged.resolve();
  await storing;
  expect(kinds(await listJobEvents(test.database.db, jobId, log?.id))).toEqual(["step 1"]);
});

it("a step that an earlier version ran again is told again, with its figures", async () => {
  await test.database.transaction((tx) => recordSteps(tx, { jobId, runId }, [metric(1), metric(2)]));
  const seen = (await listJobEvents(test.database.db, jobId)).at(-1)?.id ?? 0;
  await oldStep(metric(2, 2));
  for (const events of [await listJobEvents(test.database.db, jobId, seen), await oldRead(seen)])
    expect(events.map(({ data }) => [data["step"], data["attempt"], data["stepTimeSeconds"]])).toEqual([
      [2, 2, 2],
    ]);
});
