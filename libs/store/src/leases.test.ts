import { afterAll, beforeAll, expect, it } from "vitest";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { getJobState, submitJob, transitionJob } from "./jobs.ts";
import {
  acquireLease,
  assertFence,
  isLeaseLive,
  releaseLease,
  renewLease,
  StaleFenceError,
} from "./leases.ts";

/** Seconds of a lease that ended a moment ago, though the machine's clock be set back a little meanwhile. */
const OVER = -1;

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

it("gives a lease to one of many that ask at once, with a greater token each time", async () => {
  const { db } = test.database;
  let token = 0;
  for (let round = 0; round < 5; round += 1) {
    const got = (
      await Promise.all(
        Array.from({ length: 8 }, (_, index) => acquireLease(db, "one", `holder-${index}`, 30)),
      )
    ).filter((fence) => fence !== undefined);
    expect(got).toHaveLength(1);
    const [fence] = got;
    if (!fence) throw new Error("no fence");
    expect(fence.token).toBeGreaterThan(token);
    token = fence.token;
    expect(await isLeaseLive(db, "one")).toBe(true);
    await releaseLease(db, fence);
    expect(await renewLease(db, fence, 30)).toBe(false);
  }
});

it("throws away what a replaced holder writes", async () => {
  const { database } = test;
  const jobId = await database.transaction((tx) => submitJob(tx, exampleSpec()));
  const stale = await acquireLease(database.db, "job", "slow", OVER);
  const fresh = await acquireLease(database.db, "job", "quick", 30);
  if (!stale || !fresh) throw new Error("no fence");
  const write = (fence: typeof stale) =>
    database.transaction(async (tx) => {
      await assertFence(tx, fence);
      return transitionJob(tx, { jobId, from: "profiling", to: "planning" });
    });
  await expect(write(stale)).rejects.toThrow(StaleFenceError);
  expect(await getJobState(database.db, jobId)).toBe("profiling");
  expect(await renewLease(database.db, stale, 30)).toBe(false);
  await releaseLease(database.db, stale);
  expect(await write(fresh)).toBe(true);
});

it("lets nobody take a lease over while its holder's transaction is open", async () => {
  const { database } = test;
  const held = await acquireLease(database.db, "open", "first", OVER);
  if (!held) throw new Error("no fence");
  const order: string[] = [];
  let takeOver: Promise<unknown> = Promise.resolve();
  await database.transaction(async (tx) => {
    await assertFence(tx, held);
    takeOver = acquireLease(database.db, "open", "second", 30).then(() => order.push("taken over"));
    // Long enough for the other's statement to arrive and wait: Postgres says when.
    for (;;) {
      const { rows } = await tx.execute<{ waiting: number }>(
        "select count(*)::int as waiting from pg_locks where not granted",
      );
      if ((rows[0]?.waiting ?? 0) > 0) break;
    }
    order.push("written");
  });
  await takeOver;
  expect(order).toEqual(["written", "taken over"]);
});
