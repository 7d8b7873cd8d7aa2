import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { ROLES, type Problem, type Role } from "@internevo/contracts";
import { shippedProfile } from "@internevo/cost-model";
import {
  claimHosts,
  createProject,
  createProposal,
  createToken,
  createWebhook,
  createWorkload,
  ensureRun,
  fireWorkloadNow,
  jobLease,
  newTraceparent,
  storeDeadLetter,
  storeGivenProfile,
  storePlanChange,
  submitJob,
  testWebhook,
} from "@internevo/store";
import { exampleCandidate, exampleSpec } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import Fastify from "fastify";
import { registerRights, type RouteRule, type Scope } from "../src/http/rights.ts";
import { EXAMPLES } from "../src/routes/advice-examples.ts";
import { jobFile, rowCounts, signInBy, startTestApi, type TestApi } from "./harness.ts";

/** Whose token asks; what is asked for belongs to the project nlp. */
const PLACES = { installation: null, own: "nlp", foreign: "vision" } as const;
type Place = keyof typeof PLACES;

let api: TestApi;
const tokens = new Map<string, string>();
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 1e6 }, signIn: signInBy() });
  await api.database.transaction(async (tx) => {
    for (const name of ["nlp", "vision"]) await createProject(tx, { name });
    for (const [place, project] of Object.entries(PLACES))
      for (const role of ROLES)
        tokens.set(
          `${place} ${role}`,
          (await createToken(tx, { name: `${place}-${role}`, role, project, validForSeconds: null })).token,
        );
  });
}, 60_000);
afterAll(() => api.close());

