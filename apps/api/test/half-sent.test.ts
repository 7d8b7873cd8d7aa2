import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startLocalStack, type LocalStack } from "@internevo/local-stack";
import { eventually } from "@internevo/test-kit";
import { createTestDatabase, testStack, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

const sockets = new Set<Socket>();
afterEach(() => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
});

interface Line {
  readonly socket: Socket;
  readonly heard: () => string;
}

/** Sends the head of a request with so large a body, and so much of that. */
function send(port: number, token: string, bytes: number, sent: number, path = "/api/v1/jobs"): Line {
  let heard = "";
  const head =
    `POST ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${bytes}\r\n\r\n`;
  const socket = connect(port, "127.0.0.1", () => socket.write(head + " ".repeat(sent)));
  sockets.add(socket);
  socket.on("error", () => undefined).on("data", (data) => (heard += data.toString()));
  return { socket, heard: () => heard };
}

const statusOf = (line: Line): number => Number(line.heard().split(" ")[1]);
const isAnswered = (line: Line) => eventually("an answer", () => line.heard().includes("}"));
const MEGABYTE = 1_000_000;

describe("bodies that are sent in part", () => {
  let database: TestDatabase;
  let directory: string;
  let stack: LocalStack;
  beforeAll(async () => {
    database = await createTestDatabase();
    directory = await mkdtemp(join(tmpdir(), "internevo-half-sent-"));
    stack = await startLocalStack({
      dataDirectory: directory,
      databaseUrl: database.url,
      natsUrl: testStack().natsUrl,
      namespace: `half-sent-${process.pid}`,
      services: [{ name: "api", entry: join(import.meta.dirname, "..", "src", "main.ts") }],
    });
  });
  afterAll(async () => {
    await stack.stop();
    await database.drop();
    await rm(directory, { recursive: true });
  });

  it("are held by few megabytes of memory, and hold nobody up", async () => {
    const { apiUrl, apiToken } = stack.info();
    if (apiUrl === null || apiToken === null) throw new Error("the API did not say where it is");
    const port = Number(new URL(apiUrl).port);
    const mebibytes = (): number =>
      Number(
        /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${stack.pidOf("api") ?? 0}/status`, "utf8"))?.[1],
      ) / 1024;
    const whoami = async (): Promise<number> =>
      (await fetch(`${apiUrl}/api/v1/whoami`, { headers: { authorization: `Bearer ${apiToken}` } })).status;
    expect(await whoami()).toBe(200);
    const before = mebibytes();
    const lines = Array.from({ length: 250 }, () => send(port, apiToken, MEGABYTE, 0.9 * MEGABYTE));
    let highest = 0;
    // Those that are read are answered when nothing more comes; all the others were there by then.
    await eventually("the first are answered", () => {
      highest = Math.max(highest, mebibytes());
      return lines.filter((line) => statusOf(line) === 408).length >= 8;
    });
    expect(await whoami()).toBe(200);
    // The bodies would be 225 MB.
    expect(highest - before).toBeLessThan(130);
  });
});

describe("large bodies", () => {
  let api: TestApi;
  afterEach(() => api.close());
  const start = async (options: Parameters<typeof startTestApi>[0]): Promise<number> => {
    api = await startTestApi(options);
    return Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
  };

  it("are read in turns, and refused beyond those that may wait", async () => {
    const port = await start({
      limits: { bodies: { atOnce: 2, atOnceOfOne: 1, mostOfOne: 2, mostWaiting: 2 } },
      timeouts: { stalledMilliseconds: 3_600_000 },
    });
    const half = async (token: string): Promise<Line> => {
      const line = send(port, token, MEGABYTE, MEGABYTE / 2);
      await new Promise((resolve) => setTimeout(resolve, 300));
      return line;
    };
    const own = [await half(api.tokens.operator), await half(api.tokens.operator)];
    const refused = await half(api.tokens.operator);
    await isAnswered(refused);
    expect(refused.heard()).toMatch(/^HTTP\/1\.1 429 .*retry-after: .*"code":"rate-limited"/is);
    // Somebody else's is read all the same, to its end.
    const other = send(port, api.tokens.viewer, MEGABYTE, MEGABYTE, "/api/v1/plans");
    await isAnswered(other);
    expect(statusOf(other)).toBe(400);
    own[0]?.socket.destroy();
    own[1]?.socket.write(" ".repeat(MEGABYTE / 2));
    await isAnswered(own[1] as Line);
    expect(statusOf(own[1] as Line)).toBe(400);
  });

  it("of which nothing comes any more give their place to the next", async () => {
    const port = await start({
      limits: { bodies: { atOnce: 1, atOnceOfOne: 1, mostOfOne: 10, mostWaiting: 10 } },
      timeouts: { stalledMilliseconds: 1000, requestMilliseconds: 3_600_000 },
    });
    const stalled = send(port, api.tokens.operator, MEGABYTE, MEGABYTE / 2);
    await isAnswered(stalled);
    expect(stalled.heard()).toMatch(/^HTTP\/1\.1 408 .*"code":"bad-request"/s);
    const whole = send(port, api.tokens.operator, MEGABYTE, MEGABYTE);
    await isAnswered(whole);
    expect(statusOf(whole)).toBe(400);
  });

  it("are not read before their token is known to be right", async () => {
    const port = await start({});
    const wrong = send(port, "ivo_wrong", MEGABYTE, 10);
    await isAnswered(wrong);
    expect(wrong.heard()).toMatch(/^HTTP\/1\.1 401 .*"code":"unauthorized"/s);
  });

  it("that are refused while they are sent do not keep the answer from their client", async () => {
    const port = await start({ limits: { requestsPerMinute: 1 } });
    for (const [token, status] of [
      [api.tokens.operator, 413],
      [api.tokens.operator, 429],
      ["ivo_wrong", 401],
      ["ivo_wrong", 429],
    ] as const) {
      const line = send(port, token, 50 * MEGABYTE, 20 * MEGABYTE);
      let broke: Error | undefined;
      line.socket.on("error", (error) => (broke = error));
      await isAnswered(line);
      expect([statusOf(line), broke]).toEqual([status, undefined]);
      line.socket.destroy();
    }
  });
});
