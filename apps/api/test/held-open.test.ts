import { eventually } from "@internevo/test-kit";
import { connect, type Socket } from "node:net";
import { InternEvoClient } from "@internevo/client";
import { appendJobEvents, createProject, createToken, listTokens, revokeToken } from "@internevo/store";
import { sql } from "drizzle-orm";
import { afterEach, describe, expect, it } from "vitest";
import { createWorkers, type Workers } from "../src/work/workers.ts";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

/** What one client says and hears over a connection of its own. */
interface Line {
  readonly socket: Socket;
  /** What has arrived so far. */
  heard(): string;
  /** Milliseconds from its beginning to its end. */
  readonly ended: Promise<number>;
}

/** Milliseconds that no test waits for. */
const NEVER = 3_600_000;

let api: TestApi;
let port: number;
const lines = new Set<Socket>();
afterEach(async () => {
  for (const socket of lines) socket.destroy();
  lines.clear();
  await api.close();
});

async function start(options: Parameters<typeof startTestApi>[0]): Promise<void> {
  api = await startTestApi(options);
  port = Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
}

function open(said: string): Line {
  const startedAt = performance.now();
  let text = "";
  const socket = connect(port, "127.0.0.1", () => socket.write(said));
  lines.add(socket);
  socket.on("data", (data) => (text += data.toString())).on("error", () => undefined);
  return {
    socket,
    heard: () => text,
    ended: new Promise((resolve) => socket.once("close", () => resolve(performance.now() - startedAt))),
  };
}

const following = (jobId: string, token = api.tokens.viewer): string =>
  `GET /api/v1/jobs/${jobId}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\n\r\n`;
/** Resolves once so many of the lines have heard something. */
const heardBy = (those: readonly Line[], count: number): Promise<void> =>
  new Promise((resolve) => {
    let heard = 0;
    for (const { socket } of those) socket.once("data", () => ++heard >= count && resolve());
    if (count === 0) resolve();
  });
const statusOf = (line: Line): number => Number(line.heard().split(" ")[1]);

const until = (condition: () => boolean | Promise<boolean>) => eventually("what the line says", condition);

const whoami = async (): Promise<number> =>
  (await fetch(`http://127.0.0.1:${port}/api/v1/whoami`, { headers: { authorization: api.bearer.operator } }))
    .status;
const newJob = async (over: Record<string, unknown> = {}): Promise<string> =>
  (
    await new InternEvoClient({ baseUrl: `http://127.0.0.1:${port}`, token: api.tokens.operator }).submitJob(
      jobFile(api, over),
    )
  ).id;

describe("requests that come a byte at a time", () => {
  const dribbling = (head: string): Line => {
    const line = open(head);
    line.socket.once("connect", () => {
      const drip = setInterval(() => line.socket.writable && line.socket.write("x"), 50);
      line.socket.once("close", () => clearInterval(drip));
    });
    return line;
  };
  const slowHeads = (): Line[] =>
    Array.from({ length: 200 }, () => dribbling("GET /api/v1/whoami HTTP/1.1\r\nHost: x\r\nX-Slow: "));
  const slowBodies = (): Line[] =>
    Array.from({ length: 200 }, () =>
      dribbling(
        `POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: ${api.bearer.viewer}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n`,
      ),
    );
  const areCut = async (those: readonly Line[], afterMilliseconds: number): Promise<void> => {
    for (const line of those) {
      expect(await line.ended, line.heard()).toBeGreaterThan(afterMilliseconds * 0.9);
      expect(line.heard()).toMatch(/^HTTP\/1\.1 408 .*"code":"bad-request"/s);
    }
  };

  it("hold nobody up", async () => {
    await start({ timeouts: { headersMilliseconds: NEVER, requestMilliseconds: NEVER } });
    const slow = [...slowHeads(), ...slowBodies()];
    await until(async () => (await connections()) === slow.length);
    expect(await whoami()).toBe(200);
    // All were still there when the answer came: none was cut to make room.
    expect(await connections()).toBeGreaterThanOrEqual(slow.length);
    expect(slow.map((line) => line.heard()).join("")).toBe("");
  });

  // The other time is never over: only the one that is tested can cut them.
  it("are cut after the time that their head may take", async () => {
    await start({ timeouts: { headersMilliseconds: 500, requestMilliseconds: NEVER } });
    await areCut(slowHeads(), 500);
  });

  it("are cut after the time that their body may take", async () => {
    await start({ timeouts: { headersMilliseconds: 500, requestMilliseconds: 1500 } });
    await areCut(slowBodies(), 1500);
  });

  it("are cut also where who sends them keeps its half open", async () => {
    await start({ timeouts: { headersMilliseconds: 500, requestMilliseconds: NEVER } });
    const half = connect({ port, host: "127.0.0.1", allowHalfOpen: true }, () =>
      half.write("GET / HTTP/1.1\r\nHost:"),
    );
    lines.add(half);
    half.on("error", () => undefined).resume();
    await new Promise((resolve) => half.once("end", resolve));
    await until(async () => (await connections()) === 0);
    expect(half.writable).toBe(true);
  });

  it("that never say a word are cut too", async () => {
    await start({ timeouts: { headersMilliseconds: 500, requestMilliseconds: NEVER } });
    await open("").ended;
  });
});

