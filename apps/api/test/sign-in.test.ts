import {
  CSRF_HEADER,
  type DeviceSignIn,
  type DeviceToken,
  type Problem,
  type SignIn,
  type Whoami,
} from "@internevo/contracts";
import { freePort } from "@internevo/local-stack";
import { createProject, listAudit } from "@internevo/store";
import {
  startIdentityProvider,
  TestBrowser,
  type IdentityProvider,
} from "@internevo/test-kit/identity-provider";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, signInBy, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let provider: IdentityProvider;
let url: string;
beforeAll(async () => {
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  provider = await startIdentityProvider(url);
  const settings = signInBy({
    publicUrl: new URL(url),
    issuer: new URL(provider.issuer),
    clientSecret: provider.clientSecret,
    placesOfGroup: new Map([
      ["admins", [{ role: "admin", project: null }]],
      [
        "ml",
        [
          { role: "operator", project: "nlp" },
          { role: "viewer", project: "vision" },
        ],
      ],
      ["leads", [{ role: "admin", project: "vision" }]],
      ["ghosts", [{ role: "admin", project: "not-there" }]],
    ]),
    placeOfEverybody: undefined,
  });
  api = await startTestApi({ signIn: settings, limits: { providerQuestionsPerMinute: 1e6 } });
  await api.database.transaction(async (tx) => {
    for (const name of ["nlp", "vision"]) await createProject(tx, { name });
  });
  await api.app.listen({ port, host: "127.0.0.1" });
  provider.people.set("s-ada", { email: "ada@example.org", groups: ["admins"] });
  provider.people.set("s-grace", { email: "grace@example.org", groups: ["ml", "leads"] });
  provider.people.set("s-eve", { email: "eve@example.org", groups: ["guests"] });
  provider.people.set("s-ghost", { preferredUsername: "ghost", groups: ["ghosts"] });
  provider.people.set("s-typed", {
    email: "ada@example.org",
    emailVerified: false,
    preferredUsername: "typed",
    groups: ["ml"],
  });
  provider.people.set("s-other", { preferredUsername: "ada@example.org", groups: ["ml"] });
}, 60_000);
afterAll(async () => {
  await api.close();
  await provider.stop();
});

const CALLBACK = "/api/v1/sign-in/callback";
/** Signs somebody in. @returns the browser with the session */
async function signIn(subject: string, returnTo = "/jobs"): Promise<{ browser: TestBrowser; at: string }> {
  provider.person = subject;
  const browser = new TestBrowser();
  const begin = `${url}/api/v1/sign-in/begin?returnTo=${encodeURIComponent(returnTo)}`;
  const { url: at } = await browser.follow(
    begin,
    {},
    (each) => each.origin === url && each.pathname !== CALLBACK,
  );
  return { browser, at: at.href.slice(url.length) };
}
const get = async <T>(browser: TestBrowser, path: string): Promise<{ status: number; body: T }> => {
  const response = await browser.once(`${url}/api/v1${path}`);
  return { status: response.status, body: (await response.json()) as T };
};
const whoami = (browser: TestBrowser) => get<Whoami>(browser, "/whoami");
/** A request that changes something, as the console sends it. */
async function send(
  browser: TestBrowser,
  method: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: unknown }> {
  const response = await browser.once(`${url}/api/v1${path}`, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
  });
  const text = await response.text();
  return { status: response.status, body: text === "" ? null : (JSON.parse(text) as unknown) };
}
const csrf = async (browser: TestBrowser): Promise<Record<string, string>> => ({
  [CSRF_HEADER]: (await whoami(browser)).body.csrfToken ?? "",
  origin: url,
});
const problemOf = async (browser: TestBrowser): Promise<string | null> =>
  (await get<SignIn>(browser, "/sign-in")).body.problem;

