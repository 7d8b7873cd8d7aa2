import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import {
  ArtifactPageSchema,
  JobDetailSchema,
  JobLogPageSchema,
  MetricPageSchema,
  RetentionPreviewSchema,
  RetentionRunSchema,
  RetentionSchema,
} from "@internevo/contracts";
import { KEEP_FOR_EVER, resolveJob } from "@internevo/domain";
import { checkpointDirectory, jobDirectory, removeDue } from "@internevo/stages";
import {
  acquireLease,
  appendJobEvents,
  beginRetentionRun,
  newToken,
  releaseLease,
  storeToken,
} from "@internevo/store";
import { storedRun } from "@internevo/test-kit/stored-run";
import { writeWeights } from "@internevo/test-kit/weights";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { jobFile, problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 1e6 } });
});
afterAll(() => api.close());
beforeEach(() => api.database.db.execute("delete from retention_settings"));

type Method = "GET" | "POST" | "PATCH";
const ask = (
  method: Method,
  url: string,
  payload?: object,
  role: "viewer" | "operator" | "admin" = "admin",
) =>
  api.app.inject({
    method,
    url: `/api/v1${url}`,
    headers: { authorization: api.bearer[role] },
    ...(payload === undefined ? {} : { payload }),
  });
const set = async (settings: object) => {
  const reply = await ask("PATCH", "/retention", settings);
  expect(reply.statusCode, reply.body).toBe(200);
};

/** A job that trained 8 steps, has a checkpoint, and ended so many days ago. */
async function trained(daysAgo: number): Promise<string> {
  const run = await storedRun(api.database, "trained");
  const { jobId } = run;
  await run.step(1, 8);
  const line = { level: "info", source: "trainer", message: "training starts" };
  await api.database.transaction((tx) => appendJobEvents(tx, jobId, [{ type: "log", data: line }]));
  const checkpoint = join(checkpointDirectory(api.directory, jobId), "step-8");
  await mkdir(checkpoint, { recursive: true });
  await writeFile(join(checkpoint, "manifest.json"), "{}");
  await run.end("failed");
  await api.database.db.execute(
    `update jobs set ended_at = clock_timestamp() - interval '${daysAgo} days' where id = '${jobId}'`,
  );
  return jobId;
}

async function removeNow(): Promise<void> {
  const { database } = api;
  const fence = await acquireLease(database.db, "maintenance:retention", "test", 60);
  if (!fence) throw new Error("the lease is another's");
  const runId = await database.transaction((tx) => beginRetentionRun(tx, fence));
  const signal = new AbortController().signal;
  await removeDue({ database, dataDirectory: api.directory, fence, runId, now: new Date(), signal });
  await releaseLease(database.db, fence);
}

const REMOVED = /^removed by retention on \d{4}-\d\d-\d\d after 30 days$/;

describe("the settings of retention", () => {
  it("keep everything for ever until somebody says otherwise, and are audited", async () => {
    expect(shaped(RetentionSchema, await ask("GET", "/retention", undefined, "viewer")).settings).toEqual(
      KEEP_FOR_EVER,
    );
    await set({ checkpoints: 90, logs: 1 });
    await set({ logs: null, steps: 3650 });
    expect(shaped(RetentionSchema, await ask("GET", "/retention")).settings).toEqual({
      ...KEEP_FOR_EVER,
      checkpoints: 90,
      steps: 3650,
    });
    const { rows } = await api.database.db.execute(
      "select actor, action, status from audit_log where target = 'retention' order by id desc limit 1",
    );
    expect(rows).toEqual([{ actor: "admin", action: "PATCH /api/v1/retention", status: 200 }]);
  });

  it.each([0, 3651, 1.5, "30", -1])("refuse %s days", async (days) => {
    const { errors } = problem(await ask("PATCH", "/retention", { checkpoints: days }), 400, "bad-request");
    expect(errors).toEqual([
      expect.objectContaining({ field: "checkpoints", value: days, remedy: expect.stringMatching(/\w/) }),
    ]);
  });

  it("refuse a kind that there is not, and who is no admin of the installation", async () => {
    problem(await ask("PATCH", "/retention", { checkpoint: 30 }), 400, "bad-request");
    problem(await ask("PATCH", "/retention", { logs: 30 }, "operator"), 403, "forbidden");
    problem(await ask("GET", "/retention/preview", undefined, "operator"), 403, "forbidden");
    problem(await ask("POST", "/retention/run", undefined, "operator"), 403, "forbidden");
  });
});

