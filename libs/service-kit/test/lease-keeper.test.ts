import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { acquireLease, releaseLease, type Fence } from "@internevo/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { keepLeases } from "../src/lease-keeper.ts";
import { signalled } from "./support.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

const held = async (resource: string, holder: string): Promise<Fence> => {
  const fence = await acquireLease(test.database.db, resource, holder, 60);
  if (!fence) throw new Error(`${resource} is held by another`);
  return fence;
};

it("tells who has to wait for a resource, once, and nobody who need not", async () => {
  const keeper = keepLeases({
    database: test.database,
    holder: "me",
    first: await held("work", "me"),
    turn: { waiter: "me", started: false, since: new Date(), goesOn: false },
    stop: new AbortController(),
    isCancelled: async () => false,
  });
  try {
    let told = 0;
    const waits = signalled();
    const onWait = (): void => {
      told += 1;
      waits.resolve();
    };
    await keeper.release(await keeper.reserve("cluster:free", onWait));
    expect(told).toBe(0);

    const other = await held("cluster:taken", "another");
    const reserved = keeper.reserve("cluster:taken", onWait);
    await waits.promise;
    await releaseLease(test.database.db, other);
    expect((await reserved).token).toBeGreaterThan(other.token);
    expect(told).toBe(1);
  } finally {
    await keeper.close();
  }
});
