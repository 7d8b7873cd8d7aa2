import type { AuditRecord, Usage } from "@internevo/contracts";
import { createToken, createWebhook, createWorkload, enqueueMessage, relayOutbox } from "@internevo/store";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const ask = (method: "GET" | "POST" | "DELETE", url: string, as = api.bearer.admin, payload?: object) =>
  api.app.inject({
    method,
    url: `/api/v1${url}`,
    headers: { authorization: as },
    ...(payload ? { payload } : {}),
  });
const auditOf = async (query: string, as?: string): Promise<string[]> =>
  (await ask("GET", `/audit?${query}`, as))
    .json<{ items: AuditRecord[] }>()
    .items.map(({ actor, action }) => `${actor} ${action.replace("/api/v1", "")}`);
const usageOf = async (by: string, as?: string): Promise<Usage> =>
  (await ask("GET", `/usage?by=${by}&project=phoenix&from=2020-01-01T00:00:00Z`, as)).json<Usage>();

/** A project of that name, with an admin of its own. */
async function make(admin: string): Promise<{ readonly bearer: string; readonly tokenId: string }> {
  expect((await ask("POST", "/projects", api.bearer.admin, { name: "phoenix" })).statusCode).toBe(201);
  const made = { name: admin, role: "admin" as const, project: "phoenix", validForSeconds: null };
  const { token, record } = await api.database.transaction((tx) => createToken(tx, made));
  return { bearer: `Bearer ${token}`, tokenId: record.id };
}
const remove = async (tokenId: string): Promise<void> => {
  expect((await ask("DELETE", `/tokens/${tokenId}`)).statusCode).toBe(204);
  expect((await ask("DELETE", "/projects/phoenix")).statusCode).toBe(204);
};

it("a project made again under a deleted one's name shows nothing of that one", async () => {
  const { db } = api.database;
  const old = await make("ph-old");
  await db.execute("update projects set created_at = created_at - interval '1 hour' where name = 'phoenix'");
  expect((await ask("POST", "/tokens", old.bearer, { name: "ph-guest", role: "nobody" })).statusCode).toBe(
    400,
  );
  const spec = { ...exampleSpec("night"), project: "phoenix" };
  const workload = await createWorkload(db, {
    name: "night",
    spec,
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 60,
    gainThreshold: 0.1,
    nextRunAt: null,
  });
  await db.execute(`insert into host_holds (owner, project, submitter, cluster, gpus, began_at, ended_at)
    values ('workload:${workload.id}', 'phoenix', 'ph-old', 'secret-cluster', 8,
      clock_timestamp() - interval '2 seconds', clock_timestamp() - interval '1 second')`);
  // The broker is away, so that it waits.
  await api.database.transaction((tx) =>
    enqueueMessage(tx, {
      type: "proposal.transitioned",
      project: "phoenix",
      traceparent: "00-1-1-01",
      data: { workloadId: workload.id, workloadName: "secret" } as never,
    }),
  );
  expect((await usageOf("cluster", old.bearer)).rows).toMatchObject([{ key: "secret-cluster", jobs: 1 }]);
  await vi.waitFor(async () =>
    expect(await auditOf("actor=ph-old", old.bearer)).toEqual(["ph-old POST /tokens"]),
  );
  expect((await ask("DELETE", `/workloads/${workload.id}`)).statusCode).toBe(204);
  await remove(old.tokenId);

  const now = await make("ph-new");
  expect(await auditOf("actor=ph-old", now.bearer)).toEqual([]);
  expect(await auditOf("project=phoenix", now.bearer)).toEqual(["admin POST /projects"]);
  for (const by of ["project", "owner", "cluster", "day"])
    expect([by, await usageOf(by, now.bearer)]).toMatchObject([by, { gpuHours: 0, rows: [] }]);
  await ask("POST", "/tokens", now.bearer, { name: "ph-guest", role: "nobody" });
  // What was refused is recorded behind its answer.
  await vi.waitFor(async () =>
    expect(await auditOf("actor=ph-new", now.bearer)).toEqual(["ph-new POST /tokens"]),
  );

  // The installation sees all of it, and a quota of the month is not had twice.
  expect(await auditOf("actor=ph-old")).toEqual(["ph-old POST /tokens"]);
  expect((await usageOf("cluster")).rows).toMatchObject([{ key: "secret-cluster" }]);
  const project = await ask("GET", "/projects/phoenix", now.bearer);
  expect(project.json<{ gpuHoursThisMonth: number }>().gpuHoursThisMonth).toBeGreaterThan(0);

  await api.database.transaction((tx) =>
    createWebhook(tx, { name: "ci", url: "https://example.org", project: "phoenix" }),
  );
  await api.database.transaction((tx) =>
    enqueueMessage(tx, {
      type: "proposal.transitioned",
      project: "phoenix",
      traceparent: "00-1-1-01",
      data: { workloadId: workload.id, workloadName: "new" } as never,
    }),
  );
  let published = 0;
  await relayOutbox(api.database, {
    namespace: "internevo",
    publish: async () => ({ streamSequence: (published += 1) }),
  });
  expect(published).toBe(2);
  const { rows } = await db.execute<{ payload: string }>("select payload from webhook_deliveries");
  expect(rows.map(({ payload }) => /"workloadName":"(.*?)"/.exec(payload)?.[1])).toEqual(["new"]);
  await remove(now.tokenId);
});

it("what a deleted project's token was refused again and again is not the next one's", async () => {
  const old = await make("ph-again");
  for (let at = 0; at < 25; at += 1)
    await ask("POST", "/tokens", old.bearer, { name: "ph-guest", role: "nobody" });
  await remove(old.tokenId);
  const now = await make("ph-after");
  // Counted refusals are written down at the latest when the API ends.
  await api.app.close();
  const { rows } = await api.database.db.execute<{ seen: number; all: number }>(
    `select count(*) filter (where at >= (select created_at from projects where name = 'phoenix'))::int as seen,
      count(*)::int as all from audit_log where actor = 'ph-again'`,
  );
  expect(now.tokenId).not.toBe(old.tokenId);
  expect(rows).toEqual([{ seen: 0, all: 21 }]);
});