describe("a preview", () => {
  it("says what would go, by what is set and by what is tried, in pages", async () => {
    const ids = [await trained(900), await trained(800), await trained(700)];
    const look = async (query: string) =>
      shaped(RetentionPreviewSchema, await ask("GET", `/retention/preview${query}`));
    expect(await look("")).toMatchObject({ items: [], nextCursor: null, isWhole: true });
    const tried = await look("?checkpoints=750&logs=600&limit=2");
    expect(tried).toMatchObject({
      settings: { checkpoints: 750, logs: 600, steps: null },
      totals: {
        checkpoints: { jobs: 2, files: 2, bytes: 4, rows: 0 },
        logs: { jobs: 3, files: 0, bytes: 0, rows: 3 },
      },
      remarks: [],
    });
    expect(tried.items.map(({ jobId }) => jobId)).toEqual(ids.slice(0, 2));
    const rest = await look(`?checkpoints=750&logs=600&limit=2&cursor=${tried.nextCursor}`);
    expect(rest.items.map(({ jobId, removes }) => [jobId, removes])).toEqual([
      [ids[2], [{ kind: "logs", days: 600, files: 0, bytes: 0, rows: 1 }]],
    ]);
    expect(rest.nextCursor).toBeNull();
    expect(rest.totals).toEqual(tried.totals);
    await set({ logs: 600 });
    expect((await look("?logs=forever")).items).toEqual([]);
    for (const days of ["0", "3651", "x", "30d"])
      expect(
        problem(await ask("GET", `/retention/preview?steps=${days}`), 400, "bad-request").errors,
      ).toMatchObject([
        { field: "steps", value: days, remedy: "give an integer from 1 to 3650, or forever" },
      ]);
  });
});

describe("a run", () => {
  it("is asked for once, and not where everything is kept", async () => {
    expect(problem(await ask("POST", "/retention/run"), 409, "conflict").errors?.[0]?.remedy).toContain(
      "set days",
    );
    await set({ timelines: 30 });
    const [first, second] = [await ask("POST", "/retention/run"), await ask("POST", "/retention/run")];
    expect(first.statusCode).toBe(202);
    const run = shaped(RetentionRunSchema, first);
    expect(run).toMatchObject({ askedBy: "admin", beganAt: null, endedAt: null });
    expect(shaped(RetentionRunSchema, second)).toEqual(run);
    await removeNow();
    const { lastRun } = shaped(RetentionSchema, await ask("GET", "/retention", undefined, "viewer"));
    expect(lastRun).toMatchObject({ id: run.id, endedAt: expect.any(String) as string });
    // It tells of all projects.
    const token = newToken();
    await storeToken(api.database.db, "member", "admin", token, "default");
    const member = await api.app.inject({
      url: "/api/v1/retention",
      headers: { authorization: `Bearer ${token}` },
    });
    expect(Object.keys(shaped(RetentionSchema, member))).toEqual(["settings"]);
  });
});

