import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ArtifactPageSchema } from "@internevo/contracts";
import { resolveJob } from "@internevo/domain";
import { appendJobEvents, ensureRun, recordSteps, startAttempt, submitJob } from "@internevo/store";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { jobFile, problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let job: string;
const jobs = () => join(api.directory, "jobs", job);
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 1e6 } });
  job = await api.database.transaction((tx) =>
    submitJob(tx, { ...resolveJob(jobFile(api, { name: "trained" })), project: "default" }),
  );
  await api.database.transaction(async (tx) => {
    const run = await ensureRun(tx, job, exampleCandidate());
    await startAttempt(tx, run.id);
    const at = "2026-01-01T00:00:00.000Z";
    const figures = {
      loss: 2.5,
      gradientNorm: 1,
      learningRate: 1e-3,
      stepTimeSeconds: 0.5,
      tokensPerSecond: 1024,
      exposedCommunicationSeconds: 0,
      attempt: 1,
      at,
    };
    const steps = Array.from({ length: 1200 }, (_, index) => ({ ...figures, step: index + 1 }));
    await recordSteps(tx, { jobId: job, runId: run.id }, steps);
    await appendJobEvents(tx, job, [
      { type: "log", data: { level: "info", source: "trainer", message: "training starts" } },
      { type: "log", data: { level: "warn", source: "trainer", message: "two\nlines" } },
    ]);
  });
});
afterAll(() => api.close());

const get = (path: string, headers: Record<string, string> = {}, method: "GET" | "HEAD" = "GET") =>
  api.app.inject({
    method,
    url: `/api/v1/jobs/${job}/artifacts${path}`,
    headers: { authorization: api.bearer.viewer, ...headers },
  });
const list = async () => shaped(ArtifactPageSchema, await get(""));
const names = async (): Promise<string[]> => (await list()).items.map(({ name }) => name);

