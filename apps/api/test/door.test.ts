import { connect } from "node:net";
import { ProblemSchema, type Problem } from "@internevo/contracts";
import { validate } from "@internevo/domain";
import { submitJob } from "@internevo/store";
import { resolveJob } from "@internevo/domain";
import { PATIENCE } from "@internevo/test-kit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let jobId: string;
let port: number;
beforeAll(async () => {
  api = await startTestApi();
  jobId = await api.database.transaction((tx) => submitJob(tx, resolveJob(jobFile(api))));
  port = Number(new URL(await api.app.listen({ host: "127.0.0.1", port: 0 })).port);
});
afterAll(() => api.close());

const V = "/api/v1";
interface Answer {
  readonly statusCode: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: string;
}
function problem(reply: Answer, status: number, code: Problem["code"], field?: string): Problem {
  const body = validate(ProblemSchema, JSON.parse(reply.body), "internal", "the problem");
  expect({ status: reply.statusCode, code: body.code, type: reply.headers["content-type"] }).toEqual({
    status,
    code,
    type: "application/problem+json; charset=utf-8",
  });
  expect(body).toMatchObject({ status, traceId: expect.stringMatching(/^[0-9a-f]{32}$/) });
  if (field !== undefined)
    expect(body.errors).toEqual([expect.objectContaining({ field, remedy: expect.stringMatching(/\w/) })]);
  return body;
}
const get = (url: string): Promise<Answer> =>
  api.app.inject({ url: `${V}${url}`, headers: { authorization: api.bearer.admin } });
const post = (url: string, payload: string, type = "application/json"): Promise<Answer> =>
  api.app.inject({
    method: "POST",
    url: `${V}${url}`,
    headers: { authorization: api.bearer.admin, "content-type": type },
    payload,
  });

describe("query parameters", () => {
  it.each([
    ["after", "99999999999999999999"],
    ["after", "2147483648"],
    ["after", "9007199254740993"],
    ["after", ""],
    ["after", "-1"],
    ["after", "1.0"],
    ["after", "1e3"],
    ["after", "0x1"],
    ["after", " 1"],
    ["limit", "1.5"],
    ["limit", ""],
    ["limit", "1001"],
    ["limit", "NaN"],
    ["cursor", "2147483648"],
    ["cursor", "999999999999999"],
    ["cursor", ""],
    ["cursor", "x"],
  ])("%s=%s of a job's steps is refused", async (name, value) => {
    problem(
      await get(`/jobs/${jobId}/metrics?${name}=${encodeURIComponent(value)}`),
      400,
      "bad-request",
      name,
    );
  });

  it("are taken up to what a step can be", async () => {
    for (const query of ["after=2147483647", "cursor=2147483647", "after=0&limit=1000"])
      expect((await get(`/jobs/${jobId}/metrics?${query}`)).statusCode).toBe(200);
    expect((await get(`/jobs/${jobId}/metrics?limit=1&limit=2`)).statusCode).toBe(400);
  });

  it("cursors of pages are refused when no page made them", async () => {
    const cursor = (at: string, id = jobId): string => Buffer.from(`${at}.${id}`).toString("base64url");
    for (const list of ["jobs", "profiles", "workloads", "dead-letters"]) {
      for (const id of ["a".repeat(36), "-".repeat(36), `${jobId.slice(0, 35)}-`])
        problem(await get(`/${list}?cursor=${cursor("1700000000000", id)}`), 400, "bad-request", "cursor");
      for (const at of ["999999999999999", "9999999999999999", "-1"])
        problem(await get(`/${list}?cursor=${cursor(at)}`), 400, "bad-request", "cursor");
      problem(await get(`/${list}?limit=1.5`), 400, "bad-request", "limit");
      expect((await get(`/${list}?cursor=${cursor("1700000000000")}`)).statusCode).toBe(200);
    }
    for (const follow of ["", "maybe", "2"])
      problem(await get(`/jobs/${jobId}/events?follow=${follow}`), 400, "bad-request", "follow");
    const events = await api.app.inject({
      url: `${V}/jobs/${jobId}/events?follow=false`,
      headers: { authorization: api.bearer.viewer, "last-event-id": "999999999999999" },
    });
    expect([events.statusCode, events.body]).toEqual([200, expect.stringContaining("event: end")]);
  });
});

describe("bodies", () => {
  it("of another type than JSON are refused as such", async () => {
    for (const type of ["text/plain", "text/plain; charset=utf-8", "application/xml", "application/jsonp"]) {
      for (const route of ["/jobs", "/plans", "/profiles", "/workloads"])
        problem(await post(route, "{}", type), 415, "unsupported-media-type", "content-type");
    }
  });

  it("nested too deeply are refused before anything walks through them", async () => {
    const deep = (levels: number, open: string, inner: string, close: string): string =>
      open.repeat(levels) + inner + close.repeat(levels);
    for (const levels of [101, 5000, 100_000]) {
      for (const body of [
        deep(levels, "[", "", "]"),
        deep(levels, '{"a":', "1", "}"),
        `{"job":${deep(levels, "[", "", "]")}}`,
      ]) {
        for (const route of ["/jobs", "/plans", "/profiles", "/workloads", `/jobs/${jobId}/cancel`])
          expect(problem(await post(route, body), 400, "bad-request", "(body)").detail).toContain("nested");
      }
    }
    problem(await post("/jobs", '{"a":'.repeat(5000)), 400, "bad-request", "(body)");
    // Brackets in texts nest nothing.
    expect(
      problem(await post("/jobs", JSON.stringify({ name: `"\\${"[".repeat(300)}` })), 422, "job-invalid")
        .detail,
    ).not.toContain("nested");
    problem(await post("/jobs", deep(50, "[", "", "]")), 422, "job-invalid");
  });

  it("of workloads hold numbers that can be stored", async () => {
    const workload = { name: "w", job: jobFile(api), cron: "0 3 * * *" };
    problem(
      await post("/workloads", JSON.stringify({ ...workload, catchUpWindowSeconds: 3e9 })),
      400,
      "bad-request",
      "catchUpWindowSeconds",
    );
  });
});