describe("a browser", () => {
  it("signs in at the provider, and comes back to where it was", async () => {
    const { browser, at } = await signIn("s-ada", "/jobs?state=running");
    expect(at).toBe("/jobs?state=running");
    expect((await whoami(browser)).body).toEqual({
      name: "ada@example.org",
      role: "admin",
      project: null,
      kind: "session",
      places: [{ role: "admin", project: null }],
      csrfToken: expect.stringMatching(/^[\w-]{43}$/) as string,
    });
    const { body } = await get<SignIn>(browser, "/sign-in");
    expect(body).toEqual({ provider: { name: "Example" }, isSignedIn: true, problem: null });
    expect((await get<SignIn>(new TestBrowser(), "/sign-in")).body.isSignedIn).toBe(false);
    // No secret of it is stored.
    const [secret] = [...browser.cookies]
      .filter(([name]) => name === "internevo-session")
      .map(([, value]) => value);
    const { rows } = await api.database.db.execute(sql`select to_jsonb(t) as row from api_tokens t`);
    expect(secret).toMatch(/^ivo_/);
    expect(JSON.stringify(rows)).not.toContain(secret);
  });

  it("is sent nowhere else than to a page of the console", async () => {
    for (const path of [
      "https://evil.example",
      "//evil.example/x",
      "/\\evil.example",
      "javascript:alert(1)",
      `${url}.evil.example/`,
    ])
      expect((await signIn("s-ada", path)).at).toBe("/");
  });

  it("acts where its groups give a role, in one place at a time", async () => {
    const { browser } = await signIn("s-grace");
    const first = (await whoami(browser)).body;
    expect(first).toMatchObject({ role: "operator", project: "nlp" });
    expect(first.places).toEqual([
      { role: "operator", project: "nlp" },
      { role: "admin", project: "vision" },
    ]);
    const moved = await send(browser, "PATCH", "/session", { project: "vision" }, await csrf(browser));
    expect(moved).toMatchObject({ status: 200, body: { role: "admin", project: "vision" } });
    const refused = await send(browser, "PATCH", "/session", { project: null }, await csrf(browser));
    expect(refused).toMatchObject({ status: 404, body: { errors: [{ field: "project", value: null }] } });
  });

  it("owns what it submits, and is named in the audit log", async () => {
    const { browser } = await signIn("s-grace");
    const job = await send(browser, "POST", "/jobs", jobFile(api), await csrf(browser));
    expect(job).toMatchObject({ status: 201, body: { owner: "grace@example.org", project: "nlp" } });
    const { items } = await listAudit(api.database.db, { actor: "grace@example.org" });
    expect(items.map(({ action }) => action)).toEqual(
      expect.arrayContaining([`GET ${CALLBACK}`, "POST /api/v1/jobs"]),
    );
  });

  it("is told why it may not sign in, once", async () => {
    for (const [subject, why] of [
      ["s-eve", "eve@example.org has signed in, and has no role here"],
      ["s-ghost", "ghost has signed in, and has no role here"],
    ] as const) {
      const { browser, at } = await signIn(subject);
      expect(at).toBe("/");
      expect((await whoami(browser)).status).toBe(401);
      expect(await problemOf(browser)).toBe(why);
      expect(await problemOf(browser)).toBeNull();
    }
  });

  it("has no name that another person has, and none that nobody verified", async () => {
    await signIn("s-ada");
    const typed = await signIn("s-typed");
    expect((await whoami(typed.browser)).body.name).toBe("typed");
    const other = await signIn("s-other");
    expect((await whoami(other.browser)).body.name).toMatch(/^ada@example\.org \([0-9a-f]{8}\)$/);
  });

  it("signs out here, and is shown where to sign out of the provider", async () => {
    const { browser } = await signIn("s-ada");
    const ended = await send(browser, "DELETE", "/session", undefined, await csrf(browser));
    expect(ended.status).toBe(200);
    expect((ended.body as { providerUrl: string }).providerUrl).toContain(`${provider.issuer}/session/end?`);
    expect(browser.cookies.has("internevo-session")).toBe(false);
    expect((await whoami(browser)).status).toBe(401);
  });

  it("stays out when its session has ended, was idle, or was revoked", async () => {
    const endings = [
      sql`expires_at = clock_timestamp()`,
      sql`created_at = clock_timestamp() - interval '31 minutes', last_used_at = null`,
      sql`revoked_at = clock_timestamp()`,
    ];
    for (const ending of endings) {
      const { browser } = await signIn("s-ada");
      const { body } = await get<{ items: { id: string; kind: string }[] }>(browser, "/tokens");
      const session = body.items.find(({ kind }) => kind === "session");
      await api.database.db.execute(sql`update api_tokens set ${ending} where id = ${session!.id}`);
      const { status, body: problem } = await get<Problem>(browser, "/whoami");
      expect([status, problem.detail]).toEqual([401, "the session has ended"]);
      // Whoever's session has ended can see how to begin another.
      expect((await get<SignIn>(browser, "/sign-in")).status).toBe(200);
    }
  });

  it("loses what its groups no longer give, at the next sign-in", async () => {
    const { browser } = await signIn("s-grace");
    expect((await whoami(browser)).body.project).toBe("nlp");
    provider.people.set("s-grace", { email: "grace@example.org", groups: ["leads"] });
    const later = await signIn("s-grace");
    expect((await whoami(browser)).status).toBe(401);
    expect((await whoami(later.browser)).body).toMatchObject({ role: "admin", project: "vision" });
    // Without any group, a refused sign-in ends what was open.
    provider.people.set("s-grace", { email: "grace@example.org", groups: [] });
    const none = await signIn("s-grace");
    expect(await problemOf(none.browser)).toBe("grace@example.org has signed in, and has no role here");
    expect((await whoami(later.browser)).status).toBe(401);
    const { items } = await listAudit(api.database.db, { actor: "grace@example.org", outcome: "refused" });
    expect(items[0]).toMatchObject({
      action: `GET ${CALLBACK}`,
      status: 403,
      details: { code: "forbidden" },
    });
    provider.people.set("s-grace", { email: "grace@example.org", groups: ["ml", "leads"] });
  });

  it("has no name that a token has, and no token gets a person's", async () => {
    const headers = { authorization: api.bearer.admin };
    const create = (name: string) =>
      api.app.inject({ method: "POST", url: "/api/v1/tokens", headers, payload: { name, role: "viewer" } });
    expect((await create("robot")).statusCode).toBe(201);
    provider.people.set("s-robot", { preferredUsername: "robot", groups: ["admins"] });
    const { browser } = await signIn("s-robot");
    expect((await whoami(browser)).body.name).toMatch(/^robot \([0-9a-f]{8}\)$/);
    await signIn("s-typed");
    const taken = await create("typed");
    expect(taken.statusCode).toBe(409);
    expect(taken.json<Problem>().errors).toMatchObject([
      { field: "name", message: "is the name of somebody who signs in" },
    ]);
  });
});

