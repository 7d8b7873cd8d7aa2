import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findShippedProfile } from "@internevo/cost-model";
import { resolveJob, type JobSpec } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { createLogger } from "@internevo/service-kit";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { inNameOf } from "../src/work/caller.ts";
import { inTurns } from "../src/work/turns.ts";
import { logThreadError } from "../src/work/thread-errors.ts";
import { createWorkers, type Workers, type WorkersOptions } from "../src/work/workers.ts";

let directory: string;
let workers: Workers | undefined;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "internevo-workers-"));
  execFileSync("mkfifo", [join(directory, "pipe")]);
});
afterEach(async () => {
  await workers?.close();
  rmSync(directory, { recursive: true });
});

const made = (options: WorkersOptions): Workers =>
  (workers = createWorkers({ checkEntry: join(import.meta.dirname, "stuck-check.ts"), ...options }));
const spec = (name: string): JobSpec =>
  resolveJob({
    name,
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    data: { format: "tokens", path: join(directory, "pipe") },
  });
const as = <T>(token: string, work: () => Promise<T>): Promise<T> =>
  new Promise((resolve, reject) => inNameOf(token, () => void work().then(resolve, reject)));
const outcome = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "done",
    (error: unknown) => error,
  );

describe("work that never comes back", () => {
  it("is answered at the deadline, and leaves room for others, however often it comes", async () => {
    // On a busy machine a process takes seconds to start.
    const pool = made({ checkSeconds: 12 });
    const stuck = await Promise.all(Array.from({ length: 5 }, () => outcome(pool.checkData(spec("stuck")))));
    for (const error of stuck) {
      expect(error).toMatchObject({
        code: "unavailable",
        message: "data could not be checked within 12 s",
        details: [{ field: "data", remedy: expect.stringContaining("file system") }],
      });
    }
    expect(await outcome(pool.checkData(spec("fine")))).toBe("done");
  });

  it("does not keep the pool from closing", async () => {
    const pool = made({ checkSeconds: 60 });
    const stuck = outcome(pool.checkData(spec("stuck")));
    expect(await outcome(pool.checkData(spec("fine")))).toBe("done");
    await pool.close();
    expect(await stuck).toBeInstanceOf(Error);
  });

  it("is refused when one token has too much of it, or too many wait", async () => {
    const pool = made({ queue: 1 });
    const asked = Array.from({ length: 4 }, () => outcome(pool.checkData(spec("stuck"))));
    expect(await outcome(pool.checkData(spec("fine")))).toMatchObject({ code: "rate-limited" });
    // Tokens with nothing else at work are let in up to twice as many.
    const others = ["a", "b", "c", "e", "f", "g", "h"].map((token) =>
      outcome(as(token, () => pool.checkData(spec("stuck")))),
    );
    expect(await outcome(as("d", () => pool.checkData(spec("fine"))))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("too many"),
    });
    await pool.close();
    await Promise.all([...asked, ...others]);
  });

  it("keeps no other token's data waiting", async () => {
    const pool = made({ checkSeconds: 60 });
    const stuck = Array.from({ length: 10 }, () =>
      outcome(as("greedy", () => pool.checkData(spec("stuck")))),
    );
    expect(await outcome(as("modest", () => pool.checkData(spec("fine"))))).toBe("done");
    expect(await Promise.race([...stuck, Promise.resolve("still at work")])).toBe("still at work");
    await pool.close();
    await Promise.all(stuck);
  });

  it("ends when nobody waits for it any more, and so does what waits for its turn", async () => {
    const pool = made({ checkSeconds: 60 });
    const gone = new AbortController();
    const left = Array.from({ length: 10 }, () => outcome(pool.checkData(spec("stuck"), gone.signal)));
    const next = outcome(pool.checkData(spec("fine")));
    gone.abort(new Error("gone"));
    for (const end of await Promise.all(left)) expect(end).toMatchObject({ message: "gone" });
    expect(await next).toBe("done");
  });
});

