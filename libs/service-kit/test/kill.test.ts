import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { resolveJob } from "@internevo/domain";
import { startLocalStack, type LocalStack } from "@internevo/local-stack";
import {
  getJobDetail,
  getJobState,
  listJobEvents,
  migrateDatabase,
  openDatabase,
  requestCancel,
  submitJob,
  subscribeJobEvents,
  type Database,
} from "@internevo/store";
import { aJob, eventually } from "@internevo/test-kit";

/**
 * Real servers and a real worker process of this file's own, each killed with -9 while a command is being
 * handled.
 */
let dataDirectory: string;
let stack: LocalStack;
let database: Database;

beforeAll(async () => {
  dataDirectory = mkdtempSync(join(tmpdir(), "internevo-kill-"));
  stack = await startLocalStack({
    dataDirectory,
    namespace: "kill",
    databaseUrl: "",
    natsUrl: "",
    services: [{ name: "worker", entry: join(import.meta.dirname, "worker.ts") }],
    ...(process.env["SHOW_LOGS"] ? { onLog: (source, line) => console.log(source, line) } : {}),
  });
  database = openDatabase({ url: stack.info().databaseUrl, applicationName: "kill-test" });
  await migrateDatabase(stack.info().databaseUrl);
});
afterAll(async () => {
  await database?.close();
  await stack?.stop();
  rmSync(dataDirectory, { recursive: true, force: true });
});

const submit = (workSeconds: number) =>
  database.idempotentTransaction((tx) => submitJob(tx, resolveJob(aJob({ seed: workSeconds }))));
const kill = (name: string): number => {
  const pid = stack.pidOf(name);
  if (pid === undefined) throw new Error(`${name} does not run`);
  process.kill(pid, "SIGKILL");
  return pid;
};
const logs = async (jobId: string) =>
  (await listJobEvents(database.db, jobId))
    .filter((event) => event.type === "log")
    .map((event) => String(event.data["message"]));
const begun = (jobId: string, times = 1) =>
  eventually(
    `beginning ${times}`,
    async () => (await logs(jobId)).filter((line) => line.startsWith("begun")).length >= times,
  );
const safely = async (check: () => Promise<boolean>) => check().catch(() => false);
const movedOn = (jobId: string, seconds: number) =>
  eventually(
    "the transition",
    () => safely(async () => (await getJobState(database.db, jobId)) === "planning"),
    seconds,
  );

async function expectOneEffect(jobId: string): Promise<void> {
  expect((await logs(jobId)).filter((line) => line === "effect")).toEqual(["effect"]);
  expect((await getJobDetail(database.db, jobId))?.transitions.map((move) => move.to)).toEqual([
    "profiling",
    "planning",
  ]);
}

describe("kill -9 while a command is being handled", () => {
  it("of NATS: the work goes on, with one effect", async () => {
    const jobId = await submit(2);
    await begun(jobId);
    kill("nats");
    await movedOn(jobId, 20);
    await expectOneEffect(jobId);
    // The acknowledgement may have been lost: the next job waits for nothing of it.
    const next = await submit(0);
    await movedOn(next, 30);
    await expectOneEffect(next);
    await expectOneEffect(jobId);
  });

  it("of Postgres: the work goes on, with one effect, and a follower loses nothing", async () => {
    const jobId = await submit(3);
    await begun(jobId);
    const seen: number[] = [];
    const messages: string[] = [];
    const gone = new AbortController();
    const following = (async () => {
      for await (const event of subscribeJobEvents(database, jobId, 0, { signal: gone.signal })) {
        seen.push(event.id);
        messages.push(event.type === "log" ? String(event.data["message"]) : String(event.data["to"]));
        if (event.data["to"] === "planning") return;
      }
    })();
    kill("postgres");
    await movedOn(jobId, 30);
    await following;
    gone.abort();
    await expectOneEffect(jobId);
    expect(seen).toEqual([...new Set(seen)].sort((a, b) => a - b));
    expect(seen).toEqual((await listJobEvents(database.db, jobId)).map((event) => event.id));
    expect(messages.filter((message) => message === "effect")).toHaveLength(1);
  });

  it("of the worker: its successor takes over, with one effect", async () => {
    const jobId = await submit(2);
    await begun(jobId);
    const pid = kill("worker");
    await begun(jobId, 2);
    await movedOn(jobId, 20);
    await expectOneEffect(jobId);
    expect(stack.pidOf("worker")).not.toBe(pid);
  });

  it("of NATS with the loss of its store: commands are written again", async () => {
    const jobId = await submit(1);
    await begun(jobId);
    // The command of this one waits in the queue behind the other and is lost with it.
    const waiting = await submit(0);
    kill("nats");
    rmSync(join(dataDirectory, "nats", "store"), { recursive: true, force: true });
    await movedOn(jobId, 30);
    await movedOn(waiting, 60);
    await expectOneEffect(jobId);
    await expectOneEffect(waiting);
  });

  it("of the worker of a job that is being cancelled: the job is cancelled", async () => {
    const jobId = await submit(60);
    await begun(jobId);
    // Stopped, so that it cannot react before it is killed.
    process.kill(stack.pidOf("worker") ?? 0, "SIGSTOP");
    expect(await database.transaction((tx) => requestCancel(tx, jobId))).toBe("cancelling");
    kill("worker");
    await eventually(
      "the cancellation",
      async () => (await getJobState(database.db, jobId)) === "cancelled",
      30,
    );
  });
});
