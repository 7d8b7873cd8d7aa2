import { eventually } from "@internevo/test-kit";
import { TextDecoderStream, type ReadableStream } from "node:stream/web";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { allPages, ApiConnectionError, ApiProblemError, InternEvoClient } from "@internevo/client";
import type { JobStreamEvent } from "@internevo/contracts";
import { appendJobEvents, transitionJob } from "@internevo/store";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let baseUrl: string;
beforeAll(async () => {
  api = await startTestApi({ heartbeatMilliseconds: 200 });
  baseUrl = await api.app.listen({ host: "127.0.0.1", port: 0 });
});
afterAll(() => api.close());
const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

const client = (url = baseUrl): InternEvoClient =>
  new InternEvoClient({ baseUrl: url, token: api.tokens.operator });
const write = (jobId: string, from: number, count: number): Promise<void> =>
  api.database.transaction((tx) =>
    appendJobEvents(
      tx,
      jobId,
      Array.from({ length: count }, (_, index) => ({
        type: "log" as const,
        data: { level: "info", source: "test", message: String(from + index) },
      })),
    ),
  );
const end = (jobId: string): Promise<unknown> =>
  api.database.transaction((tx) =>
    transitionJob(tx, {
      jobId,
      from: "profiling",
      to: "failed",
      failure: { code: "internal", message: "the test's end" },
    }),
  );
const messages = (events: JobStreamEvent[]): string[] =>
  events.filter((event) => event.type === "log").map((event) => String(event.data["message"]));
const numbers = (count: number): string[] => Array.from({ length: count }, (_, index) => String(index));

