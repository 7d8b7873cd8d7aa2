import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { eq, sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { listDeadLetters, storeDeadLetter } from "./dead-letters.ts";
import { submitJob } from "./jobs.ts";
import { projectOfLetter } from "./projects.ts";
import { deadLetters } from "./schema/index.ts";

let test: TestDatabase;
let jobId: string;
beforeAll(async () => {
  test = await createTestDatabase();
  jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
});
afterAll(() => test.drop());

describe("the dead letters of a project", () => {
  it("are those about its jobs, whatever others hold", async () => {
    const { db } = test.database;
    const store = (payload: unknown): Promise<string> =>
      storeDeadLetter(db, {
        consumer: "planner/job.plan",
        messageId: "m",
        messageType: "job.plan",
        subject: "command.job.plan",
        error: "boom",
        deliveries: 8,
        payload,
      });
    const own = [
      await store({ data: { jobId } }),
      await store({ data: { jobId: jobId.toUpperCase() } }),
      await store({ data: { jobId, workloadId: "none" } }),
    ];
    for (const odd of ["none", `${jobId}\n`, ` ${jobId}`, "", 7, null, [jobId], crypto.randomUUID()])
      await store({ data: { jobId: odd, workloadId: odd } });
    for (const payload of ["text", 7, [], { data: null }, { data: "text" }]) await store(payload);
    const { items } = await listDeadLetters(db, { limit: 200 }, "default");
    expect(items.map(({ id }) => id).sort()).toEqual(own.sort());
  });

  it("are found by the index of what they are about, and no table is read for each", async () => {
    const { db } = test.database;
    const letters = db.select().from(deadLetters).where(eq(projectOfLetter, "default")).as("letters");
    const plan = await db.transaction(async (tx) => {
      await tx.execute(sql`set local enable_seqscan = off`);
      const { rows } = await tx.execute<{ "QUERY PLAN": string }>(sql`explain select * from ${letters}`);
      return rows.map((row) => row["QUERY PLAN"]).join("\n");
    });
    expect(plan).toMatch(/ on jobs j .*\n\s+Index Cond: \(id = /);
    expect(plan).toMatch(/ on workloads w .*\n\s+Index Cond: \(id = /);
  });
});