describe("a search", () => {
  it("ends at its deadline, and the next one is searched", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const short = made({ planSeconds: 0.001 });
    expect(await outcome(short.plan({ spec: spec("seven"), profile, top: 1 }))).toMatchObject({
      code: "unavailable",
      details: [{ field: "job", message: "could not be planned within 0.001 s" }],
    });
    await short.close();
    const result = await made({}).plan({ spec: spec("seven"), profile, top: 1 });
    expect(result.candidates).toHaveLength(1);
  });

  it("that takes long keeps no other waiting", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const pool = made({ planThreads: 1 });
    const vast = resolveJob({
      name: "vast",
      model: "llama-65b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 100_000 * 4096,
      cluster: { nodes: 12_500, gpusPerNode: 8, memoryPerGpu: "80GB" },
    });
    let answered = 0;
    const long = Array.from({ length: 2 }, () =>
      pool.plan({ spec: vast, profile, top: 1 }).then((result) => ((answered += 1), result)),
    );
    expect((await pool.plan({ spec: spec("seven"), profile, top: 1 })).candidates).toHaveLength(1);
    expect(answered).toBeLessThan(long.length);
    // Begun again where it may take long, it answers what a search without a limit does.
    const expected = planJob(vast, profile, { top: 1 });
    for (const result of await Promise.all(long)) expect(result).toEqual(expected);
  });
});

describe("a reading of another framework's files", () => {
  const reading = (pool: Workers, text: string): Promise<unknown> =>
    outcome(pool.advise({ kind: "import", framework: "internevo", files: [{ name: "c.py", text }] }));
  const large = `a = [${"[1],".repeat(200_000)}]\nmodel = a\n`;

  it("that takes more memory than it may is refused, and the next one is read", async () => {
    const pool = made({ importMegabytes: 24 });
    expect(await reading(pool, large)).toMatchObject({
      code: "bad-request",
      details: [{ field: "files", remedy: expect.stringContaining("internevo import") }],
    });
    expect(await reading(pool, "model = dict()\n")).toMatchObject({
      code: "bad-request",
      message: expect.stringContaining("c.py"),
    });
  });

  it("ends at a deadline of its own", async () => {
    const pool = made({ importSeconds: 0.001 });
    expect(await reading(pool, large)).toMatchObject({
      code: "unavailable",
      message: "files could not be read within 0.001 s",
    });
  });
});

describe("work that is aborted as its answer arrives", () => {
  it("ends, and neither the process nor the pool does, nor is anything logged", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const logged: string[] = [];
    const log = createLogger("api", "debug", { write: (line: string) => void logged.push(line) });
    const pool = made({ planThreads: 2, onThreadError: (error) => logThreadError(log, error) });
    const question = { kind: "sweep", axis: "nodes", value: 1.5, spec: spec("seven"), profile } as const;
    const patience = AbortSignal.timeout(60_000);
    expect(await outcome(pool.advise(question, patience))).toMatchObject({ code: "job-invalid" });
    // When the first is refused, a thread has the second one already, and answers before the refusal aborts it.
    const refused = inTurns([1, 2], 2, patience, async (_item, signal) => {
      try {
        return await pool.advise(question, signal);
      } catch (error) {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
        throw error;
      }
    });
    expect(await outcome(refused)).toMatchObject({ code: "job-invalid" });
    expect(await outcome(pool.advise(question, patience))).toMatchObject({ code: "job-invalid" });
    expect(logged).toEqual([]);
  });

  it("is logged at debug, without the answer, where its thread was ended for it", () => {
    const logged: string[] = [];
    const log = createLogger("api", "debug", { write: (line: string) => void logged.push(line) });
    logThreadError(log, new Error("Unexpected message from Worker: { taskId: 1, error: 'job-invalid' }"));
    expect(JSON.parse(logged[0] as string)).toMatchObject({
      level: "debug",
      msg: "a thread answered work that was aborted just before",
    });
    expect(logged[0]).not.toContain("job-invalid");
    logThreadError(log, new Error("the thread ended"));
    expect(JSON.parse(logged[1] as string)).toMatchObject({
      level: "warn",
      err: { message: "the thread ended" },
    });
  });
});