describe("what was removed", () => {
  it("is said of artifacts, steps and log lines, and the job does not go on", async () => {
    const jobId = await trained(100);
    await set({ checkpoints: 30, logs: 30, steps: 30 });
    await removeNow();
    const url = `/jobs/${jobId}`;
    const list = shaped(ArtifactPageSchema, await ask("GET", `${url}/artifacts`));
    expect(list.items.map(({ name }) => name)).toEqual(["job.yaml"]);
    expect(list.removed.map(({ kind, days }) => [kind, days])).toEqual([
      ["checkpoints", 30],
      ["logs", 30],
      ["steps", 30],
    ]);
    for (const name of ["checkpoint-step-8.tar", "log.txt", "steps.csv"])
      expect(
        problem(await ask("GET", `${url}/artifacts/${name}`), 404, "not-found").errors?.[0],
      ).toMatchObject({ field: "artifact", value: name, message: expect.stringMatching(REMOVED) as string });
    // What was never there is said to be so.
    expect(
      problem(await ask("GET", `${url}/artifacts/timeline-attempt-1.json`), 404, "not-found").errors?.[0]
        ?.message,
    ).toBe("names no artifact of the job");
    expect(shaped(MetricPageSchema, await ask("GET", `${url}/metrics`))).toMatchObject({
      items: [{ step: 8 }],
      removed: { kind: "steps", days: 30, rows: 7, isDone: true },
    });
    expect(shaped(JobLogPageSchema, await ask("GET", `${url}/log`))).toMatchObject({
      items: [],
      removed: { kind: "logs" },
    });
    expect(shaped(JobDetailSchema, await ask("GET", url))).toMatchObject({
      lastStep: 8,
      removed: list.removed,
    });
    const refused = problem(await ask("POST", `${url}/resume`), 409, "conflict");
    expect(refused.errors).toMatchObject([
      {
        field: "id",
        value: jobId,
        message: expect.stringMatching(
          /^its checkpoints were removed by retention on \S+ after 30 days$/,
        ) as string,
        remedy: expect.stringContaining(`internevo clone ${jobId}`) as string,
      },
    ]);
  });

  it("is nothing of a job that is exempt", async () => {
    const jobId = await trained(100);
    problem(await ask("POST", `/jobs/${jobId}/keep`, { keep: true }, "viewer"), 403, "forbidden");
    const kept = shaped(
      JobDetailSchema,
      await ask("POST", `/jobs/${jobId}/keep`, { keep: true }, "operator"),
    );
    expect(kept.keep).toBe(true);
    await set({ checkpoints: 30 });
    await removeNow();
    expect(shaped(JobDetailSchema, await ask("GET", `/jobs/${jobId}`)).removed).toBeUndefined();
    const freed = await ask("POST", `/jobs/${jobId}/keep`, { keep: false }, "operator");
    expect(shaped(JobDetailSchema, freed).keep).toBeUndefined();
    expect((await ask("POST", `/jobs/${jobId}/resume`)).statusCode).toBe(202);
  });
});

const MODEL = { hiddenSize: 64, layers: 2, heads: 4, kvHeads: 4, ffnHiddenSize: 192, vocabularySize: 256 };
const CONFIG = JSON.stringify({
  model_type: "llama",
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  intermediate_size: 192,
  vocab_size: 256,
  rms_norm_eps: 1e-5,
});

describe("weights of a job", () => {
  it("that were removed are refused with the reason, unless somebody put them there again", async () => {
    const owner = await trained(100);
    const { model } = resolveJob(jobFile(api, { model: MODEL }));
    const weights = join(checkpointDirectory(api.directory, owner), "hf");
    const give = async () => {
      await mkdir(weights, { recursive: true });
      await writeFile(join(weights, "config.json"), CONFIG);
      await writeWeights(weights, model);
    };
    await give();
    const submit = () =>
      ask("POST", "/jobs", jobFile(api, { model: MODEL, initialWeights: weights }), "operator");
    const cancelled = async () => {
      const reply = await submit();
      expect(reply.statusCode, reply.body).toBe(201);
      const { id } = shaped(JobDetailSchema, reply);
      await ask("POST", `/jobs/${id}/cancel`);
      return id;
    };
    await set({ checkpoints: 30 });
    const other = await submit();
    expect(other.statusCode, other.body).toBe(201);
    const { id } = shaped(JobDetailSchema, other);
    await removeNow();
    expect((await ask("POST", `/jobs/${id}/cancel`)).statusCode).toBe(202);
    await removeNow();
    const removed = {
      field: "initialWeights",
      value: weights,
      message: expect.stringMatching(/^was removed by retention on \S+ after 30 days$/) as string,
      remedy: expect.stringContaining("give other weights") as string,
    };
    expect(problem(await submit(), 422, "data-invalid").errors).toMatchObject([removed]);
    expect(problem(await ask("POST", `/jobs/${id}/resume`), 422, "data-invalid").errors).toMatchObject([
      removed,
    ]);
    await give();
    await cancelled();
    expect((await ask("POST", `/jobs/${id}/resume`)).statusCode).toBe(202);
    await rm(jobDirectory(api.directory, owner), { recursive: true });
  });
});
