import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { acquireLease, isLeaseLive, type Fence } from "@internevo/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { keepLease, type WorkStoppedError } from "../src/lease-keeper.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

const held = async (resource: string, holder: string, ttlSeconds: number): Promise<Fence> => {
  const fence = await acquireLease(test.database.db, resource, holder, ttlSeconds);
  if (!fence) throw new Error(`${resource} is held by another`);
  return fence;
};
const keep = (fence: Fence, stop: AbortController) =>
  keepLease({
    database: test.database,
    fence,
    stop,
    isCancelled: async () => false,
    ttlSeconds: 2,
    heartbeatSeconds: 0.1,
  });
const stopped = (stop: AbortController) =>
  new Promise<WorkStoppedError>((resolve) =>
    stop.signal.addEventListener("abort", () => resolve(stop.signal.reason as WorkStoppedError)),
  );

it("keeps a lease beyond its time, and gives it back", async () => {
  const { db } = test.database;
  const keeper = keep(await held("work", "me", 2), new AbortController());
  const until = performance.now() + 3000;
  while (performance.now() < until) expect(await acquireLease(db, "work", "another", 1)).toBeUndefined();
  await keeper.close();
  expect(await isLeaseLive(db, "work")).toBe(false);
});

it("stops work whose lease is another's", async () => {
  const stop = new AbortController();
  const ended = stopped(stop);
  const fence = await held("taken", "me", -1);
  await held("taken", "another", 60);
  const keeper = keep(fence, stop);
  expect((await ended).why).toBe("lease-lost");
  await keeper.close();
  expect(await isLeaseLive(test.database.db, "taken"), "the other's lease stays").toBe(true);
});
