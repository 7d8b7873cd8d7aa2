import { connect } from "node:net";
import { createLogger } from "@internevo/service-kit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

const lines: string[] = [];
let api: TestApi;
let port: number;
beforeAll(async () => {
  api = await startTestApi({
    logger: createLogger("api", "debug", { write: (line) => void lines.push(line) }),
  });
  port = Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
});
afterAll(() => api.close());

/** Most characters of a line of the log, whatever was sent. */
const LONGEST = 8 * 1024;

/** Texts that would begin a line of their own, or that a terminal obeys. */
const HOSTILE = '\n{"level":"error","msg":"forged"}\r\u001b[2J\u001b]0;title\u0007\u009b31m\u202e\u2028';
const LONG = "x".repeat(200_000);

const raw = (bytes: string): Promise<void> =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.end(bytes));
    socket
      .on("error", () => undefined)
      .once("close", () => resolve())
      .resume();
  });

it("of requests are one JSON document each, bounded and without controls, whatever is sent", async () => {
  const { bearer } = api;
  const send = (method: "GET" | "POST" | "DELETE", url: string, body?: unknown, headers = {}) =>
    api.app.inject({
      method,
      url: `/api/v1${url}`,
      headers: { authorization: bearer.admin, ...headers },
      ...(body === undefined ? {} : { payload: body as object }),
    });
  const profile = "a800-128";
  for (const text of [HOSTILE, LONG, HOSTILE.repeat(2000)]) {
    const inUrl = encodeURIComponent(text.slice(0, 12_000));
    await send("POST", "/jobs", jobFile(api, { name: text }));
    await send("POST", "/jobs", jobFile(api, { [text]: 1 }));
    await send("POST", "/jobs", jobFile(api, { model: text }));
    await send("POST", "/jobs", jobFile(api, { data: { format: "text", paths: [text] } }));
    await send("POST", "/plans", { job: jobFile(api), profile: text });
    await send("POST", "/plans/why-not", { job: jobFile(api), profile, plan: text });
    await send("POST", "/plans/memory", { job: jobFile(api), profile, plan: text.slice(0, 500) });
    await send("POST", "/workloads", { name: "w", job: jobFile(api), cron: text });
    await send("POST", "/tokens", { name: text, role: "viewer" });
    for (const framework of ["megatron", "torchtitan", "deepspeed", "internevo"])
      for (const file of [text, `--${text}`, `x = ${text}`, `{"${text}": 1}`])
        await send("POST", "/plans/import", {
          framework,
          profile,
          files: [{ name: text.slice(0, 400), text: file }],
        });
    for (const url of [`/jobs/${inUrl}`, `/${inUrl}`, `/jobs?cursor=${inUrl}`, `/jobs?${inUrl}=1`])
      await send("GET", url);
    await send("DELETE", `/workloads/${inUrl}`);
    for (const name of [
      "idempotency-key",
      "traceparent",
      "last-event-id",
      "accept",
      "content-type",
      "if-match",
    ])
      await send("POST", "/jobs", {}, { [name]: text.replace(/[^\u0020-\u007e]/g, "?").slice(0, 12_000) });
    await api.app.inject({
      url: "/api/v1/whoami",
      headers: { authorization: `Bearer ${text.replace(/\W/g, "")}` },
    });
    await raw(`GET /${text} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await raw(`${text} / HTTP/1.1\r\nHost: x\r\n\r\n`);
    await raw(`GET / HTTP/1.1\r\nHost: x\r\nX: ${text}\r\n\r\n`);
  }
  expect(lines.length).toBeGreaterThan(50);
  for (const line of lines) {
    expect(line.endsWith("\n")).toBe(true);
    const one = line.slice(0, -1);
    expect(one).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e]/);
    expect(JSON.parse(one)).toMatchObject({ service: "api" });
    expect(one.length, one.slice(0, 400)).toBeLessThan(LONGEST);
  }
});
