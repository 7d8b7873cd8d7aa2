import { AuditPageSchema, type AuditRecord } from "@internevo/contracts";
import { ApiProblemError, InternEvoClient } from "@internevo/client";
import { validate } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let admin: InternEvoClient;
let operator: InternEvoClient;
let viewer: InternEvoClient;
let jobId: string;
beforeAll(async () => {
  api = await startTestApi();
  const baseUrl = await api.app.listen({ host: "127.0.0.1", port: 0 });
  const as = (token: string) => new InternEvoClient({ baseUrl, token });
  [admin, operator, viewer] = [as(api.tokens.admin), as(api.tokens.operator), as(api.tokens.viewer)];
  jobId = (await operator.submitJob(jobFile(api, { name: "first of two" }))).id;
  await admin.submitJob(jobFile(api, { name: "second", cluster: { ...aCluster, name: "there" } }));
  await admin.cancelJob(jobId);
  await expect(viewer.cancelJob(jobId)).rejects.toThrow(ApiProblemError);
});
afterAll(() => api.close());

const aCluster = { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" };
const said = (rows: readonly AuditRecord[]) =>
  rows.map(({ actor, action, status }) => `${actor} ${action.replace("/api/v1", "")} ${status}`);

describe("the audit log", () => {
  it("says who did what to which object, and what was refused, newest first", async () => {
    const page = validate(AuditPageSchema, await admin.listAudit(), "internal", "the page");
    expect(said(page.items)).toEqual([
      "viewer POST /jobs/:id/cancel 403",
      "admin POST /jobs/:id/cancel 202",
      "admin POST /jobs 201",
      "operator POST /jobs 201",
    ]);
    expect(page.items[1]).toMatchObject({ target: jobId, role: "admin" });
    expect(page.items[0]).toMatchObject({ target: jobId, details: { code: "forbidden" } });
  });

  it("is narrowed by who, what, about which object, result and time", async () => {
    const of = async (filter: Parameters<InternEvoClient["listAudit"]>[0]) =>
      said((await admin.listAudit(filter)).items).length;
    expect(await of({ actor: "operator" })).toBe(1);
    expect(await of({ action: "CANCEL" })).toBe(2);
    expect(await of({ target: jobId })).toBe(3);
    expect(await of({ outcome: "refused" })).toBe(1);
    expect(await of({ outcome: "done", action: "cancel" })).toBe(1);
    const [newest] = (await admin.listAudit()).items;
    expect(await of({ until: newest?.at ?? "" })).toBe(3);
    expect(await of({ from: newest?.at ?? "" })).toBe(1);
    await expect(of({ from: "2026-02-01T00:00:00Z", until: "2026-01-01T00:00:00Z" })).rejects.toThrow(
      "until is not after from",
    );
  });

  it("takes every instant that an RFC 3339 time can say", async () => {
    const count = async (filter: Parameters<InternEvoClient["listAudit"]>[0]) =>
      (await admin.listAudit(filter)).items.length;
    // The year before Christ 1, which Postgres writes otherwise, and a leap second, which JavaScript has none of.
    for (const from of ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "2016-12-31T23:59:60Z"])
      expect(await count({ from }), from).toBe(4);
    for (const until of ["0000-01-01T00:00:00+23:59", "2016-12-31T23:59:60Z"])
      expect(await count({ until }), until).toBe(0);
    expect(await count({ until: "9999-12-31T23:59:59-23:59" })).toBe(4);
    await expect(count({ from: "2016-12-31T23:59:60Z", until: "2017-01-01T00:00:00Z" })).rejects.toThrow(
      "until is not after from",
    );
  });

  it("has pages that go on where the one before ended", async () => {
    const first = await admin.listAudit({ limit: 3 });
    const second = await admin.listAudit({ limit: 3, cursor: first.nextCursor ?? "" });
    expect([...first.items, ...second.items].map(({ id }) => id)).toEqual(
      (await admin.listAudit()).items.map(({ id }) => id),
    );
    expect(second.nextCursor).toBeNull();
    await expect(admin.listAudit({ cursor: "elsewhere" })).rejects.toThrow("cursor is not valid");
  });

  it("is for admins", async () => {
    await expect(operator.listAudit()).rejects.toThrow("needs the role admin");
  });
});

describe("a list of jobs", () => {
  it("says who owns each, and is narrowed by name, owner, cluster and state", async () => {
    const names = async (filter: Parameters<InternEvoClient["listJobs"]>[0]) =>
      (await viewer.listJobs(filter)).items.map(({ name }) => name);
    expect((await viewer.listJobs()).items.map(({ owner }) => owner)).toEqual(["admin", "operator"]);
    expect(await names({ name: "OF two" })).toEqual(["first of two"]);
    expect(await names({ name: "%" }), "a text, and no pattern").toEqual([]);
    expect(await names({ owner: "admin" })).toEqual(["second"]);
    expect(await names({ cluster: "here" })).toEqual(["first of two"]);
    expect(await names({ state: "cancelled", cluster: "here" })).toEqual(["first of two"]);
    expect(await names({ state: "queued" })).toEqual([]);
    await operator.submitJob(jobFile(api, { name: "labelled", labels: { team: "nlp" } }));
    expect(await names({ label: "team=nlp" })).toEqual(["labelled"]);
    expect(await names({ label: "team=nl" })).toEqual([]);
    await expect(names({ label: "team" })).rejects.toThrow("label is not valid");
  });
});

it("gives a job another priority, until it has ended", async () => {
  const { id } = await operator.submitJob(jobFile(api, { priority: "low" }));
  expect((await viewer.getJob(id)).priority).toBe("low");
  expect((await operator.setPriority(id, "high")).priority).toBe("high");
  expect((await viewer.getJob(id)).spec.priority).toBe("high");
  expect((await viewer.jobLog(id)).items[0]?.message).toBe("priority high, by operator");
  await expect(viewer.setPriority(id, "low")).rejects.toThrow("needs the role operator");
  await admin.cancelJob(id);
  await expect(operator.setPriority(id, "low")).rejects.toThrow("has cancelled already");
});

it("remembers when a token was used last", async () => {
  await admin.createToken({ name: "unused", role: "viewer" });
  // Written together when the API ends, at the latest.
  await api.app.close();
  const { rows } = await api.database.db.execute<{ name: string; used: boolean }>(
    "select name, last_used_at > clock_timestamp() - interval '5 minutes' as used from api_tokens order by name",
  );
  expect(rows).toEqual([
    { name: "admin", used: true },
    { name: "operator", used: true },
    { name: "unused", used: null },
    { name: "viewer", used: true },
  ]);
});
