import { resolveJob } from "@internevo/domain";
import {
  appendJobEvents,
  createProject,
  createToken,
  ensureRun,
  getJobDetail,
  openDatabase,
  recordSteps,
  startAttempt,
  submitJob,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import { sql } from "drizzle-orm";
import { afterEach, expect, it } from "vitest";
import { writtenArtifacts } from "../src/artifacts/written.ts";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let baseUrl: string;
let job: string;
const left: AbortController[] = [];
afterEach(async () => {
  for (const each of left.splice(0)) each.abort();
  await api.close();
});

/** A job of a project, whose log is more than the buffers of a connection hold. */
async function start(limits: { readonly downloadsOfOneToken: number; readonly downloads: number }) {
  api = await startTestApi({ limits });
  baseUrl = await api.app.listen({ host: "127.0.0.1", port: 0 });
  await api.database.transaction((tx) => createProject(tx, { name: "nlp" }));
  job = await api.database.transaction((tx) =>
    submitJob(tx, { ...resolveJob(jobFile(api)), project: "nlp" }),
  );
  const line = { level: "info", source: "test", message: "x".repeat(5000) };
  const lines = Array.from({ length: 4000 }, () => ({ type: "log" as const, data: line }));
  await api.database.transaction((tx) => appendJobEvents(tx, job, lines));
}

async function tokenOf(name: string, project: string | null = "nlp"): Promise<string> {
  const made = { name, role: "viewer", project, validForSeconds: null } as const;
  return (await api.database.transaction((tx) => createToken(tx, made))).token;
}

/** Begins a download that nobody reads. @returns what leaves it, or what it is refused with */
async function download(token: string, name = "log.txt") {
  const controller = new AbortController();
  left.push(controller);
  const reply = await fetch(`${baseUrl}/api/v1/jobs/${job}/artifacts/${name}`, {
    headers: { authorization: `Bearer ${token}` },
    signal: controller.signal,
  });
  if (reply.ok) return { status: reply.status, leave: () => controller.abort() };
  const { detail, errors } = (await reply.json()) as { detail: string; errors?: { remedy: string }[] };
  return { status: reply.status, detail, errors, wait: Number(reply.headers.get("retry-after")) };
}

it("downloads are bounded for a token, for a project and in all, however slowly they are read", async () => {
  await start({ downloadsOfOneToken: 2, downloads: 12 });
  const tokens = [await tokenOf("one"), await tokenOf("two")] as const;
  const first = await download(tokens[0]);
  expect([first.status, (await download(tokens[0])).status]).toEqual([200, 200]);
  const refused = await download(tokens[0], "job.yaml");
  expect(refused).toMatchObject({
    status: 429,
    detail: "this token has 2 downloads open; end one, or ask again when one has ended",
    errors: [{ field: "(downloads)", value: 2, remedy: "end one, or ask again when one has ended" }],
  });
  expect(refused.wait).toBeGreaterThan(0);
  expect((await download(tokens[1])).status).toBe(200);
  expect(await download(tokens[1])).toMatchObject({
    status: 429,
    detail: expect.stringMatching(/^project nlp has 3 downloads open, as many as a project may; /),
  });
  // What is read to its end does not count any more, nor what is left.
  for (let at = 0; at < 20; at += 1) {
    const headers = { authorization: api.bearer.viewer };
    const reply = await fetch(`${baseUrl}/api/v1/jobs/${job}/artifacts/job.yaml`, { headers });
    expect([reply.status, (await reply.text()).includes("name:")]).toEqual([200, true]);
  }
  first.leave?.();
  await eventually("what was left does not count", async () => (await download(tokens[1])).status === 200);
});

it("downloads of all tokens have a bound together", async () => {
  await start({ downloadsOfOneToken: 1, downloads: 2 });
  expect((await download(api.tokens.viewer)).status).toBe(200);
  expect((await download(api.tokens.operator)).status).toBe(200);
  const beyond = await download(api.tokens.admin);
  expect(beyond).toMatchObject({ status: 503, detail: "too many downloads are open; try again shortly" });
  expect(beyond.wait).toBeGreaterThan(0);
});

it("a download that is refused for another reason does not count", async () => {
  await start({ downloadsOfOneToken: 1, downloads: 2 });
  const statuses: number[] = [];
  for (let at = 0; at < 4; at += 1) statuses.push((await download(api.tokens.viewer, "none")).status);
  const head = await fetch(`${baseUrl}/api/v1/jobs/${job}/artifacts/log.txt`, {
    method: "HEAD",
    headers: { authorization: api.bearer.viewer },
  });
  expect([...statuses, head.status]).toEqual([404, 404, 404, 404, 200]);
  expect((await download(api.tokens.viewer)).status).toBe(200);
});

it("pages of all downloads are read two at once", async () => {
  await start({ downloadsOfOneToken: 1, downloads: 4 });
  const { database } = api;
  const figures = { loss: 2, gradientNorm: 1, learningRate: 1e-3, stepTimeSeconds: 0.5 };
  const at = new Date().toISOString();
  const rates = { tokensPerSecond: 1024, exposedCommunicationSeconds: 0, attempt: 1, at };
  await database.transaction(async (tx) => {
    const run = await ensureRun(tx, job, exampleCandidate());
    await startAttempt(tx, run.id);
    const steps = Array.from({ length: 1200 }, (_, index) => ({ ...figures, ...rates, step: index + 1 }));
    await recordSteps(tx, { jobId: job, runId: run.id }, steps);
  });
  const detail = await getJobDetail(database.db, job, null);
  if (!detail) throw new Error("the job is there");
  const csv = writtenArtifacts(detail, [], true).find(({ name }) => name === "steps.csv");
  const textOf = async (): Promise<string> => {
    let text = "";
    for await (const piece of csv?.write?.(database) ?? []) text += piece;
    return text;
  };
  const beside = openDatabase({ url: database.url, applicationName: "beside", maxConnections: 2 });
  try {
    const texts = await beside.transaction(async (tx) => {
      await tx.execute(sql`lock table step_metrics in access exclusive mode`);
      const all = Promise.all(Array.from({ length: 20 }, textOf));
      const reads = async (): Promise<number> => {
        const { rows } = await beside.db.execute<{ count: number }>(sql`
          select count(distinct pid)::int as count from pg_locks
          where not granted and relation = 'step_metrics'::regclass
            and database = (select oid from pg_database where datname = current_database())`);
        return rows[0]?.count ?? 0;
      };
      await eventually("two are read", async () => (await reads()) === 2);
      expect(await database.isUp()).toBe(true);
      expect(await reads()).toBe(2);
      return { all };
    });
    for (const text of await texts.all) expect(text.trimEnd().split("\r\n")).toHaveLength(1201);
  } finally {
    await beside.close();
  }
});
