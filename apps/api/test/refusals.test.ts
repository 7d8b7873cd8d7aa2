import { randomUUID } from "node:crypto";
import { connect } from "node:net";
import { once } from "node:events";
import { Writable } from "node:stream";
import { findShippedProfile } from "@internevo/cost-model";
import { createLogger } from "@internevo/service-kit";
import { pruneAuditLog, recordAudit } from "@internevo/store";
import { afterEach, describe, expect, it, vi } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let lines: Record<string, unknown>[];
afterEach(async () => {
  vi.useRealTimers();
  await api.close();
});

async function start(limits: Parameters<typeof startTestApi>[0] = {}): Promise<void> {
  lines = [];
  const log = new Writable({
    write: (chunk: Buffer, _encoding, done) => (
      lines.push(JSON.parse(chunk.toString()) as Record<string, unknown>),
      done()
    ),
  });
  api = await startTestApi({ logger: createLogger("api", "info", log), ...limits });
}
const ask = (
  method: "GET" | "POST" | "PUT" | "DELETE",
  url: string,
  authorization: string | undefined,
  payload?: unknown,
) =>
  api.app.inject({
    method,
    url: `/api/v1${url}`,
    headers: authorization === undefined ? {} : { authorization },
    ...(payload === undefined ? {} : { payload: payload as object }),
  });

describe("a refused request", () => {
  it("counts for its token, and says so, whatever refused it", async () => {
    await start();
    const remaining: number[] = [];
    for (const [status, reply] of [
      [400, await ask("POST", "/plans", api.bearer.viewer, {})],
      [403, await ask("POST", "/jobs", api.bearer.viewer, {})],
      [404, await ask("GET", "/nothing", api.bearer.viewer)],
      [404, await ask("GET", `/jobs/${randomUUID()}`, api.bearer.viewer)],
      [405, await ask("PUT", "/jobs", api.bearer.viewer, {})],
      [
        415,
        await api.app.inject({
          method: "POST",
          url: "/api/v1/plans",
          headers: { authorization: api.bearer.viewer, "content-type": "text/plain" },
          payload: "x",
        }),
      ],
      [200, await ask("GET", "/whoami", api.bearer.viewer)],
    ] as const) {
      expect([status, reply.headers["x-ratelimit-limit"], reply.headers["cache-control"]]).toEqual([
        reply.statusCode,
        "6000",
        "no-store",
      ]);
      expect(Number(reply.headers["x-ratelimit-reset"])).toBeGreaterThan(0);
      remaining.push(Number(reply.headers["x-ratelimit-remaining"]));
    }
    expect(remaining).toEqual([5999, 5998, 5997, 5996, 5995, 5994, 5993]);
    const anonymous = await ask("GET", "/whoami", undefined);
    expect([anonymous.statusCode, anonymous.headers["x-ratelimit-remaining"]]).toEqual([401, "5999"]);
  });

  it("is refused as too many beyond the limit", async () => {
    await start({ limits: { requestsPerMinute: 3 } });
    const statuses = [];
    for (let at = 0; at < 5; at += 1)
      statuses.push((await ask("POST", "/plans", api.bearer.viewer, {})).statusCode);
    expect(statuses).toEqual([400, 400, 400, 429, 429]);
    const last = await ask("PUT", "/nothing", api.bearer.viewer, {});
    expect([last.statusCode, last.headers["x-ratelimit-remaining"]]).toEqual([429, "0"]);
    expect(Number(last.headers["retry-after"])).toBeGreaterThan(0);
  });

  it("leaves one line in the log", async () => {
    await start();
    for (const url of ["/plans", "/plans/nothing", "/jobs"]) {
      lines = [];
      await ask("POST", url, api.bearer.viewer, {});
      expect(lines).toEqual([
        expect.objectContaining({
          level: "info",
          msg: "request refused",
          actor: "viewer",
          code: expect.any(String) as string,
          traceId: expect.any(String) as string,
        }),
      ]);
    }
  });

  it("without a token leaves a sample of lines", async () => {
    await start();
    for (let at = 0; at < 50; at += 1) await ask("GET", "/whoami", at % 2 === 0 ? undefined : "Bearer wrong");
    for (let at = 0; at < 50; at += 1) await api.app.inject("/api/v1/%zz");
    expect(lines.filter(({ msg }) => msg === "request refused")).toHaveLength(1);
    expect(lines).toHaveLength(1);
    for (let at = 0; at < 50; at += 1) await api.app.inject("/healthz");
    expect(lines.filter(({ msg }) => msg === "answered")).toHaveLength(1);
    expect(lines).toHaveLength(2);
  });
});

