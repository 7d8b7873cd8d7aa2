import { growth } from "@internevo/test-kit";
import { findShippedProfile } from "@internevo/cost-model";
import type { Problem } from "@internevo/contracts";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, rowCounts, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const V = "/api/v1";
const send = (method: "GET" | "POST" | "DELETE", url: string, body?: unknown) =>
  api.app.inject({
    method,
    url,
    headers: { authorization: api.bearer.admin },
    ...(body === undefined ? {} : { payload: body as object }),
  });
const errors = (reply: Awaited<ReturnType<typeof send>>): string[] =>
  (reply.json<Problem>().errors ?? []).map(({ field }) => field);

/** No database takes the first two; a terminal obeys the others. */
const TEXTS = {
  NUL: "a\u0000b",
  "half a surrogate pair": "a\ud800b",
  "an escape": "a\u001b[2Jb",
  "a line feed": "a\nb",
  "a C1 control": "a\u009bb",
};

describe.each(Object.entries(TEXTS))("%s", (_what, text) => {
  const cluster = { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" };
  const model = { name: "small", hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 };
  const workload = (over: Record<string, unknown>) => ({
    name: "w",
    job: jobFile(api),
    cron: "0 3 * * *",
    ...over,
  });

  it.each([
    ["a job's name", "jobs", () => jobFile(api, { name: text }), "name"],
    ["a model's name", "jobs", () => jobFile(api, { model: { ...model, name: text } }), "model.name"],
    ["a named model", "jobs", () => jobFile(api, { model: text }), "model"],
    ["a cluster's name", "jobs", () => jobFile(api, { cluster: { ...cluster, name: text } }), "cluster.name"],
    [
      "a profile's name",
      "jobs",
      () => jobFile(api, { cluster: { ...cluster, profile: text } }),
      "cluster.profile",
    ],
    ["a path", "jobs", () => jobFile(api, { data: { format: "text", paths: [text] } }), "data.paths.0"],
    ["a workload's name", "workloads", () => workload({ name: text }), "name"],
    ["a schedule", "workloads", () => workload({ cron: `0 3 * * *${text}` }), "cron"],
    ["a time zone", "workloads", () => workload({ timeZone: text }), "timeZone"],
    ["the job of a workload", "workloads", () => workload({ job: jobFile(api, { name: text }) }), "job.name"],
    ["the profile of a plan", "plans", () => ({ job: jobFile(api), profile: text }), "profile"],
    [
      "the job of a plan",
      "plans",
      () => ({ job: jobFile(api, { name: text }), profile: "a800-128" }),
      "job.name",
    ],
    [
      "a stored profile's name",
      "profiles",
      () => ({ ...findShippedProfile("a800-128"), name: text }),
      "name",
    ],
    [
      "where a stored profile is from",
      "profiles",
      () => ({
        ...findShippedProfile("a800-128"),
        provenance: { source: text, measuredAt: null, versions: { [text]: "1" }, command: null, notes: [] },
      }),
      "provenance.source",
    ],
  ] as const)(
    "in %s is refused with its field, and nothing is stored",
    async (_where, route, body, field) => {
      const before = await rowCounts(api.database);
      const reply = await send("POST", `${V}/${route}`, body());
      expect(reply.statusCode).toBeGreaterThanOrEqual(400);
      expect(reply.statusCode).toBeLessThan(500);
      expect(errors(reply)).toContain(field);
      expect(await rowCounts(api.database)).toEqual(before);
    },
  );

  it("in a reason is refused", async () => {
    const { id } = (await send("POST", `${V}/jobs`, jobFile(api))).json<{ id: string }>();
    const reply = await send("POST", `${V}/jobs/${id}/cancel`, { reason: text });
    expect([reply.statusCode, errors(reply)]).toEqual([400, ["reason"]]);
  });

  it("in a path or a query is refused, and the refusal is written down", async () => {
    // A URL cannot hold half a surrogate pair.
    const inUrl = encodeURIComponent(text.toWellFormed());
    // Refusals are written down after their answer: the row of this one is known by its trace.
    const audited = async (traceId: string | undefined): Promise<unknown> =>
      (
        await api.database.db.execute(
          sql`select count(*)::int as count from audit_log where trace_id = ${traceId}`,
        )
      ).rows[0]?.["count"];
    for (const path of [
      `jobs/${inUrl}`,
      `jobs/${inUrl}/metrics`,
      `jobs?cursor=${inUrl}`,
      `jobs?state=${inUrl}`,
      `jobs?limit=${inUrl}`,
      `profiles/${inUrl}`,
      `workloads/${inUrl}`,
      `workloads/${inUrl}/proposals`,
      `dead-letters?cursor=${inUrl}`,
    ]) {
      const reply = await send("GET", `${V}/${path}`);
      expect([path, [400, 404].includes(reply.statusCode)]).toEqual([path, true]);
    }
    for (const path of [`jobs/${inUrl}/cancel`, `workloads/${inUrl}/run`, `dead-letters/${inUrl}/replay`]) {
      const reply = await send("POST", `${V}/${path}`);
      expect([path, [400, 404].includes(reply.statusCode)]).toEqual([path, true]);
      const { traceId } = reply.json<Problem>();
      await expect.poll(() => audited(traceId)).toBe(1);
    }
  });
});

describe("a submission", () => {
  it("is told all that is wrong with it at once: the job, the cluster, the profile and the data", async () => {
    const faults = async (over: Record<string, unknown>): Promise<string[]> => {
      const reply = await send("POST", `${V}/jobs`, jobFile(api, over));
      expect(reply.statusCode).toBe(422);
      return errors(reply);
    };
    const cluster = { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" };
    expect(
      await faults({ steps: 0, data: { format: "text", paths: ["/absent/a", api.textPath, "/absent/b"] } }),
    ).toEqual(["steps", "data.paths.0", "data.paths.2"]);
    expect(
      await faults({
        model: { hiddenSize: 64, layers: 2, heads: 5, vocabularySize: 256 },
        data: { format: "tokens", path: api.textPath },
      }),
    ).toEqual(["model.heads", "data.path"]);
    expect(
      await faults({
        cluster: { ...cluster, gpusPerNode: 64, profile: "nobody" },
        data: { format: "text", paths: ["relative"] },
      }),
    ).toEqual(["cluster.gpusPerNode", "cluster.profile", "data.paths.0"]);
    // What is wrong with the data itself is told once.
    expect(await faults({ steps: 0, data: { format: "text", paths: [] } })).toEqual(["steps", "data.paths"]);
    expect(await faults({ data: { format: "tokens", path: "/absent/a" } })).toEqual(["data.path"]);
  });
});

describe("a question for plans", () => {
  it("of fields that nobody knows is refused", async () => {
    const reply = await send("POST", `${V}/plans`, { job: jobFile(api), profile: "a800-128", topp: 3 });
    expect([reply.statusCode, errors(reply)]).toEqual([400, ["topp"]]);
  });

  it("is refused as fast as it is read, however long a size in it is", async () => {
    const ask = async (blanks: number): Promise<void> => {
      const reply = await send("POST", `${V}/plans`, {
        job: jobFile(api, { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: `1${" ".repeat(blanks)}!` } }),
        profile: "a800-128",
      });
      expect([reply.statusCode, errors(reply)]).toEqual([422, ["job.cluster.memoryPerGpu"]]);
    };
    expect(await growth(ask, 10_000, 8)).toBeLessThan(24);
    await ask(500_000);
  });
});

describe("a schedule", () => {
  it.each(["0 0 30 2 *", "0 0 31 4,6 *", "0 0 31 2 *"])("that never comes is refused: %s", async (cron) => {
    const reply = await send("POST", `${V}/workloads`, { name: "never", job: jobFile(api), cron });
    expect([reply.statusCode, errors(reply)]).toEqual([400, ["cron"]]);
    expect(reply.json<Problem>().errors?.[0]?.message).toContain("never");
  });

  it.each([
    ["every night", "is not a schedule: it has 2 fields and not 5"],
    ["0 0 3 * * *", "is not a schedule: it has 6 fields and not 5"],
    ["61 3 * * *", "is not a schedule: Invalid value for minute: 61"],
  ])("that is none is refused, and said once: %s", async (cron, message) => {
    const reply = await send("POST", `${V}/workloads`, { name: "never", job: jobFile(api), cron });
    const problem = reply.json<Problem>();
    expect([problem.detail, problem.errors?.map((each) => each.message)]).toEqual([
      "the schedule is not valid: cron",
      [message],
    ]);
  });

  it("that comes rarely is taken", async () => {
    const reply = await send("POST", `${V}/workloads`, {
      name: "leap",
      job: jobFile(api),
      cron: "0 0 29 2 *",
    });
    expect(reply.statusCode).toBe(201);
  });
});
