import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { signIn } from "@internevo/store";
import { afterEach, describe, expect, it } from "vitest";
import { signInBy, startTestApi, type TestApi } from "./harness.ts";

/** Requests a minute of an address, and of a person. */
const MOST = 6;
const WRONG = 3;

let api: TestApi;
let directory: string;
afterEach(async () => {
  await api.close();
  await rm(directory, { recursive: true });
});

/** @returns the cookie of somebody who has signed in */
async function start(): Promise<string> {
  directory = await mkdtemp(join(tmpdir(), "internevo-console-"));
  await writeFile(join(directory, "index.html"), "<title>console</title>");
  api = await startTestApi({
    limits: { requestsPerMinute: MOST, wrongTokensPerMinute: WRONG },
    signIn: signInBy(),
    consoleDirectory: directory,
  });
  const outcome = await api.database.transaction((tx) =>
    signIn(
      tx,
      {
        issuer: "https://id.example",
        subject: "s-ada",
        name: "ada",
        email: null,
        places: [{ role: "viewer", project: null }],
      },
      { kind: "session", validForSeconds: 3600, idleSeconds: null, action: "GET /callback" },
    ),
  );
  if ("refusal" in outcome) throw outcome.refusal;
  return `internevo-session=${outcome.secret}`;
}
const ask = async (url: string, headers: Record<string, string> = {}): Promise<number> =>
  (await api.app.inject({ url, headers: { accept: "text/html", ...headers } })).statusCode;
async function flood(url: string, headers: Record<string, string> = {}): Promise<void> {
  const statuses = [];
  for (let at = 0; at <= MOST; at += 1) statuses.push(await ask(url, headers));
  expect(statuses.at(-1)).toBe(429);
}

describe("a flood without a token from an address that others share", () => {
  it("of pages leaves them to whoever shows a valid token or cookie, and signing in to all", async () => {
    const cookie = await start();
    await flood("/");
    expect(await ask("/jobs", { cookie })).toBe(200);
    expect([await ask("/docs/json"), await ask("/docs/json", { cookie })]).toEqual([429, 200]);
    expect(await ask("/", { authorization: api.bearer.viewer })).toBe(200);
    expect(await ask("/api/v1/sign-in")).toBe(200);
    expect(await ask("/", { authorization: "Bearer ivo_wrong" })).toBe(429);
    // Its own requests are counted still.
    await flood("/", { cookie });
    expect(await ask("/api/v1/whoami", { cookie })).toBe(429);
  });

  it("of what needs a token leaves pages and signing in", async () => {
    await start();
    await flood("/api/v1/whoami");
    expect(await ask("/")).toBe(200);
    expect(await ask("/api/v1/sign-in")).toBe(200);
  });

  it("of ways to sign in leaves pages, and leaves them to whoever shows a valid cookie", async () => {
    const cookie = await start();
    await flood("/api/v1/sign-in");
    expect(await ask("/")).toBe(200);
    expect(await ask("/api/v1/sign-in", { cookie })).toBe(200);
  });

  it("of pages with wrong tokens is looked up as seldom as other guesses", async () => {
    const cookie = await start();
    await flood("/");
    for (let at = 0; at <= WRONG; at += 1)
      expect(await ask("/", { authorization: `Bearer ivo_wrong${at}` })).toBe(429);
    const reply = await api.app.inject({ url: "/", headers: { authorization: "Bearer ivo_other" } });
    expect(reply.headers["x-ratelimit-limit"]).toBe(String(WRONG));
    expect(await ask("/", { cookie, accept: "text/html" })).toBe(200);
  });
});