describe("the audit log", () => {
  it("counts what one token repeats, and keeps different refusals apart", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    await start();
    const rows = async (): Promise<unknown[]> =>
      (
        await api.database.db.execute(
          "select actor, action, target, status, details from audit_log order by action desc, target nulls first, id",
        )
      ).rows;
    for (let at = 0; at < 49; at += 1) await ask("POST", "/jobs", api.bearer.viewer, {});
    await ask("DELETE", `/workloads/${"y".repeat(50)}`, api.bearer.operator);
    await ask("POST", "/no-such-route", api.bearer.operator, {});
    await vi.waitFor(async () =>
      expect(await rows()).toEqual([
        ...Array.from({ length: 20 }, () => ({
          actor: "viewer",
          action: "POST /api/v1/jobs",
          target: null,
          status: 403,
          details: { code: "forbidden" },
        })),
        {
          actor: "operator",
          action: "DELETE /api/v1/workloads/:id",
          target: "y".repeat(50),
          status: 404,
          details: { code: "not-found" },
        },
      ]),
    );
    vi.advanceTimersByTime(60_000);
    vi.useRealTimers();
    await vi.waitFor(async () =>
      expect((await rows()).slice(20, 21)).toEqual([
        {
          actor: "viewer",
          action: "POST /api/v1/jobs",
          target: null,
          status: 403,
          details: { code: "forbidden", repeated: 29 },
        },
      ]),
    );
  });

  it("forgets what is older, and the oldest beyond so many", async () => {
    await start();
    const { db } = api.database;
    for (let at = 0; at < 10; at += 1)
      await recordAudit(db, { actor: `a${at}`, role: "admin", action: "POST /x", target: null, status: 200 });
    await db.execute("update audit_log set at = at - interval '10 days' where actor in ('a0', 'a9')");
    const actors = async (): Promise<unknown[]> =>
      (await db.execute("select actor from audit_log order by id")).rows.map((row) => row["actor"]);
    await pruneAuditLog(db, { days: 9, rows: 100 });
    expect(await actors()).toEqual(["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"]);
    await pruneAuditLog(db, { days: 9, rows: 3 });
    expect(await actors()).toEqual(["a6", "a7", "a8"]);
  });
});

describe("wrong tokens", () => {
  it("keep no valid one out, known or new, from the same address", async () => {
    await start({ limits: { wrongTokensPerMinute: 3 } });
    const statuses = [];
    for (let at = 0; at < 6; at += 1) statuses.push((await ask("GET", "/whoami", "Bearer wrong")).statusCode);
    expect(statuses).toEqual([401, 401, 401, 429, 429, 429]);
    const refused = await ask("GET", "/whoami", "Bearer wrong");
    expect(refused.json()).toMatchObject({ status: 429, code: "rate-limited" });
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    expect(refused.headers).toMatchObject({ "x-ratelimit-limit": "3", "x-ratelimit-remaining": "0" });
    for (const role of ["viewer", "operator", "admin", "viewer"] as const)
      expect((await ask("GET", "/whoami", api.bearer[role])).json()).toMatchObject({ role });
  });

  it("cost the database few look-ups once their address guesses", async () => {
    await start({ limits: { wrongTokensPerMinute: 3 } });
    for (let at = 0; at < 4; at += 1) await ask("GET", "/whoami", "Bearer wrong");
    const select = vi.spyOn(api.database.db, "select");
    const replies = await Promise.all([
      ...Array.from({ length: 100 }, (_, at) => ask("GET", "/whoami", `Bearer wrong${at}`)),
      ask("GET", "/whoami", api.bearer.viewer),
    ]);
    expect(replies.map(({ statusCode }) => statusCode)).toEqual([...Array<number>(100).fill(429), 200]);
    expect(select.mock.calls.length).toBeLessThanOrEqual(3);
  });
});

describe("a client that leaves", () => {
  it("is no error in the log", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const begun = Promise.withResolvers<void>();
    await start({ profileFor: async () => (begun.resolve(), profile) });
    const port = Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
    const vast = jobFile(api, {
      model: "llama-65b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 100_000 * 4096,
      precision: "bf16",
      cluster: { nodes: 12_500, gpusPerNode: 8, memoryPerGpu: "80GB" },
    });
    const body = JSON.stringify({ job: vast, profile: "a800-128", points: 200 });
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.write(
      `POST /api/v1/what-if/pareto HTTP/1.1\r\nHost: x\r\nAuthorization: ${api.bearer.viewer}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
    await begun.promise;
    socket.destroy();
    const ofRequest = () => lines.filter(({ reqId }) => reqId !== undefined);
    await vi.waitFor(() => expect(ofRequest()).toHaveLength(1), { timeout: 10_000 });
    await api.app.close();
    expect(ofRequest()).toEqual([
      expect.objectContaining({ level: "info", msg: "the client left before its answer" }),
    ]);
  });
});