describe("the artifacts of a job", () => {
  it("say so where its ranks have run and their files are not here", async () => {
    expect((await list()).absent).toContain("is not on the API's machine");
    expect(await names()).toEqual(["job.yaml", "steps.csv", "log.txt"]);
    expect(problem(await get("/checkpoint-step-20.tar"), 404, "not-found").errors?.[0]).toMatchObject({
      field: "artifact",
      message: expect.stringContaining("is not on the API's machine"),
      remedy: expect.stringContaining("shared file system"),
    });
  });

  it("are written from the database", async () => {
    const file = await get("/job.yaml");
    expect(parse(file.body)).toMatchObject({ name: "trained", steps: 20 });
    expect(file.headers["content-length"]).toBe(String(file.rawPayload.length));
    const part = await get("/job.yaml", { range: "bytes=0-4" });
    expect([part.statusCode, part.body]).toEqual([206, file.body.slice(0, 5)]);
    // Nothing is written to be listed.
    expect((await list()).items[0]).toMatchObject({ name: "job.yaml", bytes: null });
    const steps = await get("/steps.csv");
    expect(steps.headers).toMatchObject({
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": 'attachment; filename="steps.csv"',
    });
    const lines = steps.body.trimEnd().split("\r\n");
    expect(lines).toHaveLength(1201);
    expect(lines.slice(0, 2)).toEqual([
      "step,loss,gradientNorm,learningRate,stepTimeSeconds,tokensPerSecond,exposedCommunicationSeconds,attempt,at",
      "1,2.5,1,0.001,0.5,1024,0,1,2026-01-01T00:00:00.000Z",
    ]);
    expect(lines.at(-1)).toMatch(/^1200,/);
    expect((await get("/log.txt")).body).toMatch(
      /^\S+ info trainer: training starts\n\S+ warn trainer: two\n {2}lines\n$/,
    );
  });

  it("are files and folders on disk, complete ones, and no links", async () => {
    const checkpoint = join(jobs(), "checkpoints", "step-100");
    await mkdir(join(checkpoint, "deep"), { recursive: true });
    await writeFile(join(checkpoint, "manifest.json"), "{}");
    await writeFile(join(checkpoint, "deep", "x".repeat(180)), Buffer.alloc(70_000, 7));
    await symlink("/etc/passwd", join(checkpoint, "link"));
    await mkdir(join(jobs(), "checkpoints", "step-20"));
    await mkdir(join(jobs(), "checkpoints", "discarded-10-1-1"));
    await symlink("/etc", join(jobs(), "checkpoints", "step-30"));
    await mkdir(join(jobs(), "timelines"));
    await writeFile(join(jobs(), "timelines", "attempt-1.json"), "0123456789");
    await mkdir(join(jobs(), "exports", "hf"), { recursive: true });
    await writeFile(join(jobs(), "exports", "hf", "config.json"), "{}");
    expect(await names()).toEqual([
      "job.yaml",
      "steps.csv",
      "log.txt",
      "timeline-attempt-1.json",
      "checkpoint-step-20.tar",
      "checkpoint-step-100.tar",
      "export-hf.tar",
    ]);
    expect((await list()).absent).toBeNull();
    const entry = (await list()).items.find(({ name }) => name === "checkpoint-step-100.tar");
    const tar = await get("/checkpoint-step-100.tar");
    expect(tar.rawPayload).toHaveLength(entry?.bytes ?? 0);
    expect(tar.headers["content-length"]).toBe(String(entry?.bytes));
    const into = await mkdtemp(join(tmpdir(), "internevo-tar-"));
    try {
      execFileSync("tar", ["-x", "-C", into], { input: tar.rawPayload });
      expect(readFileSync(join(into, "step-100", "manifest.json"), "utf8")).toBe("{}");
      expect(readFileSync(join(into, "step-100", "deep", "x".repeat(180)))).toEqual(Buffer.alloc(70_000, 7));
      expect(execFileSync("ls", [join(into, "step-100")], { encoding: "utf8" })).toBe(
        "deep\nmanifest.json\n",
      );
    } finally {
      await rm(into, { recursive: true });
    }
  });

  it("are given in part, of a file and of an archive", async () => {
    const range = (value: string, path = "/timeline-attempt-1.json", more: Record<string, string> = {}) =>
      get(path, { range: value, ...more });
    const part = await range("bytes=2-4");
    expect([part.statusCode, part.body, part.headers["content-range"]]).toEqual([206, "234", "bytes 2-4/10"]);
    expect([(await range("bytes=7-")).body, (await range("bytes=-2")).body]).toEqual(["789", "89"]);
    expect((await range("bytes=5-900")).body).toBe("56789");
    expect((await range("lines=1-2")).statusCode).toBe(200);
    const beyond = await range("bytes=10-");
    problem(beyond, 400, "bad-request");
    expect(beyond.headers["content-range"]).toBe("bytes */10");
    const etag = String((await get("/timeline-attempt-1.json")).headers["etag"]);
    expect((await range("bytes=2-4", undefined, { "if-range": etag })).statusCode).toBe(206);
    expect((await range("bytes=2-4", undefined, { "if-range": '"other"' })).body).toBe("0123456789");
    const whole = (await get("/checkpoint-step-100.tar")).rawPayload;
    const middle = await range("bytes=700-60000", "/checkpoint-step-100.tar");
    expect(middle.rawPayload.equals(whole.subarray(700, 60_001))).toBe(true);
    const head = await get("/checkpoint-step-100.tar", {}, "HEAD");
    expect([head.headers["content-length"], head.body]).toEqual([String(whole.length), ""]);
  });

  it.each([
    "/..%2f..%2fetc%2fpasswd",
    "/%2e%2e%2f",
    "/timeline-..%2F..%2Fsecret.json",
    "/checkpoint-step-30.tar",
    "/export-.tar",
    "/checkpoint-discarded-10-1-1.tar",
    "/nothing",
  ])("are no way to other files: %s", async (path) => {
    const reply = await get(path);
    expect([reply.statusCode, reply.body.includes("root:")]).toEqual([404, false]);
  });
});