describe("routes", () => {
  it("say which methods they have", async () => {
    const as = (method: string, url: string) =>
      api.app.inject({ method: method as "PUT", url, headers: { authorization: api.bearer.admin } });
    for (const [method, url, allow] of [
      ["PUT", `${V}/jobs`, "GET, HEAD, POST"],
      ["DELETE", `${V}/jobs`, "GET, HEAD, POST"],
      ["PATCH", `${V}/jobs/${jobId}`, "GET, HEAD"],
      ["GET", `${V}/jobs/${jobId}/cancel`, "POST"],
      ["POST", "/healthz", "GET, HEAD"],
      ["GET", `${V}/plans/`, "POST"],
      ["POST", `${V}/workloads/x?y=z`, "DELETE, GET, HEAD, PATCH"],
      ["OPTIONS", `${V}/jobs`, "GET, HEAD, POST"],
      ["PUT", "/docs/json", "GET, HEAD"],
    ] as const) {
      const reply = await as(method, url);
      expect([url, reply.headers["allow"]]).toEqual([url, allow]);
      problem(reply, 405, "method-not-allowed", "(method)");
    }
    for (const url of [`${V}/nothing`, "/nothing", "/"]) problem(await as("PUT", url), 404, "not-found");
  });

  it("are asked for a method that they lack, whatever is sent as a body", async () => {
    const ask = (method: string, url: string, payload: string, type = "application/json") =>
      api.app.inject({
        method: method as "PUT",
        url,
        payload,
        headers: { authorization: api.bearer.admin, "content-type": type },
      });
    for (const method of ["PUT", "DELETE"])
      for (const [payload, type] of [
        ["", "application/json"],
        ["{", "application/json"],
        ["x", "text/plain"],
      ] as const)
        problem(await ask(method, `${V}/jobs`, payload, type), 405, "method-not-allowed", "(method)");
    problem(await ask("PUT", `${V}/nothing`, ""), 404, "not-found");
    // A route that takes no body needs none, whatever type it is said to have; one that takes one says that it lacks.
    problem(await ask("DELETE", `${V}/webhooks/${jobId}`, ""), 404, "not-found");
    problem(await ask("POST", `${V}/jobs`, ""), 400, "bad-request", "(body)");
  });

  it("name an id that is too long, and say nothing of rights", async () => {
    for (const length of [101, 201, 5000]) {
      for (const url of [
        `/jobs/${"x".repeat(length)}`,
        `/profiles/${"x".repeat(length)}`,
        `/jobs/${"x".repeat(length)}/metrics`,
      ])
        expect(problem(await get(url), 400, "bad-request", "id").detail).not.toContain("Forbidden");
    }
    problem(await get(`/jobs/${"x".repeat(100)}`), 404, "not-found", "id");
  });
});

/** What the server says to bytes, and then closes. */
const raw = (bytes: string): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(bytes));
    let text = "";
    socket.setTimeout(PATIENCE * 10_000, () => socket.destroy(new Error("no answer")));
    socket
      .on("data", (data) => (text += data.toString()))
      .once("error", reject)
      .once("close", () => {
        const [head = "", body = ""] = text.split("\r\n\r\n");
        const [first = "", ...lines] = head.split("\r\n");
        resolve({
          statusCode: Number(first.split(" ")[1]),
          headers: Object.fromEntries(
            lines.map(
              (line) =>
                line.split(": ", 2).map((part, at) => (at === 0 ? part.toLowerCase() : part)) as [
                  string,
                  string,
                ],
            ),
          ),
          body,
        });
      });
  });

describe("what is no request", () => {
  it("is answered with a problem", async () => {
    problem(await raw("BREW /api/v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "bad-request", "(request)");
    problem(await raw("what is this\r\n\r\n"), 400, "bad-request", "(request)");
    problem(
      await raw("GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: a\r\n\r\n"),
      400,
      "bad-request",
      "(request)",
    );
    problem(
      await raw(`GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX: ${"y".repeat(100_000)}\r\n\r\n`),
      431,
      "bad-request",
      "(request)",
    );
    problem(await raw("GET /api/v1/jobs HTTP/1.1\r\nConnection: close\r\n\r\n"), 400, "bad-request", "host");
    problem(
      await raw("POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nExpect: foo\r\nContent-Length: 2\r\n\r\n{}"),
      417,
      "bad-request",
      "(request)",
    );
    const tunnel = await raw("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n");
    problem(tunnel, 405, "method-not-allowed", "(request)");
    expect(tunnel.headers["allow"]).toContain("GET");
  });

  it("of any method that HTTP knows is refused by its path", async () => {
    for (const method of ["QUERY", "PROPFIND", "LINK", "M-SEARCH", "TRACE", "REPORT"]) {
      for (const body of ["", "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"]) {
        const reply = await raw(
          `${method} /api/v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${body === "" ? "\r\n" : body}`,
        );
        expect([method, body, reply.body]).toEqual([
          method,
          body,
          expect.stringContaining("no method of this path"),
        ]);
        problem(reply, 405, "method-not-allowed", "(method)");
        expect(reply.headers["allow"]).toBe("GET, HEAD, POST");
      }
    }
  });
});