describe("another site", () => {
  it("changes nothing by the cookie that the browser sends along", async () => {
    const { browser } = await signIn("s-ada");
    const token = await csrf(browser);
    const other = (await csrf((await signIn("s-ada")).browser))[CSRF_HEADER]!;
    const refusals: [Record<string, string>, string][] = [
      [{}, "origin"],
      [{ origin: url }, CSRF_HEADER],
      [{ [CSRF_HEADER]: token[CSRF_HEADER]! }, "origin"],
      [{ origin: url, [CSRF_HEADER]: other }, CSRF_HEADER],
      [{ origin: url, [CSRF_HEADER]: "x" }, CSRF_HEADER],
      [{ ...token, origin: "https://evil.example" }, "origin"],
      [{ ...token, origin: "null" }, "origin"],
    ];
    for (const [headers, field] of refusals) {
      const answer = await send(browser, "POST", "/projects", { name: "taken" }, headers);
      expect(answer).toMatchObject({ status: 403, body: { code: "forbidden", errors: [{ field }] } });
    }
    expect((await send(browser, "POST", "/projects", { name: "taken" }, token)).status).toBe(201);
  });

  it("cannot have a browser use another token as its cookie", async () => {
    const browser = new TestBrowser();
    browser.cookies.set("internevo-session", api.tokens.admin);
    expect((await whoami(browser)).status).toBe(401);
  });

  it("cannot sign a browser in to somebody else's account", async () => {
    provider.person = "s-eve";
    const theirs = new TestBrowser();
    const { url: at } = await theirs.follow(
      `${url}/api/v1/sign-in/begin`,
      {},
      (each) => each.pathname === CALLBACK,
    );
    const victim = new TestBrowser();
    await victim.follow(at);
    expect(victim.cookies.has("internevo-session")).toBe(false);
    expect(await problemOf(victim)).toContain("was not begun in this browser");
  });

  it.each(["a;b", "\0", "a\r\nset-cookie: x=y", "🙂", "", "=".repeat(5000)])(
    "is told of a sign-in that was not begun, whatever its state is: %j",
    async (state) => {
      const browser = new TestBrowser();
      await browser.follow(`${url}${CALLBACK}?state=${encodeURIComponent(state)}&code=x`);
      expect(await problemOf(browser)).toContain("was not begun in this browser");
    },
  );

  it("gains nothing by an answer of the provider that was used, or does not fit", async () => {
    provider.person = "s-ada";
    const browser = new TestBrowser();
    const begun = () =>
      browser.follow(`${url}/api/v1/sign-in/begin`, {}, (each) => each.pathname === CALLBACK);
    const { url: at } = await begun();
    const kept = new Map(browser.cookies);
    await browser.once(at);
    expect((await whoami(browser)).status).toBe(200);
    // The same code again, with the cookies of then.
    const again = new TestBrowser();
    for (const [name, value] of kept) again.cookies.set(name, value);
    await again.once(at);
    expect(again.cookies.has("internevo-session")).toBe(false);
    expect(await problemOf(again)).toContain("refused the sign-in");
    // A nonce of another sign-in.
    const { url: second } = await begun();
    const name = [...browser.cookies.keys()].find((each) => /^internevo-sign-in-(?!problem)/.test(each))!;
    const cookie = JSON.parse(Buffer.from(browser.cookies.get(name)!, "base64url").toString()) as object;
    const wrong = new TestBrowser();
    wrong.cookies.set(
      name,
      Buffer.from(JSON.stringify({ ...cookie, nonce: "another" })).toString("base64url"),
    );
    await wrong.once(second);
    expect(wrong.cookies.has("internevo-session")).toBe(false);
    expect(await problemOf(wrong)).toContain("does not fit");
  });
});

