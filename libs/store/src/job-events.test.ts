import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { subscribeJobEvents } from "./job-feed.ts";
import { appendJobEvent, appendJobEvents, submitJob, transitionJob } from "./jobs.ts";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

const log = (jobId: string, message: string) =>
  test.database.transaction((tx) =>
    appendJobEvent(tx, jobId, "log", { level: "info", source: "test", message }),
  );

it("gives every event once and in order, to readers that begin, break off and reconnect while four write", async () => {
  const jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    for (let index = 0; index < 50; index += 1) await log(jobId, `${writer}/${index}`);
  });
  const seen: string[] = [];
  let last = 0;
  const read = async () => {
    for (;;) {
      let inThisConnection = 0;
      for await (const event of subscribeJobEvents(test.database, jobId, last, { pollSeconds: 30 })) {
        expect(event.id).toBeGreaterThan(last);
        last = event.id;
        seen.push(event.type === "log" ? String(event.data["message"]) : `state ${String(event.data["to"])}`);
        if (event.data["to"] === "failed") return;
        // What a browser does: it comes back with the last id.
        if (++inThisConnection === 17) break;
      }
    }
  };
  const reading = read();
  await Promise.all(writers);
  await test.database.transaction((tx) => transitionJob(tx, { jobId, from: "profiling", to: "failed" }));
  await reading;
  expect(seen).toHaveLength(202);
  expect(new Set(seen).size).toBe(202);
  expect(seen[0]).toBe("state profiling");
  expect(seen.at(-1)).toBe("state failed");
});

it("goes on after every connection to Postgres was cut", async () => {
  const jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
  const seen: string[] = [];
  const gone = new AbortController();
  const reading = (async () => {
    for await (const event of subscribeJobEvents(test.database, jobId, 0, {
      signal: gone.signal,
      pollSeconds: 30,
    })) {
      seen.push(event.type);
      if (seen.length === 3) return;
    }
  })();
  await log(jobId, "before");
  const other = await createTestDatabase();
  const { rows } = await test.database.db.execute<{ name: string }>("select current_database() as name");
  await other.database.db.execute(
    `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${rows[0]?.name}'`,
  );
  await other.drop();
  await test.database.idempotentTransaction((tx) =>
    appendJobEvent(tx, jobId, "log", { level: "info", source: "test", message: "after" }),
  );
  await reading;
  gone.abort();
  expect(seen).toEqual(["state", "log", "log"]);
});

it("reads the table once for all followers of a job", async () => {
  const jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
  const followers = 100;
  const messages = Array.from({ length: 20 }, (_, index) => `line ${index}`);
  let following = 0;
  const began = Promise.withResolvers<void>();
  const read = async (): Promise<string[]> => {
    const seen: string[] = [];
    for await (const event of subscribeJobEvents(test.database, jobId, 0, { pollSeconds: 30 })) {
      if (event.type === "log") seen.push(String(event.data["message"]));
      else if (event.data["to"] === "profiling" && ++following === followers) began.resolve();
    }
    return seen;
  };
  const reading = Promise.all(Array.from({ length: followers }, read));
  await began.promise;
  const queries = vi.spyOn(test.database.db, "select");
  for (const message of messages) await log(jobId, message);
  const behind = read();
  await test.database.transaction((tx) => transitionJob(tx, { jobId, from: "profiling", to: "failed" }));
  for (const seen of [...(await reading), await behind]) expect(seen).toEqual(messages);
  // Each event in one or two looks of the feed; each follower asks once more at the end.
  expect(queries.mock.calls.length).toBeLessThan(followers + 3 * messages.length + 20);
  queries.mockRestore();
});

describe("the past of a job", () => {
  const lines = 3000;
  let jobId: string;
  beforeAll(async () => {
    jobId = await test.database.transaction((tx) => submitJob(tx, exampleSpec()));
    await test.database.transaction((tx) =>
      appendJobEvents(
        tx,
        jobId,
        Array.from({ length: lines }, (_, index) => ({
          type: "log" as const,
          data: { level: "info", source: "test", message: String(index) },
        })),
      ),
    );
    await test.database.transaction((tx) => transitionJob(tx, { jobId, from: "profiling", to: "failed" }));
  });
  const read = async (): Promise<string[]> => {
    const seen: string[] = [];
    for await (const event of subscribeJobEvents(test.database, jobId, 0, { pollSeconds: 30 }))
      if (event.type === "log") seen.push(String(event.data["message"]));
    return seen;
  };

  it("is read once for those who begin together", async () => {
    const followers = 50;
    const queries = vi.spyOn(test.database.db, "select");
    const all = await Promise.all(Array.from({ length: followers }, read));
    for (const seen of all) expect(seen).toEqual(Array.from({ length: lines }, (_, index) => String(index)));
    // Each asks for itself at the end, when nothing may be left out.
    expect(queries.mock.calls.length).toBeLessThan(3 * followers + lines / 50);
    queries.mockRestore();
  });

  it("leaves the database to others, however many read it", async () => {
    const locked = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const locking = test.database.transaction(async (tx) => {
      await tx.execute("lock table job_log in access exclusive mode");
      locked.resolve();
      await asked.promise;
    });
    await locked.promise;
    const reading = Array.from({ length: 30 }, read);
    const { rows } = await test.database.db.execute("select 1 as one");
    asked.resolve();
    await locking;
    expect(rows).toEqual([{ one: 1 }]);
    for (const seen of await Promise.all(reading)) expect(seen).toHaveLength(lines);
  });
});
