import { MOST_WORKLOADS, resolveJob } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createProject } from "./projects.ts";
import {
  createWorkload,
  deleteWorkload,
  finishFiring,
  fireWorkloadNow,
  getWorkload,
  listWorkloads,
  noteFiringWait,
} from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

const specIn = (project: string) =>
  resolveJob({
    name: "w",
    project,
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
const create = (name: string, project = "default") =>
  test.database.transaction((tx) =>
    createWorkload(tx, { name, spec: specIn(project), cron: "0 3 * * *", nextRunAt: null }),
  );

it("a list leaves the jobs out, one has its own", async () => {
  const made = await create("lean");
  const { items } = await listWorkloads(test.database.db);
  const { spec, ...lean } = made;
  expect(items.find(({ id }) => id === made.id)).toEqual(lean);
  expect((await getWorkload(test.database.db, made.id))?.spec).toEqual(spec);
});

it("a project keeps so many at most, also where many are added at once", async () => {
  await test.database.transaction((tx) => createProject(tx, { name: "full" }));
  const added = await Promise.allSettled(
    Array.from({ length: MOST_WORKLOADS + 5 }, (_, at) => create(`w${at}`, "full")),
  );
  const refused = added.filter((one) => one.status === "rejected");
  expect(refused).toHaveLength(5);
  for (const { reason } of refused)
    expect(reason).toMatchObject({
      code: "quota-exceeded",
      details: [{ field: "name", remedy: expect.stringMatching(/^remove one/) }],
    });
  await create("of another project");
  const [first] = added.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  await test.database.transaction((tx) => deleteWorkload(tx, first!.id));
  await create("again", "full");
});

it("tells the outcome of the last run, and none while it is at work", async () => {
  const { id } = await create("w");
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

it("tells why a run waits, until it waits no more", async () => {
  const { id } = await create("waits");
  const outcome = async () => (await getWorkload(test.database.db, id))?.lastOutcome;
  const { id: firingId } = await test.database.transaction((tx) => fireWorkloadNow(tx, id));
  const waits = (reason: string | null) =>
    test.database.transaction((tx) => noteFiringWait(tx, firingId, reason));
  await waits("queued: a quota");
  expect(await outcome()).toBe("queued: a quota");
  await expect(test.database.transaction((tx) => fireWorkloadNow(tx, id))).rejects.toMatchObject({
    code: "conflict",
    details: [{ message: "has a run that has not ended (queued: a quota)" }],
  });
  await waits(null);
  expect(await outcome()).toBeNull();
  await test.database.transaction((tx) =>
    finishFiring(tx, firingId, { state: "succeeded", outcome: "kept" }),
  );
  await waits("queued: too late");
  expect(await outcome()).toBe("kept");
});
