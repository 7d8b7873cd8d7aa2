import { eventually } from "@internevo/test-kit";
import { createServer } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 10, wrongTokensPerMinute: 3 } });
});
afterAll(() => api.close());

const get = (authorization: string, url = "/api/v1/whoami", remoteAddress = "127.0.0.1") =>
  api.app.inject({ url, headers: { authorization }, remoteAddress });

describe("limits", () => {
  it("are for a token, and leave health alone", async () => {
    const statuses = [];
    for (let at = 0; at < 12; at += 1) statuses.push((await get(api.bearer.viewer)).statusCode);
    expect(statuses).toEqual([...Array<number>(10).fill(200), 429, 429]);
    const refused = await get(api.bearer.viewer);
    expect(refused.json()).toMatchObject({ code: "rate-limited", status: 429 });
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    expect((await get(api.bearer.admin)).statusCode).toBe(200);
    for (let at = 0; at < 20; at += 1) expect((await api.app.inject("/healthz")).statusCode).toBe(200);
  });

  it("stop an address that guesses tokens, and no other", async () => {
    const guess = () => get("Bearer ievo_guess", "/api/v1/whoami", "192.0.2.1");
    expect([
      (await guess()).statusCode,
      (await guess()).statusCode,
      (await guess()).statusCode,
      (await guess()).statusCode,
    ]).toEqual([401, 401, 401, 429]);
    expect((await get(api.bearer.operator, "/api/v1/whoami", "192.0.2.2")).statusCode).toBe(200);
  });
});

describe("a process that falls behind", () => {
  it("refuses requests until it has caught up, and leaves health alone", async () => {
    const slow = await startTestApi({ limits: { maximumEventLoopDelayMilliseconds: 100 } });
    try {
      const ask = () =>
        slow.app.inject({ url: "/api/v1/whoami", headers: { authorization: slow.bearer.viewer } });
      const until = (status: number, meanwhile: () => void) =>
        eventually(
          `an answer ${status}`,
          async () => {
            meanwhile();
            const reply = await ask();
            return reply.statusCode === status && reply;
          },
          60,
        );
      const refused = await until(503, () => {
        for (const end = performance.now() + 600; performance.now() < end;);
      });
      expect(refused.json()).toMatchObject({ code: "unavailable", status: 503 });
      expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
      expect((await slow.app.inject("/healthz")).statusCode).toBe(200);
      await until(200, () => {});
    } finally {
      await slow.close();
    }
  });
});

describe("a body of 50 MB over a real connection", () => {
  it("is refused before it is read, with an answer that arrives", async () => {
    const url = await api.app.listen({ host: "127.0.0.1", port: 0 });
    const reply = await fetch(`${url}/api/v1/jobs`, {
      method: "POST",
      headers: { authorization: api.bearer.operator, "content-type": "application/json" },
      body: JSON.stringify(jobFile(api, { name: "x".repeat(50_000_000) })),
    });
    expect(reply.status).toBe(413);
    expect(reply.headers.get("content-type")).toContain("application/problem+json");
    expect(((await reply.json()) as { code: string }).code).toBe("payload-too-large");
  });
});

describe("without its database", () => {
  it("the API says so, and does not fall over", async () => {
    // A port that was free a moment ago: nobody listens there.
    const port = await new Promise<number>((resolve) => {
      const server = createServer().listen(0, "127.0.0.1", () => {
        const { port: free } = server.address() as { port: number };
        server.close(() => resolve(free));
      });
    });
    const { buildApi } = await import("../src/app.ts");
    const { openDatabase } = await import("@internevo/store");
    const { createHealth } = await import("@internevo/service-kit");
    const database = openDatabase({
      url: `postgres://nobody:x@127.0.0.1:${port}/none`,
      applicationName: "test",
    });
    const health = createHealth("api");
    health.addCheck("database", () => database.isUp());
    const app = await buildApi({
      database,
      health,
      workers: {
        plan: () => Promise.reject(new Error("not asked")),
        quickPlan: () => Promise.reject(new Error("not asked")),
        firstCounts: () => Promise.reject(new Error("not asked")),
        advise: () => Promise.reject(new Error("not asked")),
        adviceThreads: 1,
        checkData: () => Promise.resolve({ tokens: 1, documents: null }),
        checkWeights: () => Promise.resolve(),
        ownerOfWeights: () => Promise.resolve(null),
        close: () => Promise.resolve(),
      },
      capabilities: { hasProgram: () => false, maximumLocalRanks: 8, localMemoryBytes: 2 ** 40 },
      profileFor: () => Promise.reject(new Error("not asked")),
      version: "0",
      consoleDirectory: api.directory,
    });
    const reply = await app.inject({ url: "/api/v1/jobs", headers: { authorization: api.bearer.viewer } });
    expect(reply.json()).toMatchObject({ status: 503, code: "unavailable" });
    expect(reply.headers["retry-after"]).toBeDefined();
    expect((await app.inject("/healthz")).statusCode).toBe(200);
    expect((await app.inject("/readyz")).statusCode).toBe(503);
    await app.close();
    await database.close();
  });
});
