import { resolveJob } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createWorkload, finishFiring, fireWorkloadNow, getWorkload } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

it("tells the outcome of the last run, and none while it is at work", async () => {
  const spec = resolveJob({
    name: "w",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  const { id } = await createWorkload(test.database.db, {
    name: "w",
    spec,
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 60,
    gainThreshold: 0,
    nextRunAt: null,
  });
  const outcome = async () => (await getWorkload(test.database.db, id))?.lastOutcome;
  const fire = () => test.database.transaction((tx) => fireWorkloadNow(tx, id));
  const first = await fire();
  expect(await outcome()).toBeNull();
  await test.database.transaction((tx) =>
    finishFiring(tx, first.id, { state: "succeeded", outcome: "kept" }),
  );
  expect(await outcome()).toBe("kept");
  await fire();
  expect(await outcome()).toBeNull();
});
