import type { DeviceSignIn, DeviceToken, Problem } from "@internevo/contracts";
import { freePort } from "@internevo/local-stack";
import { listAudit } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import {
  startIdentityProvider,
  TestBrowser,
  type IdentityProvider,
} from "@internevo/test-kit/identity-provider";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { DEFAULT_LIMITS } from "../src/http/limits.ts";
import { MOST_WRITTEN } from "../src/http/refusal-audit.ts";
import { signInBy, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let provider: IdentityProvider;
let port: number;
let url: string;
const cleanups: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  port = await freePort();
  url = `http://127.0.0.1:${port}`;
  provider = await startIdentityProvider(url);
  for (const name of ["ada", "grace"])
    provider.people.set(`s-${name}`, { preferredUsername: name, groups: ["admins"] });
  provider.people.set("s-guest", { preferredUsername: "guest", groups: [] });
  return () => provider.stop();
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function start(limits: NonNullable<Parameters<typeof startTestApi>[0]>["limits"] = {}): Promise<void> {
  const settings = signInBy({
    publicUrl: new URL(url),
    issuer: new URL(provider.issuer),
    clientSecret: provider.clientSecret,
    placesOfGroup: new Map([["admins", [{ role: "admin", project: null }]]]),
    placeOfEverybody: undefined,
  });
  const started = await startTestApi({ signIn: settings, limits });
  cleanups.push(() => started.close());
  api = started;
  await api.app.listen({ port, host: "127.0.0.1" });
}

/** A browser that the provider has sent back, and that has not come yet. */
async function atTheDoor(subject: string): Promise<{ browser: TestBrowser; at: URL }> {
  provider.person = subject;
  const browser = new TestBrowser();
  const isBack = ({ pathname }: URL): boolean => pathname === "/api/v1/sign-in/callback";
  const { url: at } = await browser.follow(`${url}/api/v1/sign-in/begin`, {}, isBack);
  return { browser, at };
}
const enter = async (door: { browser: TestBrowser; at: URL }): Promise<TestBrowser> => {
  await door.browser.once(door.at);
  return door.browser;
};
const whoami = (browser: TestBrowser) => browser.once(`${url}/api/v1/whoami`);
const problemOf = async (browser: TestBrowser): Promise<string | null> =>
  ((await (await browser.once(`${url}/api/v1/sign-in`)).json()) as { problem: string | null }).problem;
const within = <T>(seconds: number, what: Promise<T>): Promise<T | "late"> =>
  Promise.race([
    what,
    new Promise<"late">((resolve) => setTimeout(() => resolve("late"), seconds * 1000).unref()),
  ]);

describe("one person who signs in again and again", () => {
  it("keeps nobody else waiting, and is told to wait", async () => {
    await start();
    await enter(await atTheDoor("s-ada"));
    const doors = [];
    for (let at = 0; at < 12; at += 1) doors.push(await atTheDoor("s-ada"));
    const other = await atTheDoor("s-grace");
    const free = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    // As it is for everybody who signs in while the database has much to do.
    const holding = api.database.transaction(async (tx) => {
      await tx.execute(sql`select 1 from users where name = 'ada' for update`);
      locked.resolve();
      await free.promise;
    });
    await locked.promise;
    const entering = doors.map(enter);
    const told: TestBrowser[] = [];
    for (const each of entering) void each.then((browser) => told.push(browser));
    try {
      // Those beyond the most that wait are answered, and nobody else is.
      await eventually("some are told to wait", () => told.length >= 4);
      expect(await within(5, enter(other).then(whoami))).toMatchObject({ status: 200 });
      expect(
        await within(5, fetch(`${url}/api/v1/whoami`, { headers: { authorization: api.bearer.viewer } })),
      ).toMatchObject({ status: 200 });
      expect(told).toHaveLength(4);
      for (const browser of told) expect(await problemOf(browser)).toContain("you have 8 requests");
    } finally {
      free.resolve();
      await holding;
    }
    const all = await Promise.all(entering);
    const statuses = await Promise.all(all.map(async (browser) => (await whoami(browser)).status));
    expect(statuses.filter((status) => status === 200)).toHaveLength(8);
  }, 60_000);
});

describe("requests that need no token", () => {
  it("take turns by their address, and are refused beyond those that may wait", async () => {
    await start({ openRequests: { atOnce: 1, atOnceOfOne: 1, mostOfOne: 2, mostWaiting: 2 } });
    const ask = () => api.app.inject("/api/v1/sign-in");
    const replies = await Promise.all(Array.from({ length: 12 }, ask));
    const statuses = replies.map(({ statusCode }) => statusCode);
    expect(new Set(statuses)).toEqual(new Set([200, 429]));
    const refused = replies.find(({ statusCode }) => statusCode === 429);
    expect(refused?.json()).toMatchObject({
      code: "rate-limited",
      detail: expect.stringMatching(/^you have 2/),
    });
    expect((await ask()).statusCode).toBe(200);
  });
});

describe("a guest without a role who signs in again and again", () => {
  it("has a row each at first, and is counted then", async () => {
    await start();
    for (let at = 0; at < MOST_WRITTEN + 5; at += 1) await enter(await atTheDoor("s-guest"));
    const { items } = await listAudit(api.database.db, { actor: "guest", limit: 100 });
    expect(items).toHaveLength(MOST_WRITTEN);
    expect(items[0]).toMatchObject({ role: "none", status: 403, details: { code: "forbidden" } });
    await api.app.close();
    const { items: later } = await listAudit(api.database.db, { actor: "guest", limit: 100 });
    expect(later).toHaveLength(MOST_WRITTEN + 1);
    expect(later[0]).toMatchObject({ target: null, details: { code: "forbidden", repeated: 5 } });
  }, 60_000);
});

describe("sign-ins of command lines", () => {
  const begin = (remoteAddress: string) =>
    api.app.inject({ method: "POST", url: "/api/v1/sign-in/device", remoteAddress });

  it("are begun so often a minute by an address, and others begin theirs", async () => {
    await start();
    const most = DEFAULT_LIMITS.deviceSignInsPerMinute;
    const statuses = [];
    for (let at = 0; at < most + 2; at += 1) statuses.push((await begin("192.0.2.1")).statusCode);
    expect(statuses).toEqual([...Array<number>(most).fill(200), 429, 429]);
    const refused = await begin("192.0.2.1");
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    expect((await begin("192.0.2.2")).statusCode).toBe(200);
    // Whoever has begun goes on.
    expect((await api.app.inject({ url: "/api/v1/sign-in", remoteAddress: "192.0.2.1" })).statusCode).toBe(
      200,
    );
  });

  it("are bounded for all, and what an address is refused counts for nobody else", async () => {
    await start({ deviceSignInsPerMinute: 2, deviceSignInsPerMinuteOfAll: 4 });
    const statuses = [];
    for (const address of [1, 1, 1, 1, 1, 2, 3, 4])
      statuses.push((await begin(`192.0.2.${address}`)).statusCode);
    expect(statuses).toEqual([200, 200, 429, 429, 429, 200, 200, 429]);
  });
});

describe("questions to the provider", () => {
  const post = <T>(path: string, remoteAddress: string, payload?: object) =>
    api.app
      .inject({ method: "POST", url: `/api/v1${path}`, remoteAddress, ...(payload ? { payload } : {}) })
      .then((reply) => ({ status: reply.statusCode, body: reply.json<T>() }));
  const codeFor = async (address: string): Promise<string> =>
    (await post<DeviceSignIn>("/sign-in/device", address)).body.deviceCode;
  const ask = (deviceCode: string, address = "192.0.2.1") =>
    post<DeviceToken & Problem>("/sign-in/device/token", address, { deviceCode });
  const asked = async (work: () => Promise<unknown>): Promise<number> => {
    const before = provider.tokenRequests.count;
    await work();
    return provider.tokenRequests.count - before;
  };

  it("are about device codes alone that were handed out", async () => {
    await start();
    const code = await codeFor("192.0.2.1");
    const [expiry, signature] = code.split(".") as [string, string];
    const wrong = ["made-up", `${expiry}.${signature}.made-up`, code.slice(code.lastIndexOf(".") + 1)];
    const count = await asked(async () => {
      for (const each of wrong)
        expect(await ask(each)).toMatchObject({
          status: 401,
          body: { code: "unauthorized", errors: [{ field: "deviceCode" }] },
        });
    });
    expect(count).toBe(0);
    // Another instance of the API knows the code too.
    await api.app.close();
    await start();
    expect(await ask(code)).toMatchObject({ status: 200, body: { state: "pending" } });
  });

  it("are so many a minute for an address, and others go on", async () => {
    await start();
    const most = DEFAULT_LIMITS.providerQuestionsPerMinute;
    const codes = [await codeFor("192.0.2.1"), await codeFor("192.0.2.2")] as const;
    const count = await asked(async () => {
      for (let at = 0; at < most; at += 1) expect((await ask(codes[0])).status).toBe(200);
      // Whoever is told so asks less often, and is not refused.
      expect(await ask(codes[0])).toEqual({
        status: 200,
        body: { state: "slow-down", token: null, expiresAt: null },
      });
      expect((await ask(codes[1], "192.0.2.2")).body.state).not.toBe("signed-in");
    });
    expect(count).toBe(most + 1);
  });

  it("are so many a minute of browsers that come back, too", async () => {
    await start({ providerQuestionsPerMinute: 2 });
    const doors: Awaited<ReturnType<typeof atTheDoor>>[] = [];
    for (let at = 0; at < 3; at += 1) doors.push(await atTheDoor("s-ada"));
    const browsers: TestBrowser[] = [];
    const count = await asked(async () => {
      for (const door of doors) browsers.push(await enter(door));
    });
    expect(count).toBe(2);
    expect(await problemOf(browsers[2]!)).toContain("too many sign-ins from this address");
    expect((await whoami(browsers[0]!)).status).toBe(200);
  });

  it("are few at once, whoever asks", async () => {
    await start();
    const addresses = Array.from({ length: 20 }, (_, at) => `192.0.2.${at + 1}`);
    const codes = await Promise.all(addresses.map(codeFor));
    const { atOnce } = DEFAULT_LIMITS.providerQuestions;
    const free = Promise.withResolvers<void>();
    provider.beforeToken = () => free.promise;
    provider.tokenRequests.mostAtOnce = 0;
    const before = provider.tokenRequests.count;
    const answers = Promise.all(codes.map((code, at) => ask(code, addresses[at])));
    try {
      await eventually("as many as may have asked", () => provider.tokenRequests.count - before >= atOnce);
    } finally {
      free.resolve();
      provider.beforeToken = () => Promise.resolve();
    }
    expect(new Set((await answers).map(({ status }) => status))).toEqual(new Set([200]));
    expect(provider.tokenRequests.count - before).toBe(codes.length);
    expect(provider.tokenRequests.mostAtOnce).toBe(atOnce);
  });
});