describe("a command line", () => {
  const ask = async <T>(path: string, body?: unknown): Promise<{ status: number; body: T }> =>
    (await send(new TestBrowser(), "POST", path, body)) as { status: number; body: T };

  it("signs in by a code that a person enters elsewhere, and signs out", async () => {
    provider.person = "s-grace";
    const { body: begun } = await ask<DeviceSignIn>("/sign-in/device");
    expect(begun.verificationUri).toBe(`${provider.issuer}/device`);
    const question = { deviceCode: begun.deviceCode };
    expect((await ask<DeviceToken>("/sign-in/device/token", question)).body.state).toBe("pending");
    expect(await provider.enterDeviceCode(begun.userCode)).toContain("Success");
    const { body: got } = await ask<DeviceToken>("/sign-in/device/token", question);
    expect(got.state).toBe("signed-in");
    const authorization = `Bearer ${got.token}`;
    const who = await api.app.inject({ url: "/api/v1/whoami", headers: { authorization } });
    expect(who.json()).toMatchObject({ name: "grace@example.org", kind: "login", csrfToken: null });
    // The code is used up.
    expect((await ask<Problem>("/sign-in/device/token", question)).status).toBe(401);
    const out = await api.app.inject({
      method: "DELETE",
      url: "/api/v1/session",
      headers: { authorization },
    });
    expect(out.json()).toEqual({ providerUrl: null });
    expect((await api.app.inject({ url: "/api/v1/whoami", headers: { authorization } })).statusCode).toBe(
      401,
    );
  });

  it("signs in once when it asks many times at once", async () => {
    provider.person = "s-grace";
    const { body: begun } = await ask<DeviceSignIn>("/sign-in/device");
    await provider.enterDeviceCode(begun.userCode);
    const question = { deviceCode: begun.deviceCode };
    const all = await Promise.all(
      Array.from({ length: 6 }, () => ask<DeviceToken>("/sign-in/device/token", question)),
    );
    expect(all.filter(({ body }) => body.state === "signed-in")).toHaveLength(1);
    // Who asks after the answer comes too late: the code is used up.
    expect(all.filter(({ status, body }) => body.state !== "signed-in" && status !== 401)).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ body: expect.objectContaining({ state: "slow-down" }) }),
      ]),
    );
    expect(all.filter(({ status }) => status >= 500)).toEqual([]);
  });

  it("does not sign out a token that an admin made", async () => {
    const headers = { authorization: api.bearer.admin };
    const out = await api.app.inject({ method: "DELETE", url: "/api/v1/session", headers });
    expect([out.statusCode, out.json<Problem>().code]).toEqual([409, "conflict"]);
  });
});

describe("without the provider", () => {
  it("sessions go on, and whoever signs in is told to try again", async () => {
    const { browser } = await signIn("s-ada");
    const away = await startTestApi({ signIn: signInBy() });
    for (const request of [
      { url: "/api/v1/sign-in/begin" },
      { method: "POST", url: "/api/v1/sign-in/device" },
    ] as const) {
      const answer = await away.app.inject(request);
      expect([answer.statusCode, answer.json<Problem>().detail]).toEqual([
        503,
        "the provider of identities does not answer; try again shortly",
      ]);
    }
    await away.close();
    expect((await whoami(browser)).status).toBe(200);
  });

  it("an installation says that tokens are the only way in", async () => {
    const none = await startTestApi();
    expect((await none.app.inject("/api/v1/sign-in")).json()).toEqual({
      provider: null,
      isSignedIn: false,
      problem: null,
    });
    expect((await none.app.inject("/api/v1/sign-in/begin")).statusCode).toBe(404);
    await none.close();
  });
});
