import { findShippedProfile } from "@internevo/cost-model";
import { createProject, createToken, signIn } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { afterEach, describe, expect, it } from "vitest";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let baseUrl: string;
const gates: (() => void)[] = [];
afterEach(async () => {
  for (const go of gates.splice(0)) go();
  await api.close();
});

async function start(options: Parameters<typeof startTestApi>[0]): Promise<void> {
  api = await startTestApi(options);
  await api.database.transaction((tx) => createProject(tx, { name: "nlp" }));
  baseUrl = await api.app.listen({ host: "127.0.0.1", port: 0 });
}

/** A login of a person, for `authorization`. */
async function login(subject: string, project: string | null = null): Promise<string> {
  const outcome = await api.database.transaction((tx) =>
    signIn(
      tx,
      {
        issuer: "https://id.example",
        subject,
        name: subject,
        email: null,
        places: [{ role: "viewer", project }],
      },
      { kind: "login", validForSeconds: 3600, idleSeconds: null, action: "POST /sign-in" },
    ),
  );
  if ("refusal" in outcome) throw outcome.refusal;
  return `Bearer ${outcome.secret}`;
}
async function projectToken(name: string, project: string | null = "nlp"): Promise<string> {
  const made = { name, role: "viewer", project, validForSeconds: null } as const;
  const { token } = await api.database.transaction((tx) => createToken(tx, made));
  return `Bearer ${token}`;
}
const whoami = (authorization: string) =>
  api.app.inject({ url: "/api/v1/whoami", headers: { authorization } });

describe("event streams", () => {
  async function jobOf(project: string): Promise<string> {
    const headers = { authorization: api.bearer.admin };
    const payload = jobFile(api, { project });
    const reply = await api.app.inject({ method: "POST", url: "/api/v1/jobs", headers, payload });
    expect(reply.statusCode).toBe(201);
    return reply.json<{ id: string }>().id;
  }
  /** Opens a stream that stays open. @returns its status, and why it is none */
  async function follow(authorization: string, jobId: string): Promise<[number, string?]> {
    const reply = await fetch(`${baseUrl}/api/v1/jobs/${jobId}/events`, {
      headers: { authorization, accept: "text/event-stream" },
    });
    return reply.ok ? [reply.status] : [reply.status, ((await reply.json()) as { detail: string }).detail];
  }

  it("of one project leave room for those of others, and of the installation", async () => {
    await start({ limits: { streams: 8, streamsOfOneToken: 2 } });
    const jobId = await jobOf("nlp");
    expect(await follow(await projectToken("first"), jobId)).toEqual([200]);
    expect(await follow(await login("s-one", "nlp"), jobId)).toEqual([200]);
    const message =
      "project nlp has 2 event streams open, as many as a project may; close one, or follow fewer jobs at once";
    expect(await follow(await projectToken("second"), jobId)).toEqual([429, message]);
    expect(await follow(await login("s-two", "nlp"), jobId)).toEqual([429, message]);
    for (const token of [api.bearer.viewer, api.bearer.operator, api.bearer.admin])
      for (let at = 0; at < 2; at += 1) expect(await follow(token, jobId)).toEqual([200]);
    expect(await follow(await projectToken("beyond", null), jobId)).toEqual([
      503,
      "too many event streams are open; try again shortly",
    ]);
  });

  it("of all sessions of a person are as many as of one token", async () => {
    await start({ limits: { streams: 100, streamsOfOneToken: 2 } });
    const jobId = await jobOf("default");
    const sessions = [await login("s-ada"), await login("s-ada"), await login("s-ada")] as const;
    expect(await follow(sessions[0], jobId)).toEqual([200]);
    expect(await follow(sessions[1], jobId)).toEqual([200]);
    expect(await follow(sessions[2], jobId)).toEqual([
      429,
      "your sessions have 2 event streams open; close one, or follow fewer jobs at once",
    ]);
    expect(await follow(await login("s-grace"), jobId)).toEqual([200]);
  });
});

describe("the sessions of one person", () => {
  it("send as many requests a minute as one token", async () => {
    await start({ limits: { requestsPerMinute: 3 } });
    const sessions = [await login("s-ada"), await login("s-ada"), await login("s-ada"), await login("s-ada")];
    const statuses = [];
    for (const session of sessions) statuses.push((await whoami(session)).statusCode);
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect((await whoami(await login("s-grace"))).statusCode).toBe(200);
  });

  it("take turns as one token does", async () => {
    let entered = 0;
    await start({
      limits: { requests: { atOnce: 8, atOnceOfOne: 1, mostOfOne: 2, mostWaiting: 20 } },
      timeouts: { turnMilliseconds: 3_600_000 },
      profileFor: async () => {
        entered += 1;
        await new Promise<void>((go) => gates.push(go));
        const profile = findShippedProfile("a800-128");
        if (!profile) throw new Error("the profile ships with the project");
        return profile;
      },
    });
    const ask = (authorization: string) =>
      api.app.inject({
        method: "POST",
        url: "/api/v1/plans",
        headers: { authorization },
        payload: { job: jobFile(api), top: 1 },
      });
    const sessions = [await login("s-ada", "nlp"), await login("s-ada", "nlp"), await login("s-ada", "nlp")];
    const [first = "", ...others] = sessions;
    const asked = [ask(first)];
    await eventually("one is at work", () => entered === 1);
    asked.push(...others.map(ask));
    // Whichever comes last: the other waits.
    const refused = await Promise.race(asked);
    expect(problem(refused, 429, "rate-limited").detail).toMatch(/^you have 2 requests/);
    expect(entered).toBe(1);
    expect((await whoami(api.bearer.viewer)).statusCode).toBe(200);
    for (const go of gates.splice(0)) go();
    await eventually("the other is at work", () => entered === 2);
    for (const go of gates.splice(0)) go();
    await Promise.all(asked);
  });
});
