import { mkdtempSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { createProject, resumeJob } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { storedRun } from "@internevo/test-kit/stored-run";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { tensorBoard, type Tracker } from "../src/index.ts";
import { crc32c } from "../src/tensorboard/records.ts";
import { Following } from "./following.ts";
import { eventsIn, type DecodedEvent } from "./decoder.ts";

let test: TestDatabase;
let directory: string;
let following: Following;
beforeAll(async () => {
  test = await createTestDatabase();
  await test.database.transaction((tx) => createProject(tx, { name: "nlp" }));
});
afterAll(() => test.drop());
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "internevo-tensorboard-"));
  following = new Following(test.database);
});
afterEach(async () => {
  await following.stop();
  rmSync(directory, { recursive: true, force: true });
});

const follow = (
  tracker: Tracker = tensorBoard(directory),
  projects: readonly string[] | null = null,
): Promise<void> => following.start(tracker, projects);

/** A job's only file. */
function fileOf(jobId: string): string | undefined {
  const found = readdirSync(directory, { recursive: true, encoding: "utf8" }).filter((path) =>
    path.endsWith(jobId),
  );
  expect(found.length).toBeLessThanOrEqual(1);
  return found[0] === undefined ? undefined : join(directory, found[0]);
}
const eventsOf = (jobId: string): DecodedEvent[] => {
  const path = fileOf(jobId);
  return path === undefined ? [] : eventsIn(readFileSync(path));
};
const stepsOf = (jobId: string, tag = "train/loss"): number[] =>
  eventsOf(jobId).flatMap(({ step, scalars }) => (tag in scalars ? [step] : []));
const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);
it("computes the checksum that RFC 3720 has for its examples", () => {
  expect(crc32c(Buffer.alloc(32))).toBe(0x8a9136aa);
  expect(crc32c(Buffer.alloc(32, 0xff))).toBe(0x62a8ab43);
  expect(crc32c(Buffer.from("123456789"))).toBe(0xe3069283);
});

it("writes what a run does while it happens, each step once, and the job's facts", async () => {
  await follow();
  const run = await storedRun(test.database, "a/../b c");
  await run.validate(0);
  await run.step(1, 3);
  await eventually("the first steps", () => stepsOf(run.jobId).length === 3);
  await run.step(4, 300);
  await run.validate(300);
  await run.end("succeeded");
  await following.untilEnded(run.jobId);
  const events = eventsOf(run.jobId);
  expect(events[0]).toMatchObject({ fileVersion: "brain.Event:2" });
  expect(stepsOf(run.jobId)).toEqual(range(1, 300));
  expect(stepsOf(run.jobId, "validation/loss")).toEqual([0, 300]);
  expect(stepsOf(run.jobId, "trials/step_time_seconds")).toEqual([1]);
  const second = events.find(({ step, scalars }) => step === 2 && "train/loss" in scalars);
  expect(second).toMatchObject({
    wallTime: 1_700_000_000.002,
    scalars: { "train/loss": 5.5, "speed/tokens_per_second": 1024, "speed/mfu": 0.5, "run/attempt": 1 },
  });
  expect(events.map(({ texts }) => texts["job"]).filter(Boolean)[0]).toContain(run.jobId);
  expect(fileOf(run.jobId)).toMatch(/\/default\/a_.._b_c-[0-9a-f]{8}\/events\.out\.tfevents\.\d+\./);
  expect(following.failures).toEqual([]);
});

it("goes on where it was after a death between writing and writing down, and writes nothing twice", async () => {
  const run = await storedRun(test.database, "killed");
  await run.step(1, 50);
  await follow();
  await eventually("the first steps", () => stepsOf(run.jobId).length === 50);
  await following.stop();
  // As if the cursor had never been written: the file is ahead of it, with half a record at its end.
  await test.database.db.execute(
    sql`update tracker_cursors set last_event_id = 0, bytes = 0, claimed_until = null where job_id = ${run.jobId}`,
  );
  const path = fileOf(run.jobId) ?? "";
  const before = readFileSync(path);
  truncateSync(path, before.length - 7);
  await run.step(51, 60);
  await follow();
  await eventually("the rest", () => {
    try {
      return stepsOf(run.jobId).length === 60;
    } catch {
      return false; // Half a record still.
    }
  });
  expect(stepsOf(run.jobId)).toEqual(range(1, 60));
  expect(readFileSync(path).subarray(0, before.length).equals(before)).toBe(true);
});

it("tells TensorBoard which steps count no more after a restart", async () => {
  await follow();
  const run = await storedRun(test.database, "restarted");
  await run.step(1, 8);
  await run.restart(5);
  await run.step(6, 10);
  await run.end("failed");
  await following.untilEnded(run.jobId);
  expect(stepsOf(run.jobId)).toEqual([...range(1, 8), ...range(6, 10)]);
  const restarts = eventsOf(run.jobId).filter((event) => event.restarts);
  expect(restarts.map(({ step }) => step)).toEqual([0, 6]);
});

it("writes a file that was removed once more, and waits for a directory that cannot be written", async () => {
  const blocked = join(directory, "file");
  const run = await storedRun(test.database, "removed");
  await run.step(1, 5);
  await follow();
  await eventually("the steps", () => stepsOf(run.jobId).length === 5);
  rmSync(join(directory, "default"), { recursive: true });
  await run.step(6, 7);
  await eventually("all steps", () => stepsOf(run.jobId).length === 7);
  expect(stepsOf(run.jobId)).toEqual(range(1, 7));
  expect(following.failures[0]).toContain("has 0 bytes of the");
  await following.stop();
  writeFileSync(blocked, "");
  await follow(tensorBoard(blocked));
  await eventually("the failure", () => following.failures.find((error) => error.includes("ENOTDIR")));
  rmSync(blocked);
  const path = () =>
    readdirSync(blocked, { recursive: true, encoding: "utf8" }).find((each) => each.endsWith(run.jobId));
  await eventually("the file", () => {
    try {
      return path();
    } catch {
      return false; // Not there yet.
    }
  });
});

it("follows a job that somebody lets go on after its end", async () => {
  await follow();
  const run = await storedRun(test.database, "resumed");
  await run.step(1, 4);
  await run.end("failed");
  await following.untilEnded(run.jobId);
  await test.database.transaction((tx) => resumeJob(tx, run.jobId));
  await run.restart(4);
  await run.step(5, 6);
  await eventually("the further steps", () => stepsOf(run.jobId).length === 6);
  await run.end("succeeded");
  await following.untilEnded(run.jobId);
  expect(stepsOf(run.jobId)).toEqual(range(1, 6));
});

it("leaves out other projects, jobs that say so, and what ended before it was there", async () => {
  const before = await storedRun(test.database, "before", { project: "nlp" });
  await before.end("succeeded");
  const ours = await storedRun(test.database, "ours", { project: "nlp" });
  const others = [
    before,
    await storedRun(test.database, "theirs"),
    await storedRun(test.database, "untracked", { project: "nlp", tracking: false }),
  ];
  for (const run of [ours, ...others]) await run.step(1, 2);
  await follow(tensorBoard(join(directory, "nlp-only")), ["nlp"]);
  await eventually("the steps", () => stepsOf(ours.jobId).length === 2);
  for (const run of others) expect(fileOf(run.jobId)).toBeUndefined();
});