describe("connections", () => {
  it("beyond the most that may be open are closed, and others go on", async () => {
    await start({
      limits: { connections: 20 },
      timeouts: { headersMilliseconds: NEVER, requestMilliseconds: NEVER },
    });
    const idle = Array.from({ length: 19 }, () => open("GET / HTTP/1.1\r\nHost:"));
    await until(async () => (await connections()) === idle.length);
    const taken = open("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    await until(() => statusOf(taken) === 200);
    await open("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").ended;
    for (const { socket } of idle) socket.destroy();
    await until(async () => (await connections()) <= 1);
    expect(await whoami()).toBe(200);
  });
});

describe("answers that nobody takes", () => {
  it("are dropped after a while", async () => {
    await start({ timeouts: { takenMilliseconds: 500 } });
    // The answer is more than the system's buffers hold.
    const asks = `GET /docs/json HTTP/1.1\r\nHost: x\r\n\r\n`.repeat(30);
    const line = open(asks);
    await until(() => statusOf(line) === 200);
    line.socket.pause();
    expect(await connections()).toBe(1);
    await until(async () => (await connections()) === 0);
  });

  it("do not count the time that an answer takes to be found", async () => {
    await start({ timeouts: { takenMilliseconds: 300 }, heartbeatMilliseconds: 100 });
    const line = open(following(await newJob()));
    const beats = (): number => line.heard().match(/: heartbeat/g)?.length ?? 0;
    // So many heartbeats are four times as far apart as the time in which the answer must be taken.
    await until(() => line.socket.destroyed || beats() > 12);
    expect([statusOf(line), line.socket.destroyed]).toEqual([200, false]);
  });
});

const connections = (): Promise<number> =>
  new Promise((resolve, reject) =>
    api.app.server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
  );

describe("event streams that are held open", () => {
  it("are bounded for a token and in all, and those who close theirs may open others", async () => {
    await start({ limits: { streamsOfOneToken: 3, streams: 5 } });
    const jobId = await newJob();
    const own = Array.from({ length: 3 }, () => open(following(jobId)));
    await until(() => own.every((line) => statusOf(line) === 200));
    const refused = open(following(jobId));
    await until(() => refused.heard().includes("}"));
    expect(refused.heard()).toMatch(/^HTTP\/1\.1 429 .*retry-after: .*"code":"rate-limited"/is);
    const others = Array.from({ length: 2 }, () => open(following(jobId, api.tokens.admin)));
    await until(() => others.every((line) => statusOf(line) === 200));
    const beyond = open(following(jobId, api.tokens.operator));
    await until(() => beyond.heard().includes("}"));
    expect(beyond.heard()).toMatch(/^HTTP\/1\.1 503 .*retry-after: .*"code":"unavailable"/is);
    own[0]?.socket.destroy();
    await until(async () => {
      const again = open(following(jobId));
      await until(() => again.heard().includes("\n\n") || again.heard().includes("}"));
      return statusOf(again) === 200;
    });
    expect(await whoami()).toBe(200);
  });

  it("are opened so often a minute by one token, and others open theirs", async () => {
    await start({ limits: { streamsPerMinute: 3 } });
    const jobId = await newJob();
    const statuses: number[] = [];
    for (let at = 0; at < 4; at += 1) {
      const line = open(following(jobId));
      await until(() => statusOf(line) > 0);
      statuses.push(statusOf(line));
      line.socket.destroy();
    }
    expect(statuses).toEqual([200, 200, 200, 429]);
    const other = open(following(jobId, api.tokens.admin));
    await until(() => statusOf(other) === 200);
  });

  it("are forgotten whenever their client leaves", async () => {
    await start({ limits: { streamsOfOneToken: 50, streamsPerMinute: 1000 } });
    const jobId = await newJob();
    for (let round = 0; round < 20; round += 1) {
      const some = Array.from({ length: 40 }, () => open(following(jobId)));
      await heardBy(some, 2 * round);
      for (const line of some) line.socket.destroy();
    }
    const gauge = async (): Promise<string | undefined> =>
      /^internevo_http_open_streams\{[^}]*\} (\d+)$/m.exec((await api.app.inject("/metrics")).body)?.[1];
    await until(async () => (await gauge()) === "0");
  });

  it("end when their token is revoked", async () => {
    await start({ heartbeatMilliseconds: 100 });
    const jobId = await newJob();
    const [kept, lost] = [open(following(jobId, api.tokens.admin)), open(following(jobId))];
    await until(() => [kept, lost].every((line) => line.heard().includes("event: state")));
    const viewer = (await listTokens(api.database.db)).items.find(({ name }) => name === "viewer");
    await api.database.transaction((tx) => revokeToken(tx, viewer?.id ?? ""));
    await lost.ended;
    expect(lost.heard()).not.toContain("event: end");
    const before = kept.heard().length;
    await until(() => kept.heard().length > before);
  });

  it("end when their token has its role elsewhere, and what it still sees can be opened again", async () => {
    await start({ heartbeatMilliseconds: 100 });
    for (const name of ["nlp", "vision"]) await api.database.transaction((tx) => createProject(tx, { name }));
    const token = await api.database.transaction((tx) =>
      createToken(tx, { name: "mover", role: "viewer", project: "nlp", validForSeconds: null }),
    );
    const move = (project: string | null): Promise<unknown> =>
      api.database.db.execute(sql`update api_tokens set project = ${project} where name = 'mover'`);
    const jobId = await newJob({ project: "nlp" });
    const [kept, lost] = [open(following(jobId)), open(following(jobId, token.token))];
    await until(() => [kept, lost].every((line) => line.heard().includes("event: state")));
    await move("vision");
    await lost.ended;
    expect(lost.heard()).not.toContain("event: end");
    const refused = open(following(jobId, token.token));
    await until(() => statusOf(refused) === 404);
    await move(null);
    const again = open(following(jobId, token.token));
    await until(() => again.heard().includes("event: state"));
    const before = kept.heard().length;
    await until(() => kept.heard().length > before);
  });
});

