import { connect, type Socket } from "node:net";
import { findShippedProfile } from "@internevo/cost-model";
import { eventually } from "@internevo/test-kit";
import { createProject, createToken } from "@internevo/store";
import { afterEach, describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../src/http/limits.ts";
import { problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
const sockets = new Set<Socket>();
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await api.close();
});

const JOB = {
  name: "small",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 1024 * 4096,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
};
/** Searches of it take longer than any test. */
const ENDLESS = {
  ...JOB,
  model: { hiddenSize: 1024, heads: 16, layers: 2000, vocabularySize: 256 },
  sequenceLengthTokens: 1024,
  globalBatchTokens: 720_720 * 1024,
  cluster: { nodes: 9009, gpusPerNode: 8, memoryPerGpu: "80TB" },
};

/** Requests that are at work until they are let go, by the name that their job has. */
class Gate {
  readonly entered: string[] = [];
  readonly #gates: (() => void)[] = [];
  isOpen = false;
  at = 0;
  most = 0;

  async pass(name: string): Promise<void> {
    this.entered.push(name);
    this.at += 1;
    this.most = Math.max(this.most, this.at);
    if (!this.isOpen) await new Promise<void>((resolve) => this.#gates.push(resolve));
    this.at -= 1;
  }

  /** Lets the one go that entered first. */
  next = (): void => this.#gates.shift()?.();

  open(): void {
    this.isOpen = true;
    for (const go of this.#gates.splice(0)) go();
  }
}

/** An API whose questions about plans wait at the gate; turns do not lapse while they do. */
async function startGated(requests = DEFAULT_LIMITS.requests): Promise<Gate> {
  const gate = new Gate();
  api = await startTestApi({
    limits: { requests },
    timeouts: { turnMilliseconds: 3_600_000 },
    profileFor: async (spec) => {
      await gate.pass(spec.name);
      const profile = findShippedProfile("a800-128");
      if (!profile) throw new Error("the profile ships with the project");
      return profile;
    },
  });
  return gate;
}

const ask = (token: string, name: string) =>
  api.app.inject({
    method: "POST",
    url: "/api/v1/plans",
    headers: { authorization: `Bearer ${token}` },
    payload: { job: { ...JOB, name }, top: 1 },
  });
const whoami = (token: string) =>
  api.app.inject({ url: "/api/v1/whoami", headers: { authorization: `Bearer ${token}` } });

describe("requests of one token", () => {
  it("are at work two at once, in their order, and others do not wait for them", async () => {
    const gate = await startGated();
    const many = Array.from({ length: 20 }, (_, at) => ask(api.tokens.viewer, `many-${at}`));
    await eventually("two are at work", () => gate.at === 2);
    expect((await ask2(gate)).statusCode).toBe(200);
    expect((await whoami(api.tokens.admin)).statusCode).toBe(200);
    expect(gate.entered.slice(0, 2)).toEqual(["many-0", "many-1"]);
    gate.open();
    for (const reply of await Promise.all(many)) expect(reply.statusCode).toBe(200);
    expect(gate.most).toBeLessThanOrEqual(3);
    expect(gate.entered.filter((name) => name.startsWith("many"))).toEqual(
      Array.from({ length: 20 }, (_, at) => `many-${at}`),
    );
  });

  /** Somebody else's question, which is let go by itself. */
  const ask2 = async (gate: Gate) => {
    const other = ask(api.tokens.operator, "other");
    await eventually("the other is at work", () => gate.entered.includes("other"));
    expect(gate.entered).toEqual(["many-0", "many-1", "other"]);
    gate.next();
    gate.next();
    gate.next();
    return other;
  };

  it("are refused beyond those that may wait, and all beyond those that may wait in all", async () => {
    const gate = await startGated({ atOnce: 2, atOnceOfOne: 1, mostOfOne: 2, mostWaiting: 2 });
    const own = [ask(api.tokens.viewer, "a"), ask(api.tokens.viewer, "b")];
    await eventually("one is at work", () => gate.at === 1);
    const refused = await eventually("one is refused", async () => {
      const reply = await whoami(api.tokens.viewer);
      return reply.statusCode === 429 && reply;
    });
    expect(problem(refused, 429, "rate-limited").detail).toContain("you have 2 requests");
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    const others = [ask(api.tokens.operator, "c"), ask(api.tokens.operator, "d")];
    await eventually("another is at work", () => gate.at === 2);
    // Who has nothing is let in all the same, up to twice as many: one of these waits.
    const last = [ask(api.tokens.admin, "e"), ask(api.tokens.admin, "f")];
    const beyond = await Promise.race(last);
    problem(beyond, 503, "unavailable");
    expect(Number(beyond.headers["retry-after"])).toBeGreaterThan(0);
    gate.open();
    for (const reply of await Promise.all([...own, ...others])) expect(reply.statusCode).toBe(200);
    expect((await Promise.all(last)).map(({ statusCode }) => statusCode).sort()).toEqual([200, 503]);
    expect((await whoami(api.tokens.admin)).statusCode).toBe(200);
  });
});

it("requests of a project's tokens are at work two at once", async () => {
  const gate = await startGated();
  await api.database.transaction((tx) => createProject(tx, { name: "nlp" }));
  const tokens: string[] = [];
  for (const name of ["one", "two", "three"])
    tokens.push(
      (
        await api.database.transaction((tx) =>
          createToken(tx, { name, role: "viewer", project: "nlp", validForSeconds: null }),
        )
      ).token,
    );
  const many = tokens.map((token, at) => ask(token, `many-${at}`));
  await eventually("two are at work", () => gate.at === 2);
  const other = ask(api.tokens.viewer, "other");
  await eventually("the other is at work", () => gate.entered.includes("other"));
  expect(gate.at).toBe(3);
  gate.open();
  for (const reply of await Promise.all([...many, other])) expect(reply.statusCode).toBe(200);
});

describe("a turn", () => {
  it("is given up while a request waits for a search", async () => {
    api = await startTestApi({ timeouts: { turnMilliseconds: 3_600_000 } });
    const left = new AbortController();
    const url = await api.app.listen({ host: "127.0.0.1", port: 0 });
    const searches = [40, 50, 60].map((points) =>
      fetch(`${url}/api/v1/what-if/pareto`, {
        method: "POST",
        headers: { authorization: api.bearer.viewer, "content-type": "application/json" },
        body: JSON.stringify({ job: ENDLESS, profile: "a800-128", points }),
        signal: left.signal,
      }).then(
        ({ status }) => status,
        () => "left",
      ),
    );
    // Two turns, three searches: without giving theirs up they would keep this one waiting.
    for (let at = 0; at < 5; at += 1) expect((await whoami(api.tokens.viewer)).statusCode).toBe(200);
    left.abort();
    expect(await Promise.all(searches)).toEqual(["left", "left", "left"]);
  });

  it("lapses, so that what waits for long keeps nobody of its token waiting", async () => {
    const gate = new Gate();
    api = await startTestApi({
      timeouts: { turnMilliseconds: 200 },
      profileFor: async ({ name }) => (await gate.pass(name), Promise.reject(new Error("not asked"))),
    });
    const many = Array.from({ length: 4 }, (_, at) => ask(api.tokens.viewer, `many-${at}`));
    await eventually("all are at work", () => gate.at === 4);
    gate.open();
    await Promise.all(many);
  });
});

describe("clients that leave", () => {
  it("free the places in which they wait", async () => {
    const gate = await startGated({ ...DEFAULT_LIMITS.requests, atOnceOfOne: 1, mostOfOne: 4 });
    const { port } = new URL(await api.app.listen({ host: "127.0.0.1", port: 0 }));
    const working = ask(api.tokens.viewer, "working");
    await eventually("one is at work", () => gate.at === 1);
    /** Whether a request that stays there is refused: else it waits. */
    const isRefused = (): Promise<boolean> =>
      new Promise((resolve) => {
        const socket = connect(Number(port), "127.0.0.1", () =>
          socket.write(
            `GET /api/v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: ${api.bearer.viewer}\r\n\r\n`,
          ),
        );
        sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("data", (data) => resolve(data.toString().startsWith("HTTP/1.1 429 ")));
        setTimeout(() => resolve(false), 300);
      });
    await eventually("no place is left", isRefused);
    for (const socket of sockets) socket.destroy();
    await eventually("there is a place", async () => !(await isRefused()));
    gate.open();
    expect((await working).statusCode).toBe(200);
  });
});
