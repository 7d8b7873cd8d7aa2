import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import {
  JobDetailSchema,
  JobPageSchema,
  ProfilePageSchema,
  ProfileRecordSchema,
  WorkloadPageSchema,
  type Problem,
} from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import { PlanningResultSchema, WorkloadSchema } from "@internevo/domain";
import { storeProfile, updateJob } from "@internevo/store";
import { WIDE_HEADS_ON_GPUS } from "@internevo/test-kit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, problem, rowCounts, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const V = "/api/v1";
type Reply = Awaited<ReturnType<typeof send>>;
async function send(
  method: "GET" | "POST" | "DELETE",
  url: string,
  options: {
    role?: "viewer" | "operator" | "admin" | null;
    body?: unknown;
    headers?: Record<string, string>;
  } = {},
) {
  const { role = "operator" } = options;
  return api.app.inject({
    method,
    url,
    headers: { ...(role === null ? {} : { authorization: api.bearer[role] }), ...options.headers },
    ...(options.body === undefined ? {} : { payload: options.body as object }),
  });
}
const fields = (body: Problem): string[] => (body.errors ?? []).map((error) => error.field);

describe("jobs", () => {
  it("are accepted whole: row, history, event and the first command", async () => {
    const before = await rowCounts(api.database);
    const reply = await send("POST", `${V}/jobs`, {
      body: jobFile(api),
      headers: { traceparent: `00-${"ab".repeat(16)}-${"cd".repeat(8)}-01` },
    });
    expect(reply.statusCode).toBe(201);
    const job = shaped(JobDetailSchema, reply);
    expect(reply.headers).toMatchObject({ location: `${V}/jobs/${job.id}`, etag: '"1"' });
    expect(reply.headers["traceresponse"]).toMatch(new RegExp(`^00-${"ab".repeat(16)}-`));
    expect(job).toMatchObject({ state: "profiling", traceId: "ab".repeat(16), version: 1 });
    const after = await rowCounts(api.database);
    expect(after).toEqual({
      ...before,
      jobs: (before["jobs"] ?? 0) + 1,
      job_transitions: (before["job_transitions"] ?? 0) + 1,
      job_log: (before["job_log"] ?? 0) + 1,
      outbox: (before["outbox"] ?? 0) + 2,
    });
    const read = await send("GET", `${V}/jobs/${job.id}`, { role: "viewer" });
    expect(read.json()).toEqual(job);
  });

  it("are listed in pages, newest first, each once", async () => {
    const names = ["page-a", "page-b", "page-c", "page-d", "page-e"];
    for (const name of names)
      expect((await send("POST", `${V}/jobs`, { body: jobFile(api, { name }) })).statusCode).toBe(201);
    const seen: string[] = [];
    let cursor: string | null = "";
    while (cursor !== null) {
      const page: { items: { name: string }[]; nextCursor: string | null } = shaped(
        JobPageSchema,
        await send("GET", `${V}/jobs?limit=2${cursor === "" ? "" : `&cursor=${cursor}`}`),
      );
      expect(page.items.length).toBeLessThanOrEqual(2);
      seen.push(...page.items.map((job) => job.name));
      // What comes in between is no reason to see another one twice.
      await send("POST", `${V}/jobs`, { body: jobFile(api, { name: "meanwhile" }) });
      cursor = page.nextCursor;
    }
    expect(seen.filter((name) => names.includes(name))).toEqual([...names].reverse());
    expect(seen).not.toContain("meanwhile");
    const none = shaped(JobPageSchema, await send("GET", `${V}/jobs?state=running`));
    expect(none).toEqual({ items: [], nextCursor: null });
  });

  it("are cancelled, once and for all, under the version that was looked at", async () => {
    const { id } = shaped(JobDetailSchema, await send("POST", `${V}/jobs`, { body: jobFile(api) }));
    problem(
      await send("POST", `${V}/jobs/${id}/cancel`, { headers: { "if-match": '"7"' } }),
      412,
      "precondition-failed",
    );
    problem(
      await send("POST", `${V}/jobs/${id}/cancel`, { headers: { "if-match": "seven" } }),
      400,
      "bad-request",
    );
    const cancelled = await send("POST", `${V}/jobs/${id}/cancel`, {
      headers: { "if-match": '"1"' },
      body: { reason: "not needed" },
    });
    expect(cancelled.statusCode).toBe(202);
    expect(shaped(JobDetailSchema, cancelled)).toMatchObject({ state: "cancelled", reason: "not needed" });
    expect((await send("POST", `${V}/jobs/${id}/cancel`)).json()).toMatchObject({
      state: "cancelled",
      version: 2,
    });
    await api.database.db.execute(`update jobs set state = 'succeeded' where id = '${id}'`);
    problem(await send("POST", `${V}/jobs/${id}/cancel`), 409, "conflict");
  });

  it("that nobody submitted are not found", async () => {
    for (const id of ["nobody", "00000000-0000-4000-8000-000000000000"]) {
      problem(await send("GET", `${V}/jobs/${id}`), 404, "not-found");
      problem(await send("GET", `${V}/jobs/${id}/metrics`), 404, "not-found");
      problem(await send("GET", `${V}/jobs/${id}/validations`), 404, "not-found");
      problem(await send("GET", `${V}/jobs/${id}/events`), 404, "not-found");
      problem(await send("POST", `${V}/jobs/${id}/cancel`), 404, "not-found");
      problem(await send("POST", `${V}/jobs/${id}/resume`), 404, "not-found");
    }
  });

  it.each([
    ["an unknown field", { learningRate: 1 }, "learningRate"],
    ["a batch that is no multiple", { globalBatchTokens: 513 }, "globalBatchTokens"],
    [
      "heads that do not divide",
      { model: { hiddenSize: 64, layers: 2, heads: 5, vocabularySize: 256 } },
      "model.heads",
    ],
    ["no GPUs", { cluster: { nodes: 1, gpusPerNode: 0, memoryPerGpu: "1GiB" } }, "cluster.gpusPerNode"],
    ["a model that nobody named", { model: "llama-8b" }, "model"],
    [
      "memory whose unit was forgotten",
      { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: 80 } },
      "cluster.memoryPerGpu",
    ],
    ["heads that are planned only", WIDE_HEADS_ON_GPUS, "model.heads"],
    [
      "GPUs and no CUDA backend",
      { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB", device: "cuda" } },
      "cluster.device",
    ],
    ["no data", { data: undefined }, "data"],
    ["a relative path", { data: { format: "text", paths: ["text.txt"] } }, "data.paths.0"],
    [
      "more ranks than this machine starts",
      { cluster: { nodes: 1, gpusPerNode: 128, memoryPerGpu: "1GiB" } },
      "cluster.gpusPerNode",
    ],
    [
      "several machines without Slurm",
      { cluster: { nodes: 2, gpusPerNode: 2, memoryPerGpu: "1GiB" } },
      "cluster.nodes",
    ],
    [
      "more memory than there is",
      { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1TiB" } },
      "cluster.memoryPerGpu",
    ],
    [
      "a launcher that is not here",
      { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB", launcher: "slurm" } },
      "cluster.launcher",
    ],
    [
      "hosts of which nothing is known here",
      { cluster: { nodes: 2, gpusPerNode: 2, memoryPerGpu: "1GiB", launcher: "ssh" } },
      "cluster.launcher",
    ],
  ])("with %s are refused, and nothing is stored", async (_what, over, field) => {
    const before = await rowCounts(api.database);
    const body = problem(
      await send("POST", `${V}/jobs`, {
        body: jobFile(api, over),
        headers: { "idempotency-key": `bad-${field}-${_what.length}` },
      }),
      422,
      "job-invalid",
    );
    expect(fields(body)).toContain(field);
    expect(await rowCounts(api.database)).toEqual(before);
  });

  it("with a profile that is not there are refused", async () => {
    const cluster = { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" };
    problem(
      await send("POST", `${V}/jobs`, { body: jobFile(api, { cluster: { ...cluster, profile: "a900" } }) }),
      422,
      "profile-missing",
    );
  });
});

describe("plans", () => {
  const paperJob = {
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  };

  it("are searched from a shipped profile, and others are answered meanwhile", async () => {
    const before = await rowCounts(api.database);
    let planned = false;
    const searching = send("POST", `${V}/plans`, {
      role: "viewer",
      body: { job: paperJob, profile: "a800-128", top: 3 },
    }).then((reply) => {
      planned = true;
      return reply;
    });
    expect((await send("GET", `${V}/whoami`)).statusCode).toBe(200);
    expect(planned).toBe(false);
    const result = shaped(PlanningResultSchema, await searching);
    expect(result.candidates.map((candidate) => candidate.rank)).toEqual([1, 2, 3]);
    expect(result.counts.feasible).toBeGreaterThan(0);
    expect(await rowCounts(api.database)).toEqual(before);
  });

  it("do not hold up a submission, however many wait", async () => {
    await send("POST", `${V}/jobs`, { body: jobFile(api) });
    const ends: string[] = [];
    const plans = Array.from({ length: 8 }, (_, index) =>
      send("POST", `${V}/plans`, {
        body: { job: { ...paperJob, name: `seven ${index}` }, profile: "a800-128" },
      }).then((reply) => ends.push(`plan ${reply.statusCode}`)),
    );
    await Promise.all([
      ...plans,
      send("POST", `${V}/jobs`, { body: jobFile(api) }).then((reply) => ends.push(`job ${reply.statusCode}`)),
    ]);
    expect(ends.toSorted()).toEqual(["job 201", ...Array<string>(8).fill("plan 200")]);
    expect(ends.at(-1)).toBe("plan 200");
  });

  it("that nothing fits say what would", async () => {
    const result = shaped(
      PlanningResultSchema,
      await send("POST", `${V}/plans`, {
        body: {
          job: { ...paperJob, cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "1GB" } },
          profile: "a800-128",
        },
      }),
    );
    expect(result).toMatchObject({ candidates: [], counts: { feasible: 0 } });
    expect(result.closest?.peakMemoryBytes).toBeGreaterThan(1e9);
  });

  it("need a profile", async () => {
    expect(
      fields(problem(await send("POST", `${V}/plans`, { body: { job: paperJob } }), 422, "profile-missing")),
    ).toEqual(["job.cluster.profile"]);
    expect(
      fields(
        problem(
          await send("POST", `${V}/plans`, { body: { job: paperJob, profile: "a900" } }),
          422,
          "profile-missing",
        ),
      ),
    ).toEqual(["profile"]);
    expect(
      fields(
        problem(
          await send("POST", `${V}/plans`, {
            body: { job: { ...paperJob, globalBatchTokens: 5000 }, profile: "a800-128" },
          }),
          422,
          "job-invalid",
        ),
      ),
    ).toEqual(["job.globalBatchTokens"]);
    expect(
      fields(
        problem(await send("POST", `${V}/plans`, { body: { job: paperJob, top: 0 } }), 400, "bad-request"),
      ),
    ).toEqual(["top"]);
  });
});

describe("profiles", () => {
  const cluster = (profile: string): unknown => ({
    name: "x",
    nodes: 1,
    gpusPerNode: 2,
    memoryPerGpu: "1GiB",
    profile,
  });
  /** Every way to name a profile. */
  const naming = async (profile: string): Promise<Reply[]> => [
    await send("POST", `${V}/plans`, {
      role: "viewer",
      body: { job: jobFile(api, { cluster: cluster(profile) }) },
    }),
    await send("POST", `${V}/plans`, { role: "viewer", body: { job: jobFile(api), profile } }),
    await send("POST", `${V}/jobs`, { body: jobFile(api, { cluster: cluster(profile) }) }),
    await send("POST", `${V}/workloads`, {
      body: { name: `w ${profile}`, job: jobFile(api, { cluster: cluster(profile) }), cron: "0 3 * * *" },
    }),
  ];

  it("are never read from a path, whatever is there: the answers to a pipe, a device, a file and nothing are the same", async () => {
    const pipe = join(api.directory, "profile-pipe");
    execFileSync("mkfifo", [pipe]);
    const said = new Set<string>();
    for (const path of [pipe, "/dev/zero", api.textPath, "/absent.json", "../package.json"]) {
      for (const [at, reply] of (await naming(path)).entries()) {
        const body = problem(reply, 422, "profile-missing");
        expect(fields(body)).toEqual([
          ["job.cluster.profile", "profile", "cluster.profile", "job.cluster.profile"][at],
        ]);
        said.add(
          JSON.stringify({ ...body, traceId: "" })
            .replaceAll(path, "PATH")
            .replace(/job\.cluster\.profile|cluster\.profile/, "profile"),
        );
      }
    }
    expect([...said]).toEqual([expect.stringContaining("choose one: a800-128")]);
  }, 20_000);

  it("are stored once by operators, and then named by their id", async () => {
    const shipped = findShippedProfile("a800-128");
    // A program that leaves room for the job's plans.
    const profile = { ...shipped, name: "mine", device: { ...shipped?.device, runtimeBytes: 2 ** 20 } };
    problem(await send("POST", `${V}/profiles`, { role: "viewer", body: profile }), 403, "forbidden");
    problem(await send("POST", `${V}/profiles`, { body: { ...profile, device: 7 } }), 422, "profile-invalid");
    const stored = await send("POST", `${V}/profiles`, { body: profile });
    expect([stored.statusCode, stored.headers.location]).toEqual([
      201,
      `${V}/profiles/${stored.json<{ id: string }>().id}`,
    ]);
    const { id, clusterKey } = shaped(ProfileRecordSchema, stored);
    expect(clusterKey).toBe("given:mine");
    expect((await send("POST", `${V}/profiles`, { body: profile })).json()).toMatchObject({ id });
    const other = (
      await send("POST", `${V}/profiles`, {
        body: { ...profile, device: { ...profile.device, name: "other" } },
      })
    ).json<{ id: string }>();
    expect(other.id).not.toBe(id);
    const replies = await naming(id);
    expect(replies.map((reply) => reply.statusCode)).toEqual([200, 200, 201, 201]);
    expect(shaped(PlanningResultSchema, replies[0] as Reply).profile).toBe("mine");
    for (const reply of await naming(randomUUID())) problem(reply, 422, "profile-missing");
  });

  it("are discarded by operators: past jobs still show them, lists and new jobs do not", async () => {
    const profile = { ...findShippedProfile("a800-128"), name: "to be discarded" };
    const { id } = shaped(ProfileRecordSchema, await send("POST", `${V}/profiles`, { body: profile }));
    expect((await naming(id))[0]?.statusCode).toBe(200);
    problem(await send("DELETE", `${V}/profiles/${id}`, { role: "viewer" }), 403, "forbidden");
    problem(await send("DELETE", `${V}/profiles/${randomUUID()}`), 404, "not-found");
    problem(await send("DELETE", `${V}/profiles/x`), 404, "not-found");
    for (let times = 0; times < 2; times += 1)
      expect((await send("DELETE", `${V}/profiles/${id}`)).statusCode).toBe(204);
    expect(shaped(ProfileRecordSchema, await send("GET", `${V}/profiles/${id}`)).discardedAt).not.toBeNull();
    expect(
      shaped(ProfilePageSchema, await send("GET", `${V}/profiles?limit=200`)).items.map((item) => item.id),
    ).not.toContain(id);
    for (const reply of await naming(id))
      expect(problem(reply, 422, "profile-missing").detail).toContain("was discarded");
    for (const reply of await naming("to be discarded")) problem(reply, 422, "profile-missing");
    // The same content is a new profile then.
    expect((await send("POST", `${V}/profiles`, { body: profile })).json<{ id: string }>().id).not.toBe(id);
  });

  it("are measured again by a job that does nothing else", async () => {
    const given = shaped(
      ProfileRecordSchema,
      await send("POST", `${V}/profiles`, { body: { ...findShippedProfile("a800-128"), name: "given" } }),
    );
    problem(await send("POST", `${V}/profiles/${given.id}/measure`), 409, "conflict");
    problem(await send("POST", `${V}/profiles/${randomUUID()}/measure`), 404, "not-found");
    const job = shaped(JobDetailSchema, await send("POST", `${V}/jobs`, { body: jobFile(api) }));
    const id = await storeProfile(api.database.db, {
      clusterKey: "local:here:1x2",
      profile: given.profile,
      freshForSeconds: 60,
    });
    await api.database.transaction((tx) => updateJob(tx, job.id, { profileId: id }));
    problem(await send("POST", `${V}/profiles/${id}/measure`, { role: "viewer" }), 403, "forbidden");
    const reply = await send("POST", `${V}/profiles/${id}/measure`);
    expect([reply.statusCode, reply.headers.location]).toEqual([
      201,
      `${V}/jobs/${reply.json<{ id: string }>().id}`,
    ]);
    expect(shaped(JobDetailSchema, reply)).toMatchObject({
      state: "profiling",
      spec: { model: job.spec.model, cluster: job.spec.cluster, measureAgain: true, until: "profiling" },
    });
  });

  it("need no data where a job only measures", async () => {
    const { data: _, ...file } = jobFile(api);
    problem(await send("POST", `${V}/jobs`, { body: file }), 422, "job-invalid");
    expect((await send("POST", `${V}/jobs`, { body: { ...file, until: "profiling" } })).statusCode).toBe(201);
  });

  it("are listed without their curves, and shown whole", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const id = await storeProfile(api.database.db, {
      clusterKey: "local:x:1x2",
      profile,
      freshForSeconds: 60,
    });
    const page = shaped(ProfilePageSchema, await send("GET", `${V}/profiles`, { role: "viewer" }));
    expect(page.items[0]).toMatchObject({ id, name: profile.name });
    expect(page.items[0]).not.toHaveProperty("profile");
    expect(
      shaped(ProfileRecordSchema, await send("GET", `${V}/profiles/${id}`, { role: "viewer" })).profile,
    ).toEqual(profile);
    problem(await send("GET", `${V}/profiles/x`), 404, "not-found");
  });
});

describe("workloads", () => {
  it("are added with their first run, run now, and removed", async () => {
    const body = { name: "nightly", job: jobFile(api), cron: "30 3 * * *", timeZone: "Europe/Berlin" };
    const reply = await send("POST", `${V}/workloads`, { body });
    expect(reply.statusCode).toBe(201);
    const workload = shaped(WorkloadSchema, reply);
    expect(reply.headers.location).toBe(`${V}/workloads/${workload.id}`);
    expect(
      new Intl.DateTimeFormat("en-GB", {
        timeZone: "Europe/Berlin",
        hour: "2-digit",
        minute: "2-digit",
      }).format(new Date(workload.nextRunAt ?? 0)),
    ).toBe("03:30");
    problem(await send("POST", `${V}/workloads`, { body }), 409, "conflict");
    expect(
      shaped(WorkloadPageSchema, await send("GET", `${V}/workloads`)).items.map((item) => item.id),
    ).toContain(workload.id);
    expect((await send("POST", `${V}/workloads/${workload.id}/run`)).statusCode).toBe(202);
    problem(await send("POST", `${V}/workloads/${workload.id}/run`), 409, "conflict");
    expect((await send("GET", `${V}/workloads/${workload.id}/proposals`)).json()).toEqual({
      items: [],
      nextCursor: null,
    });
    const removed = await send("DELETE", `${V}/workloads/${workload.id}`);
    expect([removed.statusCode, removed.body]).toEqual([204, ""]);
    problem(await send("GET", `${V}/workloads/${workload.id}`), 404, "not-found");
    problem(await send("DELETE", `${V}/workloads/${workload.id}`), 404, "not-found");
    problem(await send("POST", `${V}/workloads/${workload.id}/run`), 404, "not-found");
  });

  it.each([
    ["no schedule", { cron: "every night" }, 400, "bad-request", "cron"],
    ["seconds in the schedule", { cron: "0 0 3 * * *" }, 400, "bad-request", "cron"],
    ["no time zone", { timeZone: "Mars/Olympus" }, 400, "bad-request", "timeZone"],
    ["a negative threshold", { gainThreshold: -1 }, 400, "bad-request", "gainThreshold"],
    ["a wrong job", { job: { name: "x" } }, 422, "job-invalid", "job.model"],
    [
      "a job that the trainer cannot run",
      { job: { name: "x", sequenceLengthTokens: 4096, globalBatchTokens: 4096, ...WIDE_HEADS_ON_GPUS } },
      422,
      "job-invalid",
      "job.model.heads",
    ],
  ] as const)("with %s are refused", async (_what, over, status, code, field) => {
    const body = problem(
      await send("POST", `${V}/workloads`, {
        body: { name: "w", job: jobFile(api), cron: "0 3 * * *", ...over },
      }),
      status,
      code,
    );
    expect(fields(body)).toContain(field);
  });
});

describe("the door", () => {
  it("asks for a token of the right role on every route", async () => {
    problem(await send("GET", `${V}/jobs`, { role: null }), 401, "unauthorized");
    const wrong = await api.app.inject({ url: `${V}/jobs`, headers: { authorization: "Bearer ievo_wrong" } });
    problem(wrong, 401, "unauthorized");
    expect(wrong.headers["www-authenticate"]).toContain("Bearer");
    problem(
      await api.app.inject({ url: `${V}/jobs`, headers: { authorization: "Basic abc" } }),
      401,
      "unauthorized",
    );
    problem(await send("POST", `${V}/jobs`, { role: "viewer", body: jobFile(api) }), 403, "forbidden");
    problem(await send("GET", `${V}/dead-letters`, { role: "operator" }), 403, "forbidden");
    for (const role of ["viewer", "operator", "admin"] as const)
      expect((await send("GET", `${V}/whoami`, { role })).json()).toEqual({
        name: role,
        role,
        project: null,
        kind: "token",
        places: [],
        csrfToken: null,
      });
    const spec = (await api.app.inject("/docs/json")).json<{
      paths: Record<string, Record<string, unknown>>;
    }>();
    // Who has none yet asks these how to get one.
    const open = new Set(api.app.routeRules.filter(({ scope }) => scope === "open").map(({ url }) => url));
    expect([...open].sort()).toEqual(
      ["", "/begin", "/callback", "/device", "/device/token"].map((path) => `${V}/sign-in${path}`),
    );
    for (const [path, operations] of Object.entries(spec.paths)) {
      for (const method of Object.keys(operations)) {
        if (open.has(path)) continue;
        const reply = await api.app.inject({
          method: method.toUpperCase() as "GET",
          url: path.replace("{id}", "x"),
        });
        expect([method, path, reply.statusCode]).toEqual([method, path, 401]);
      }
    }
  });

  it("answers what is not understood with a problem", async () => {
    problem(await send("GET", `${V}/nothing`), 404, "not-found");
    problem(await send("GET", "/nothing"), 404, "not-found");
    problem(await send("GET", "/%zz"), 400, "bad-request");
    const json = { "content-type": "application/json" };
    problem(await send("POST", `${V}/jobs`, { body: '{"name":', headers: json }), 400, "bad-request");
    problem(await send("POST", `${V}/jobs`, { body: "", headers: json }), 400, "bad-request");
    const reserved = await send("POST", `${V}/jobs`, { body: '{"__proto__":{"a":1}}', headers: json });
    expect(problem(reserved, 400, "bad-request").detail).toContain('a field "__proto__"');
    problem(
      await send("POST", `${V}/jobs`, { body: "a,b", headers: { "content-type": "text/csv" } }),
      415,
      "unsupported-media-type",
    );
    problem(
      await send("POST", `${V}/jobs`, { body: "x".repeat(50_000_000), headers: json }),
      413,
      "payload-too-large",
    );
    expect(fields(problem(await send("GET", `${V}/jobs?cursor=zzz`), 400, "bad-request"))).toEqual([
      "cursor",
    ]);
    expect(fields(problem(await send("GET", `${V}/jobs?limit=0`), 400, "bad-request"))).toEqual(["limit"]);
    expect(fields(problem(await send("GET", `${V}/jobs?page=2`), 400, "bad-request"))).toEqual(["page"]);
    expect(fields(problem(await send("GET", `${V}/jobs?state=lost`), 400, "bad-request"))).toContain("state");
  });

  it("describes itself, its health and its figures without a token", async () => {
    expect((await api.app.inject("/docs/json")).json()).toMatchObject({ openapi: "3.1.0" });
    const page = await api.app.inject("/docs/");
    expect([page.statusCode, page.headers["content-security-policy"]]).toEqual([
      200,
      expect.stringContaining("script-src 'self'"),
    ]);
    expect((await api.app.inject("/healthz")).json()).toEqual({ status: "ok" });
    expect((await api.app.inject("/readyz")).statusCode).toBe(200);
    expect((await api.app.inject("/metrics")).body).toMatch(
      /internevo_http_request_seconds_count\{[^}]*route="\/api\/v1\/jobs"/,
    );
  });

  it("writes every mutation down, refused ones too", async () => {
    const { id, traceId } = shaped(JobDetailSchema, await send("POST", `${V}/jobs`, { body: jobFile(api) }));
    await send("POST", `${V}/jobs/${id}/cancel`);
    await send("POST", `${V}/jobs/${id}/cancel`, { role: "viewer" });
    const written = async (): Promise<unknown[]> =>
      (
        await api.database.db.execute(
          `select actor, action, status, trace_id from audit_log where target = '${id}' order by id`,
        )
      ).rows;
    // A refusal is written once its answer is out.
    await expect.poll(written).toEqual([
      { actor: "operator", action: "POST /api/v1/jobs", status: 201, trace_id: traceId },
      {
        actor: "operator",
        action: "POST /api/v1/jobs/:id/cancel",
        status: 202,
        trace_id: expect.any(String),
      },
      { actor: "viewer", action: "POST /api/v1/jobs/:id/cancel", status: 403, trace_id: expect.any(String) },
    ]);
  });
});
