import type { Socket } from "node:net";
import { DriftWatch } from "@internevo/domain";
import { exampleCandidate, exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { asc, eq, sql } from "drizzle-orm";
import type { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, type Database } from "./database.ts";
import { submitJob } from "./jobs.ts";
import { edgesOfAttempt, stepTotals, validationTotals } from "./run-totals.ts";
import { ensureRun, startAttempt } from "./runs.ts";
import { stepMetrics, validationLosses } from "./schema/index.ts";

const STEPS = 300_000;
/** Attempt 2 goes on from it; what attempt 3 made, nobody knows. */
const RESUMED = [0, 100_000, 299_990] as const;
const RANKS = {
  byAttempt: new Map([
    [1, 4],
    [2, 3],
  ]),
  otherwise: 7,
};

let test: TestDatabase;
/** With one connection, of which is counted what Postgres answers. */
let counted: Database;
beforeAll(async () => {
  test = await createTestDatabase();
  counted = openDatabase({ url: test.url, applicationName: "counted", maxConnections: 1 });
});
afterAll(async () => {
  await counted.close();
  await test.drop();
});

async function bytesReadBy(work: () => Promise<unknown>): Promise<number> {
  const { $client: pool } = counted.db as unknown as { readonly $client: Pool };
  const read = async (): Promise<number> => {
    const client = await pool.connect();
    client.release();
    return (client as unknown as { connection: { stream: Socket } }).connection.stream.bytesRead;
  };
  const before = await read();
  await work();
  return (await read()) - before;
}

async function aRun(attempts: readonly number[] = [0]): Promise<string> {
  const jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
  const { id } = await test.database.transaction((tx) => ensureRun(tx, jobId, exampleCandidate()));
  for (const resumedFrom of attempts)
    await test.database.transaction((tx) => startAttempt(tx, id, resumedFrom));
  return id;
}

/** Uneven figures, so that a sum in another order is another one. */
const insertSteps = (runId: string, first: number, last: number) =>
  test.database.db.execute(sql`
    insert into step_metrics (run_id, step, attempt, loss, gradient_norm, learning_rate, step_time_seconds,
      tokens_per_second, exposed_communication_seconds, at)
    select ${runId}, step, case when step <= ${RESUMED[1]} then 1 when step <= ${RESUMED[2]} then 2 else 3 end,
      2 + random(), 1, 1, (0.01 + random() / 1000) * case when step > 290000 then 2 else 1 end, 1, 0, now()
    from generate_series(${first}::int, ${last}::int) step`);

describe("a run of very many steps", () => {
  let runId: string;
  let stored: { step: number; attempt: number; loss: number; seconds: number }[];
  beforeAll(async () => {
    runId = await aRun(RESUMED);
    for (let first = 1; first <= STEPS; first += 50_000) await insertSteps(runId, first, first + 49_999);
    const { step, attempt, loss, stepTimeSeconds: seconds } = stepMetrics;
    stored = await test.database.db
      .select({ step, attempt, loss, seconds })
      .from(stepMetrics)
      .where(eq(stepMetrics.runId, runId))
      .orderBy(asc(step));
    expect(stored).toHaveLength(STEPS);
  }, 300_000);
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

  it("is added up as a loop over its steps would, without their being read", async () => {
    const reading = performance.now();
    let totals: unknown;
    const bytes = await bytesReadBy(async () => void (totals = await stepTotals(counted.db, runId, RANKS)));
    expect(totals).toEqual({
      steps: STEPS,
      seconds: sum(stored.map(({ seconds }) => seconds)),
      rankSeconds: sum(stored.map(({ attempt, seconds }) => seconds * (RANKS.byAttempt.get(attempt) ?? 7))),
      finalLosses: sum(stored.slice(-STEPS / 10).map(({ loss }) => loss)),
    });
    expect(bytes).toBeLessThan(20_000);
    expect(performance.now() - reading).toBeLessThan(60_000);
  }, 120_000);

  it("is compared by the steps that are looked at, where its ranks are found again", async () => {
    const rule = { driftThreshold: 0.1, compareSteps: 20, lastingSeconds: 60 };
    const drifts = [];
    const edges = { first: 21, last: rule.compareSteps, lastSeconds: rule.lastingSeconds };
    const all = stored.flatMap(({ step, attempt, seconds: stepTimeSeconds }) =>
      attempt === 2 ? [{ step, stepTimeSeconds }] : [],
    );
    const read = await edgesOfAttempt(counted.db, { runId, attempt: 2 }, edges);
    // A minute of steps of twenty milliseconds each.
    expect(read.length).toBeLessThan(3100);
    for (const steps of [all, read]) {
      const watch = new DriftWatch(rule);
      watch.add(steps);
      drifts.push(watch.drift());
    }
    expect(drifts[1]).toEqual(drifts[0]);
    expect(drifts[1]).toMatchObject({ atStep: RESUMED[2] });
    // More than are read at once, and a short attempt whole.
    const many = { first: 1, last: 25_000, lastSeconds: 0 };
    expect(await edgesOfAttempt(counted.db, { runId, attempt: 2 }, many)).toEqual([
      ...all.slice(0, 1),
      ...all.slice(-25_000),
    ]);
    expect((await edgesOfAttempt(counted.db, { runId, attempt: 3 }, edges)).map(({ step }) => step)).toEqual(
      Array.from({ length: STEPS - RESUMED[2] }, (_, at) => RESUMED[2] + 1 + at),
    );
  }, 120_000);
});

it("names the step that is missing, or says that there is none", async () => {
  const runId = await aRun();
  const totals = () => stepTotals(test.database.db, runId, RANKS);
  await expect(totals()).rejects.toThrow("step 1 is missing: no step is stored");
  await insertSteps(runId, 2, 9);
  await expect(totals()).rejects.toThrow("step 1 is missing among the stored steps, of which 9 is the last");
  await insertSteps(runId, 1, 1);
  await insertSteps(runId, 11, 60_000);
  await expect(totals()).rejects.toThrow(/^step 10 is missing/);
  await insertSteps(runId, 10, 10);
  expect(await totals()).toMatchObject({ steps: 60_000 });
  await test.database.db.delete(stepMetrics).where(eq(stepMetrics.step, 55_555));
  await expect(totals()).rejects.toThrow(/^step 55555 is missing/);
  await expect(
    stepTotals(test.database.db, runId, RANKS, AbortSignal.abort(new Error("stopped"))),
  ).rejects.toThrow("stopped");
}, 120_000);

it("tells the validation loss at the end, and where it was lowest first", async () => {
  const runId = await aRun();
  const totals = () => validationTotals(counted.db, runId);
  expect(await totals()).toBeUndefined();
  const insert = (losses: readonly (readonly [step: number, loss: number])[]) =>
    test.database.db
      .insert(validationLosses)
      .values(
        losses.map(([step, loss]) => ({
          runId,
          step,
          attempt: 1,
          loss,
          tokens: 64,
          seconds: 0.5,
          at: new Date(),
        })),
      );
  await insert([
    [0, 5],
    [1, 3],
    [2, 3.5],
    [3, 3],
  ]);
  expect(await totals()).toEqual({ lossNats: 3, best: { step: 1, lossNats: 3 }, evaluations: 4, seconds: 2 });
  await test.database.db.execute(sql`
    insert into validation_losses (run_id, step, attempt, loss, tokens, seconds, at)
    select ${runId}, step, 1, 4, 64, 0.25, now() from generate_series(4, 25000) step`);
  await insert([[30_000, 2]]);
  expect(await totals()).toEqual({
    lossNats: 2,
    best: { step: 30_000, lossNats: 2 },
    evaluations: 25_002,
    seconds: 2 + 24_997 / 4 + 0.5,
  });
}, 120_000);