async function openStreams(): Promise<number> {
  const { body } = await api.app.inject("/metrics");
  return Number(/^internevo_http_open_streams\{[^}]*\} (\d+)$/m.exec(body)?.[1]);
}
/** A line between client and API that breaks after so many bytes of answers, time and again. */
async function breakingLine(bytesPerConnection: number): Promise<{ url: string; connections: () => number }> {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server: Server = createServer((near) => {
    connections += 1;
    let left = bytesPerConnection;
    const far = connect(Number(new URL(baseUrl).port), "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => (near.destroy(), far.destroy()));
    }
    near.pipe(far);
    far.on("data", (chunk: Buffer) => {
      near.write(chunk.subarray(0, left));
      left -= chunk.length;
      // In the middle of whatever is being said.
      if (left <= 0) near.destroySoon();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
  };
}

describe("a job's events", () => {
  it("arrive as they happen, each once and in order, until the job has ended", async () => {
    const { id } = await client().submitJob(jobFile(api));
    await write(id, 0, 5);
    const seen: JobStreamEvent[] = [];
    const reading = (async () => {
      for await (const event of client().jobEvents(id)) {
        seen.push(event);
        if (messages(seen).length === 5) await write(id, 5, 700);
        if (messages(seen).length === 705) await end(id);
      }
    })();
    await reading;
    expect(messages(seen)).toEqual(numbers(705));
    expect(seen.at(-1)).toMatchObject({ type: "state", data: { to: "failed" } });
    const ids = seen.map((event) => event.id);
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b));
  });

  it("survive a line that breaks again and again, without loss and without doubles", async () => {
    const { id } = await client().submitJob(jobFile(api));
    const line = await breakingLine(6000);
    const seen: JobStreamEvent[] = [];
    let reconnects = 0;
    const writing = (async () => {
      for (let at = 0; at < 100; at += 10) await write(id, at, 10);
      await end(id);
    })();
    for await (const event of client(line.url).jobEvents(id, { onReconnect: () => void (reconnects += 1) }))
      seen.push(event);
    await writing;
    expect(reconnects).toBeGreaterThan(1);
    expect(line.connections()).toBe(reconnects + 1);
    expect(messages(seen)).toEqual(numbers(100));
    expect(seen.filter((event) => event.type === "state")).toHaveLength(2);
  });

  it("resume after Last-Event-ID, also when the job has ended", async () => {
    const { id } = await client().submitJob(jobFile(api));
    await write(id, 0, 4);
    await end(id);
    const all: JobStreamEvent[] = [];
    for await (const event of client().jobEvents(id)) all.push(event);
    expect(all).toHaveLength(6);
    for (const [index, event] of all.entries()) {
      const rest: JobStreamEvent[] = [];
      for await (const later of client().jobEvents(id, { lastEventId: event.id })) rest.push(later);
      expect(rest).toEqual(all.slice(index + 1));
    }
  });

  it("can be read without staying", async () => {
    const { id } = await client().submitJob(jobFile(api));
    await write(id, 0, 3);
    const seen: JobStreamEvent[] = [];
    for await (const event of client().jobEvents(id, { follow: false })) seen.push(event);
    expect(messages(seen)).toEqual(numbers(3));
  });

  it("go on from the newest that the job's answer knows, whose past the log and the last progress tell", async () => {
    const { id } = await client().submitJob(jobFile(api));
    await write(id, 0, 120);
    await api.database.transaction((tx) =>
      appendJobEvents(tx, id, [
        {
          type: "progress",
          data: { stage: "profiling", message: "all-gather over 2 ranks", done: 3, total: 12 },
        },
      ]),
    );
    const job = await client().getJob(id);
    expect(job.progress).toMatchObject({
      stage: "profiling",
      message: "all-gather over 2 ranks",
      done: 3,
      total: 12,
    });
    const past: string[] = [];
    for await (const line of allPages((cursor) =>
      client().jobLog(id, { limit: 50, ...(cursor === undefined ? {} : { cursor }) }),
    ))
      past.unshift(line.message);
    expect(past).toEqual(numbers(120));
    await write(id, 120, 3);
    await end(id);
    const rest: JobStreamEvent[] = [];
    for await (const event of client().jobEvents(id, { lastEventId: job.lastEventId })) rest.push(event);
    expect(messages(rest)).toEqual(["120", "121", "122"]);
    expect(rest).toHaveLength(4);
    await expect(client().jobLog(id, { cursor: "x" })).rejects.toMatchObject({ code: "bad-request" });
    await expect(client().jobLog("nobody")).rejects.toMatchObject({ code: "not-found" });
  });

  it("keep the line alive, and free it when the client goes", async () => {
    const { id } = await client().submitJob(jobFile(api));
    const gone = new AbortController();
    const reply = await fetch(`${baseUrl}/api/v1/jobs/${id}/events`, {
      headers: { authorization: api.bearer.viewer, accept: "text/event-stream" },
      signal: gone.signal,
    });
    expect(reply.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(reply.headers.get("content-security-policy")).toContain("default-src 'self'");
    const reader = (reply.body as unknown as ReadableStream<Uint8Array<ArrayBuffer>>)
      .pipeThrough(new TextDecoderStream())
      .getReader();
    let text = "";
    while (!text.includes(": heartbeat\n\n: heartbeat")) text += (await reader.read()).value ?? "";
    expect(text).toMatch(/^retry: 1000\n\nid: \d+\nevent: state\ndata: \{/);
    expect(await openStreams()).toBe(1);
    gone.abort();
    await eventually("the end of every stream", async () => (await openStreams()) === 0);
  });

  it("end with an error for what does not pass", async () => {
    const reading = async (jobs: InternEvoClient, id: string) => {
      for await (const _ of jobs.jobEvents(id, { maxAttempts: 2 }))
        throw new Error("there is nothing to read");
    };
    await expect(reading(client(), "nobody")).rejects.toMatchObject({
      name: "ApiProblemError",
      code: "not-found",
    });
    await expect(
      reading(new InternEvoClient({ baseUrl, token: "ievo_wrong" }), "nobody"),
    ).rejects.toBeInstanceOf(ApiProblemError);
    await expect(reading(client("http://127.0.0.1:1"), "nobody")).rejects.toBeInstanceOf(ApiConnectionError);
  });

  it("do not hold up a server that stops", async () => {
    // Whoever waited for the stream would wait for an hour, until the server cuts what is open.
    const other = await startTestApi({ timeouts: { stopMilliseconds: 3_600_000 } });
    const url = await other.app.listen({ host: "127.0.0.1", port: 0 });
    const jobs = new InternEvoClient({ baseUrl: url, token: other.tokens.operator });
    const { id } = await jobs.submitJob(jobFile(other));
    const stream = jobs.jobEvents(id, { maxAttempts: 1 });
    expect((await stream.next()).value).toMatchObject({ type: "state" });
    const rest = stream.next();
    rest.catch(() => {});
    await other.close();
    await expect(rest).rejects.toBeInstanceOf(ApiConnectionError);
  });
});