const EXAMPLE_CLUSTER = { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" };
const specOf = (project: string) => ({ ...exampleSpec(`of-${project}`), project });
/** Makes what a route's `:id` names, anew for each request, as some requests use it up. */
const MADE: Readonly<Record<string, (project: string) => Promise<string>>> = {
  job: (project) => api.database.transaction((tx) => submitJob(tx, specOf(project))),
  workload: async (project) => {
    // A project may have few of them.
    await api.database.db.execute(`delete from workloads where project = '${project}'`);
    const { id } = await createWorkload(api.database.db, {
      name: randomUUID(),
      spec: specOf(project),
      cron: "0 3 * * *",
      timeZone: "UTC",
      catchUpWindowSeconds: 60,
      gainThreshold: 0.1,
      nextRunAt: null,
    });
    return id;
  },
  token: (project) =>
    api.database.transaction(
      async (tx) =>
        (await createToken(tx, { name: randomUUID(), role: "viewer", project, validForSeconds: null })).record
          .id,
    ),
  profile: (project) => giveProfile(project),
  webhook: async (project) => {
    // A project may have few of them.
    await api.database.db.execute(`delete from webhooks where project = '${project}'`);
    const made = { name: randomUUID(), url: "https://example.org", project };
    return (await api.database.transaction((tx) => createWebhook(tx, made))).webhook.id;
  },
  "webhook-delivery": async (project) => {
    const webhook = (await MADE["webhook"]?.(project)) ?? "";
    const { id } = await api.database.transaction((tx) => testWebhook(tx, webhook, "here"));
    await api.database.db.execute(`update webhook_deliveries set state = 'failed' where id = '${id}'`);
    return id;
  },
  "dead-letter": async (project) => letterOf((await MADE["job"]?.(project)) ?? ""),
};
const giveProfile = (project: string | null): Promise<string> =>
  storeGivenProfile(api.database.db, { ...shippedProfile("a800-128"), name: randomUUID() }, project);
/** A plan change of a job that was not made yet. */
const changeOf = (jobId: string): Promise<string> =>
  api.database.transaction(async (tx) => {
    const run = await ensureRun(tx, jobId, exampleCandidate());
    const asked = {
      origin: "person",
      askedBy: "here",
      predictedGain: 0,
      gainThreshold: 0,
      compareSteps: 10,
    } as const;
    const plans = { from: exampleCandidate(), to: exampleCandidate() };
    return (await storePlanChange(tx, { id: run.id, jobId }, { ...asked, ...plans })).id;
  });
/** A proposal for a workload that waits for an answer. */
const proposalFor = (workloadId: string): Promise<string> =>
  api.database.transaction(async (tx) => {
    const { id: firingId } = await fireWorkloadNow(tx, workloadId);
    const made = { workloadId, firingId, planningId: null, current: null, differences: [] };
    const proposal = await createProposal(tx, { ...made, proposed: exampleCandidate(), predictedGain: 0 });
    return proposal?.id ?? "";
  });
const letterOf = (jobId: string): Promise<string> =>
  storeDeadLetter(api.database.db, {
    consumer: "profiler/job.profile",
    messageId: randomUUID(),
    messageType: "job.profile",
    subject: "x",
    payload: { data: { jobId }, traceparent: "00-1-1-01" },
    error: "boom",
    deliveries: 3,
  });

/** Bodies that name a project or a job; a route of such a scope that is not here fails. */
const BODIES: Readonly<Record<string, (project: string) => object>> = {
  "POST /api/v1/jobs": (project) => jobFile(api, { project }),
  "POST /api/v1/jobs/check": (project) => jobFile(api, { project }),
  "POST /api/v1/workloads": (project) => ({
    name: randomUUID(),
    job: jobFile(api, { project }),
    cron: "0 3 * * *",
  }),
  "POST /api/v1/webhooks": (project) => ({ name: randomUUID(), url: "https://example.org", project }),
  "POST /api/v1/tokens": (project) => ({ name: randomUUID(), role: "viewer", project }),
};
/** Questions about a plan, with the job's id in place of its file. */
const QUESTIONS: Readonly<Record<string, object>> = {
  "POST /api/v1/plans/why-not": EXAMPLES.whyNot,
  "POST /api/v1/plans/explain": EXAMPLES.explain,
  "POST /api/v1/plans/memory": EXAMPLES.memory,
  "POST /api/v1/plans/export": EXAMPLES.export,
  "POST /api/v1/what-if/sweep": EXAMPLES.sweep,
  "POST /api/v1/what-if/largest-sequence": EXAMPLES.largestSequence,
  "POST /api/v1/what-if/pareto": EXAMPLES.pareto,
  "POST /api/v1/what-if/cheapest-cluster": EXAMPLES.cheapestCluster,
};

/** Bodies of routes about one thing that need one. */
const CHANGES: Readonly<Record<string, object>> = {
  "POST /api/v1/jobs/:id/priority": { priority: "high" },
  "POST /api/v1/jobs/:id/keep": { keep: true },
  "POST /api/v1/jobs/:id/plan-changes": { plan: 1 },
  "PATCH /api/v1/workloads/:id": { enabled: false },
  "PATCH /api/v1/webhooks/:id": { enabled: false },
};

type Outcome = "passes" | 401 | 403 | 404;

/** What the rules mean, said once more: who sees nothing of it is told so before anything else. */
function expectedOf({ role, scope }: RouteRule, place: Place, has: Role | undefined): Outcome {
  if (role === undefined) return "passes";
  if (has === undefined) return 401;
  const isEnough = ROLES.indexOf(has) >= ROLES.indexOf(role);
  if (place === "installation") return isEnough ? "passes" : 403;
  const isHidden = place === "foreign";
  const before: Partial<Record<Scope, Outcome>> = {
    installation: 403,
    ...(isHidden
      ? {
          job: 404,
          workload: 404,
          token: 404,
          "dead-letter": 404,
          profile: 404,
          webhook: 404,
          "webhook-delivery": 404,
          project: 404,
        }
      : {}),
  };
  const first = before[scope];
  if (first !== undefined) return first;
  if (!isEnough) return 403;
  // The body is read when the role is enough.
  return isHidden && ["submission", "subject", "jobs"].includes(scope) ? 404 : "passes";
}

async function ask(rule: RouteRule, token: string | undefined): Promise<Outcome> {
  const { method, url, scope } = rule;
  const made = MADE[scope];
  const named = made ? await made("nlp") : randomUUID();
  const key = `${method} ${url}`;
  let body: object | undefined;
  if (scope === "submission") body = BODIES[key]?.("nlp");
  if (scope === "subject" && QUESTIONS[key])
    body = { ...QUESTIONS[key], job: undefined, jobId: await MADE["job"]?.("nlp") };
  if ((scope === "submission" || scope === "subject") && body === undefined)
    throw new Error(`this test needs a body for ${key}`);
  const path = Object.entries({
    ":id": named,
    ":changeId": url.includes(":changeId") ? await changeOf(named) : "",
    ":proposalId": url.includes(":proposalId") ? await proposalFor(named) : "",
    ":artifact": "log.txt",
    ":name": scope === "project" ? "nlp" : "none",
    "/events": "/events?follow=false",
  }).reduce((made, [part, value]) => made.replace(part, value), url);
  const ids = scope === "jobs" ? [await MADE["job"]?.("nlp"), await MADE["job"]?.("nlp")] : [];
  const reply = await api.app.inject({
    method: method,
    url: ids.length === 0 ? path : `${path}?${ids.map((id) => `job=${id}`).join("&")}`,
    ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
    ...(body ? { payload: body } : {}),
  });
  if (reply.statusCode === 401) return 401;
  const { code } = reply.statusCode < 400 || method === "HEAD" ? { code: "" } : reply.json<Problem>();
  if (code === "forbidden") return 403;
  // There may be no profile or project of that name: what is behind the rights says so.
  const isAbsent = ["installation", "visible", "any"].includes(scope) ? false : reply.statusCode === 404;
  if (isAbsent) return 404;
  return reply.statusCode === 403 ? 403 : "passes";
}

describe("every route", () => {
  it("asks for what its rule says, of every role in the installation, its project and another", async () => {
    const rules = api.app.routeRules;
    expect(rules.length).toBeGreaterThan(50);
    const wrong: string[] = [];
    let asked = 0;
    for (const rule of rules) {
      for (const place of Object.keys(PLACES) as Place[])
        for (const role of ROLES) {
          const [expected, got] = [
            expectedOf(rule, place, role),
            await ask(rule, tokens.get(`${place} ${role}`)),
          ];
          asked += 1;
          if (expected !== got)
            wrong.push(`${rule.method} ${rule.url}: ${place} ${role} got ${got}, not ${expected}`);
        }
      const got = await ask(rule, undefined);
      const expected = expectedOf(rule, "installation", undefined);
      if (expected !== got) wrong.push(`${rule.method} ${rule.url}: nobody got ${got}, not ${expected}`);
    }
    expect(wrong).toEqual([]);
    expect(asked).toBe(9 * rules.length);
  }, 180_000);

  it("answers the same for what is another project's and for what is not there", async () => {
    const foreign = tokens.get("foreign admin") ?? "";
    for (const rule of api.app.routeRules) {
      const made = MADE[rule.scope];
      if (!made || rule.method === "HEAD") continue;
      const [hidden, absent] = [await made("nlp"), randomUUID()];
      const answers = await Promise.all(
        [hidden, absent].map(async (id) => {
          const reply = await api.app.inject({
            method: rule.method as "GET",
            url: rule.url.replace(":id", id),
            headers: { authorization: `Bearer ${foreign}` },
          });
          const { traceId: _, ...problem } = reply.json<Problem>();
          return JSON.stringify(problem).replaceAll(id, "ID");
        }),
      );
      expect(answers[0], `${rule.method} ${rule.url}`).toBe(answers[1]);
    }
  });

  it("finds nothing by an id in upper case, and changes nothing", async () => {
    const wrong: string[] = [];
    let asked = 0;
    for (const { method, url, scope } of api.app.routeRules) {
      const made = url === "/api/v1/profiles/:id/measure" ? MADE["profile"] : MADE[scope];
      if (!made || method === "HEAD") continue;
      const id = await made("nlp");
      const parts = Object.entries({
        ":id": id,
        ":changeId": url.includes(":changeId") ? await changeOf(id) : "",
        ":proposalId": url.includes(":proposalId") ? await proposalFor(id) : "",
      }).filter(([part]) => url.includes(part));
      const before = await rowCounts(api.database);
      for (const [upper] of parts)
        for (const who of ["installation admin", "own admin"]) {
          const reply = await api.app.inject({
            method: method as "GET",
            url: parts.reduce(
              (path, [part, value]) => path.replace(part, part === upper ? value.toUpperCase() : value),
              url.replace(":artifact", "log.txt"),
            ),
            headers: { authorization: `Bearer ${tokens.get(who) ?? ""}` },
            ...(CHANGES[`${method} ${url}`] ? { payload: CHANGES[`${method} ${url}`] } : {}),
          });
          asked += 1;
          // Only tokens of the installation measure again.
          const expected = scope === "installation" && who !== "installation admin" ? 403 : 404;
          if (reply.statusCode !== expected)
            wrong.push(`${method} ${url}: ${who} got ${reply.statusCode} for ${upper} in upper case`);
        }
      expect(await rowCounts(api.database), `${method} ${url}`).toEqual(before);
    }
    expect(wrong).toEqual([]);
    expect(asked).toBeGreaterThan(60);
  }, 60_000);

  it("takes no id in upper case in a body", async () => {
    const admin = (method: "POST", url: string, payload: object) =>
      api.app.inject({
        method,
        url,
        headers: { authorization: `Bearer ${tokens.get("installation admin") ?? ""}` },
        payload,
      });
    const jobId = ((await MADE["job"]?.("nlp")) ?? "").toUpperCase();
    for (const [key, question] of Object.entries(QUESTIONS)) {
      const reply = await admin("POST", key.slice("POST ".length), { ...question, job: undefined, jobId });
      expect([key, reply.statusCode, reply.json<Problem>().errors?.[0]?.field]).toEqual([key, 404, "jobId"]);
    }
    const profile = (await giveProfile(null)).toUpperCase();
    const job = jobFile(api, { cluster: { ...EXAMPLE_CLUSTER, profile } });
    for (const [url, payload] of [
      ["/api/v1/jobs/check", job],
      ["/api/v1/plans", { job: jobFile(api), profile }],
      ["/api/v1/workloads", { name: randomUUID(), cron: "0 3 * * *", job }],
    ] as const)
      expect([url, (await admin("POST", url, payload)).json<Problem>().code]).toEqual([
        url,
        "profile-missing",
      ]);
  });

  it("has a rule, or the API does not start", async () => {
    const app = Fastify();
    registerRights(app, api.database);
    const route = async () => "";
    expect(() => app.get("/api/v1/new", route)).toThrow(
      /route GET \/api\/v1\/new has no rule: give its config/,
    );
    expect(() => app.get("/api/v1/new", { config: { role: "viewer" } }, route)).toThrow(/has no rule/);
    expect(() => app.get("/api/v1/new", { config: { role: "viewer", scope: "open" } }, route)).toThrow(
      /has no rule/,
    );
    expect(() => app.post("/api/v1/new", { config: { role: "viewer", scope: "visible" } }, route)).toThrow(
      /is for lists/,
    );
    app.get("/api/v1/login", { config: { scope: "open" } }, route);
    app.get("/healthz", route);
    await app.close();
  });
});

const as = async (who: string, url: string, payload?: object) => {
  const reply = await api.app.inject({
    method: payload === undefined ? "GET" : "POST",
    url: `/api/v1${url}`,
    headers: { authorization: `Bearer ${tokens.get(who) ?? ""}` },
    ...(payload === undefined ? {} : { payload }),
  });
  return { status: reply.statusCode, body: reply.json() };
};

describe("a token of a project", () => {
  it("sees of lists, audit and dead letters what is its project's, and the installation sees all", async () => {
    for (const project of ["nlp", "vision"]) await MADE["workload"]?.(project);
    const jobs = { nlp: await MADE["job"]?.("nlp"), vision: await MADE["job"]?.("vision") };
    const letters = { nlp: await letterOf(jobs.nlp ?? ""), vision: await letterOf(jobs.vision ?? "") };
    await as("own operator", `/jobs/${jobs.nlp}/cancel`, {});
    await as("installation operator", `/jobs/${jobs.vision}/cancel`, {});
    await as("own operator", `/jobs/${jobs.vision}/cancel`, {});
    const projectsIn = async (who: string, url: string): Promise<string[]> =>
      [
        ...new Set(
          (await as(who, url)).body.items.map(
            (item: { project?: string; name?: string }) => item.project ?? "none",
          ),
        ),
      ] as string[];
    for (const url of ["/jobs?limit=200", "/workloads?limit=200", "/tokens?limit=200", "/audit?limit=200"]) {
      expect([url, await projectsIn("own admin", url)]).toEqual([url, ["nlp"]]);
      expect((await projectsIn("installation admin", url)).length, url).toBeGreaterThan(1);
    }
    const targets = (await as("own admin", "/audit?action=cancel&limit=200")).body.items.map(
      ({ target, status }: { target: string; status: number }) => `${target} ${status}`,
    );
    expect(targets).toContain(`${jobs.nlp} 202`);
    expect(targets).not.toContain(`${jobs.vision} 202`);
    expect(targets, "what its own token was refused").toContain(`${jobs.vision} 404`);
    const lettersOf = async (who: string) =>
      (await as(who, "/dead-letters?limit=200")).body.items.map(({ id }: { id: string }) => id);
    expect(await lettersOf("own admin")).toContain(letters.nlp);
    expect(await lettersOf("own admin")).not.toContain(letters.vision);
    expect(await lettersOf("installation admin")).toEqual(expect.arrayContaining(Object.values(letters)));
    expect(
      (await as("own viewer", "/projects")).body.items.map(({ name }: { name: string }) => name),
    ).toEqual(["nlp"]);
    for (const url of ["/jobs?project=vision", "/audit?project=vision"])
      expect((await as("own admin", url)).body.items).toEqual([]);
    expect((await as("own admin", "/usage?project=vision")).body.rows).toEqual([]);
  });

  it("submits into its project where the job names none, and is told of no other", async () => {
    const made = await as("own operator", "/jobs", jobFile(api));
    expect([made.status, made.body.project]).toEqual([201, "nlp"]);
    expect((await as("installation operator", "/jobs", jobFile(api))).body.project).toBe("default");
    const named = async (who: string, project: string) =>
      (await as(who, "/jobs", jobFile(api, { project }))).body;
    const problem = (name: string) => ({
      status: 404,
      code: "not-found",
      detail: `there is no project ${name}`,
      errors: [{ field: "project", value: name, remedy: expect.stringMatching(/\w/) }],
    });
    expect(await named("own operator", "vision")).toMatchObject(problem("vision"));
    expect(await named("installation operator", "nowhere")).toMatchObject(problem("nowhere"));
  });

  it("compares no job of another project, beside its own", async () => {
    const own = await MADE["job"]?.("nlp");
    const [mixed, absent] = await Promise.all(
      [await MADE["job"]?.("vision"), randomUUID()].map(async (id) => {
        const { status, body } = await as("own viewer", `/comparison?job=${own}&job=${id}`);
        const { traceId: _, ...said } = body as Problem;
        return [status, JSON.stringify(said).replaceAll(String(id), "ID")];
      }),
    );
    expect(mixed?.[0]).toBe(404);
    expect(mixed).toEqual(absent);
  });

  it("is told which role it has where, and what to do", async () => {
    const { body } = await as("own viewer", "/jobs", jobFile(api));
    expect(body).toMatchObject({
      status: 403,
      detail: "this needs the role operator, and the token's is viewer in project nlp",
      errors: [
        {
          message: "is a token of role viewer in project nlp",
          remedy: "use a token of role operator or admin in project nlp",
        },
      ],
    });
    expect((await as("own admin", "/projects", { name: "x" })).body.detail).toBe(
      "this needs the role admin in the whole installation, and the token's is admin in project nlp",
    );
  });

  it("makes tokens of its project only, whatever the body leaves out", async () => {
    const made = await as("own admin", "/tokens", { name: "helper", role: "admin" });
    expect([made.status, made.body.project]).toEqual([201, "nlp"]);
    expect(
      (await as("own admin", "/tokens", { name: "spy", role: "viewer", project: "vision" })).status,
    ).toBe(404);
  });
});

describe("profiles of the installation", () => {
  it("are seen by every token, and discarded by its own", async () => {
    const id = await giveProfile(null);
    const asked = async (who: string, method: "GET" | "DELETE") => {
      const reply = await api.app.inject({
        method,
        url: `/api/v1/profiles/${id}`,
        headers: { authorization: `Bearer ${tokens.get(who) ?? ""}` },
      });
      return reply.statusCode;
    };
    expect(await asked("own viewer", "GET")).toBe(200);
    for (const role of ROLES) expect(await asked(`own ${role}`, "DELETE")).toBe(403);
    expect(await asked("installation viewer", "DELETE")).toBe(403);
    expect(await asked("installation operator", "DELETE")).toBe(204);
    expect(await asked("own viewer", "GET"), "nothing used it").toBe(404);
  });
});

describe("who is ahead in the queue, and on a cluster", () => {
  it("is counted, and named to whoever may see it", async () => {
    const ids = [await MADE["job"]?.("vision"), await MADE["job"]?.("nlp")] as [string, string];
    const claim = (id: string, minute: number) =>
      api.database.transaction((tx) =>
        claimHosts(tx, {
          owner: jobLease(id),
          hosts: [hostname()],
          submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
          command: { type: "job.profile", data: { jobId: id }, traceparent: newTraceparent() },
        }),
      );
    expect([await claim(ids[0], 0), await claim(ids[1], 1)]).toEqual([true, false]);
    const { behind, behindCount } = (await as("own viewer", `/jobs/${ids[1]}`)).body.queue;
    expect([behind, behindCount]).toEqual([[], 1]);
    const seen = (await as("installation viewer", `/jobs/${ids[1]}`)).body.queue;
    expect(seen.behind).toMatchObject([{ id: ids[0], name: "of-vision" }]);
    const cluster = async (who: string) => (await as(who, `/clusters/${hostname()}`)).body;
    expect(await cluster("own viewer")).toMatchObject({
      holders: [],
      hostsInUse: 1,
      waiting: [{ id: ids[1] }],
    });
    expect(await cluster("foreign viewer")).toMatchObject({ holders: [{ id: ids[0] }], waiting: [] });
    expect(await cluster("installation viewer")).toMatchObject({
      holders: [{ id: ids[0] }],
      waiting: [{ id: ids[1] }],
    });
  });
});

describe("usage", () => {
  it.each([
    ["from=2026-02-01T00:00:00Z&to=2026-01-01T00:00:00Z", "is not after from"],
    ["from=0000-01-01T00:00:00Z&to=0000-02-01T00:00:00Z", "is not after from"],
    ["from=2000-01-01T00:00:00Z", "is more than 3700 days after from"],
  ])("is not asked with %s", async (query, message) => {
    expect((await as("installation viewer", `/usage?${query}`)).body).toMatchObject({
      status: 400,
      errors: [{ field: "to", message, remedy: expect.stringMatching(/\w/) }],
    });
  });
});

describe("quotas at submission", () => {
  it("refuse what can never begin, and what a month's GPU-hours are used up for", async () => {
    await api.database.transaction((tx) => createProject(tx, { name: "small", maxGpus: 1 }));
    const refused = async (who = "installation operator") =>
      (await as(who, "/jobs", jobFile(api, { project: "small" }))).body;
    expect(await refused()).toMatchObject({
      status: 403,
      code: "quota-exceeded",
      errors: [{ field: "cluster", value: "1 × 2", remedy: expect.stringContaining("maxGpus") }],
    });
    // The same job as a workload, new or changed: its measurements would wait for ever.
    const job = (gpusPerNode: number) =>
      jobFile(api, {
        project: "small",
        cluster: { name: "here", nodes: 1, gpusPerNode, memoryPerGpu: "1GiB" },
      });
    const workload = (gpusPerNode: number) => ({ name: "w", cron: "0 3 * * *", job: job(gpusPerNode) });
    const tooLarge = { code: "quota-exceeded", errors: [{ field: "job.cluster", value: "1 × 2" }] };
    expect((await as("installation operator", "/workloads", workload(2))).body).toMatchObject(tooLarge);
    const made = await as("installation operator", "/workloads", workload(1));
    expect(made.status).toBe(201);
    const changed = await api.app.inject({
      method: "PATCH",
      url: `/api/v1/workloads/${made.body.id}`,
      headers: { authorization: api.bearer.admin },
      payload: { job: job(2) },
    });
    expect(changed.json()).toMatchObject(tooLarge);
    await api.app.inject({
      method: "PATCH",
      url: "/api/v1/projects/small",
      headers: { authorization: api.bearer.admin },
      payload: { maxGpus: null, gpuHoursPerMonth: 0 },
    });
    expect(await refused()).toMatchObject({
      status: 403,
      code: "quota-exceeded",
      detail: "project small has used 0 of 0 GPU-hours of this month",
      errors: [
        { field: "project", value: "small", remedy: expect.stringMatching(/^wait until \d{4}-\d\d-01, or/) },
      ],
    });
  });
});