describe("a server that stops", () => {
  it("waits neither for requests that do not end nor for readers that do not read", async () => {
    const never = { headersMilliseconds: NEVER, requestMilliseconds: NEVER, takenMilliseconds: NEVER };
    await start({ timeouts: { ...never, stopMilliseconds: 500 } });
    const jobId = await newJob();
    await api.database.transaction((tx) =>
      appendJobEvents(
        tx,
        jobId,
        Array.from({ length: 3000 }, (_, index) => ({
          type: "log" as const,
          data: { level: "info", source: "test", message: `${index} ${"x".repeat(5000)}` },
        })),
      ),
    );
    const stuck = open(following(jobId));
    await until(() => statusOf(stuck) === 200);
    stuck.socket.pause();
    open("GET /api/v1/whoami HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    open(
      `POST /api/v1/plans HTTP/1.1\r\nHost: x\r\nAuthorization: ${api.bearer.viewer}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{`,
    );
    // The third is the client's that has submitted the job.
    await until(async () => (await connections()) > 2);
    await api.app.close();
    expect(await connections()).toBe(0);
  });
});

describe("a client that leaves while its job is checked", () => {
  const leaving = async (
    over: (workers: Workers, seen: (signal?: AbortSignal) => void) => Partial<Workers>,
  ) => {
    const workers = createWorkers({ planThreads: 1 });
    const working = Promise.withResolvers<AbortSignal | undefined>();
    const bound: Workers = {
      plan: (task, signal) => workers.plan(task, signal),
      quickPlan: (task, signal) => workers.quickPlan(task, signal),
      firstCounts: (job, fresh, signal) => workers.firstCounts(job, fresh, signal),
      advise: (question, signal) => workers.advise(question, signal),
      adviceThreads: workers.adviceThreads,
      checkData: (task, signal) => workers.checkData(task, signal),
      checkWeights: (task, signal) => workers.checkWeights(task, signal),
      ownerOfWeights: (task, signal) => workers.ownerOfWeights(task, signal),
      close: () => workers.close(),
    };
    await start({ workers: { ...bound, ...over(workers, working.resolve) } });
    try {
      const body = JSON.stringify(jobFile(api));
      const line = open(
        `POST /api/v1/jobs/check HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${api.tokens.operator}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
      const signal = await working.promise;
      line.socket.destroy();
      await until(() => signal?.aborted === true);
    } finally {
      await workers.close();
    }
  };

  it("ends the search that it waited for", () =>
    leaving((workers, seen) => ({
      quickPlan: (task, signal) => (seen(signal), workers.quickPlan(task, signal)),
    })));

  it("ends the look at its data", () =>
    leaving((workers, seen) => ({
      checkData: (task, signal) => (seen(signal), workers.checkData(task, signal)),
    })));
});
