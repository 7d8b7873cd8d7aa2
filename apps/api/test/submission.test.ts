import { execFileSync } from "node:child_process";
import { truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { JobCheckSchema, SubmittedJobSchema, JobDetailSchema, type Problem } from "@internevo/contracts";
import { measurementCount, requiredMeasurements, shippedProfile } from "@internevo/cost-model";
import { clusterKey, resolveJob, validate, writtenJob, type MeasuredFirst } from "@internevo/domain";
import { programDigest } from "@internevo/profiling";
import { PROBE_VERSION, THREADS_VERSION } from "@internevo/profiles";
import type { Measuring } from "@internevo/stages";
import { storeProfile } from "@internevo/store";
import { exampleQuality } from "@internevo/test-kit/fixtures";
import type { TSchema } from "typebox";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, rowCounts, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const post = (path: string, payload: object) =>
  api.app.inject({
    method: "POST",
    url: `/api/v1${path}`,
    headers: { authorization: api.bearer.operator },
    payload,
  });
type Reply = Awaited<ReturnType<typeof post>>;
const shaped = <S extends TSchema>(schema: S, reply: Reply) =>
  validate(schema, reply.json(), "internal", "the answer");
const fields = (body: Problem): string[] => (body.errors ?? []).map((error) => error.field);

function problemOf(reply: Reply, code: Problem["code"] = "no-feasible-plan"): Problem {
  const body = reply.json<Problem>();
  expect([reply.statusCode, body.code]).toEqual([422, code]);
  return body;
}

it("refuses jobs that no plan fits before anything is measured", async () => {
  const before = await rowCounts(api.database);
  const body = problemOf(
    await post("/jobs", jobFile(api, { cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "80B" } })),
  );
  expect(body.errors).toMatchObject([
    {
      field: "cluster.memoryPerGpu",
      message: expect.stringMatching(/fits in 80 B .* needs at least \d/),
      remedy: expect.stringMatching(
        /\(cluster\.memoryPerGpu\), because what the trainer's program itself takes/,
      ),
    },
  ]);
  const undivided = jobFile(api, {
    sequenceLengthTokens: 64,
    globalBatchTokens: 64,
    cluster: { nodes: 1, gpusPerNode: 7, memoryPerGpu: "1GiB" },
  });
  expect(fields(problemOf(await post("/jobs", undivided)))).toEqual(["cluster.gpusPerNode"]);
  const pinned = jobFile(api, {
    sequenceLengthTokens: 64,
    globalBatchTokens: 1024,
    plan: "b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1",
    cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
  });
  const refused = problemOf(await post("/jobs", pinned));
  expect(refused.detail).toBe("the job's plan does not divide the job");
  expect(refused.errors).toMatchObject([
    {
      field: "plan.microBatches",
      value: 4,
      message: expect.stringContaining("microBatches 4"),
      remedy: "smallest change: microBatches 4 → 8",
    },
  ]);
  expect(await rowCounts(api.database)).toEqual(before);
});

it("asks of a job's plans their memory alone, and not whether anything says how long they take", async () => {
  const cluster = { nodes: 1, gpusPerNode: 2, memoryPerGpu: "3GiB", profile: "estimated:h100" };
  const fits = async (over: Record<string, unknown>): Promise<void> => {
    const reply = await post("/jobs/check", jobFile(api, { cluster, ...over }));
    expect(reply.json<{ detail?: string }>().detail).toBeUndefined();
    expect(reply.statusCode).toBe(200);
  };
  await fits({ timeModel: "published" });
  await fits({ timeModel: "paper" });
  const onHost = (hostMemory: string) => ({ plan: { gateUp: "host" }, cluster: { ...cluster, hostMemory } });
  await fits(onHost("1GiB"));
  const refused = problemOf(await post("/jobs/check", jobFile(api, onHost("1KiB"))));
  expect(refused.errors).toMatchObject([
    {
      field: "cluster.hostMemory",
      value: "1KiB",
      message: expect.stringMatching(/^no plan fits in the memory of its hosts/),
      remedy: expect.stringMatching(/gateUp/),
    },
  ]);
});

it("says before a job runs that its text has no room as tokens", async () => {
  // It takes no room itself.
  const path = join(api.directory, "huge.txt");
  await writeFile(path, "");
  await truncate(path, 10 * 2 ** 40);
  const text = (paths: readonly string[]) => jobFile(api, { data: { format: "text", paths } });
  for (const url of ["/jobs/check", "/jobs"]) {
    const refused = problemOf(await post(url, text([path])), "job-invalid");
    expect(refused).toMatchObject({
      errors: [{ field: "data.paths", value: 20 * 2 ** 40, remedy: expect.stringMatching(/^make room/) }],
    });
    expect(problemOf(await post(url, text([path, path])), "job-invalid").errors).toMatchObject([
      { field: "data.paths.1", value: path, remedy: expect.stringMatching(/^name each file once/) },
    ]);
  }
});

it("checks jobs without storing them, by the same rules, and answers job files that are accepted", async () => {
  const before = await rowCounts(api.database);
  const check = (over: Record<string, unknown> = {}) => post("/jobs/check", jobFile(api, over));
  const checked = shaped(
    JobCheckSchema,
    await check({ cluster: { name: "here", nodes: 1, gpusPerNode: 4, memoryPerGpu: "1GiB" } }),
  );
  expect(checked.warnings).toMatchObject([
    { field: "cluster.gpusPerNode", message: "gives 4 ranks, and this machine has 2 cores" },
  ]);
  expect(checked.job.cluster.memoryPerGpu).toBe("1GiB");
  expect(shaped(JobCheckSchema, await post("/jobs/check", checked.job))).toEqual(checked);
  for (const [over, field] of [
    [{ data: undefined }, "data"],
    [{ data: { format: "text", paths: ["/nowhere.txt"] } }, "data.paths.0"],
  ] as const) {
    const refused = await check(over);
    expect(fields(refused.json<Problem>())).toEqual([field]);
    const { traceId: _a, ...submitted } = (await post("/jobs", jobFile(api, over))).json<Problem>();
    const { traceId: _b, ...asked } = refused.json<Problem>();
    expect(asked).toEqual(submitted);
  }
  expect(await rowCounts(api.database)).toEqual(before);
  const { spec } = shaped(JobDetailSchema, await post("/jobs", checked.job));
  expect(shaped(JobDetailSchema, await post("/jobs", writtenJob(spec))).spec).toEqual(spec);
});

it("warns of a batch that is more than the data, when it is asked and at submission", async () => {
  const job = jobFile(api, { globalBatchTokens: "1M" });
  const warning = {
    field: "globalBatchTokens",
    value: 2 ** 20,
    message: expect.stringMatching(/^is more than the [\d,]+ tokens/) as string,
  };
  const checked = shaped(JobCheckSchema, await post("/jobs/check", job));
  expect(checked.warnings).toMatchObject([warning]);
  const submitted = shaped(SubmittedJobSchema, await post("/jobs", job));
  expect(submitted.warnings).toEqual(checked.warnings);
  expect(shaped(SubmittedJobSchema, await post("/jobs", jobFile(api))).warnings).toBeUndefined();
});

it("refuses data that cannot be trained on, and stores nothing", async () => {
  const header = Buffer.alloc(64);
  header.write("IEVOTOK\0", 0, "latin1");
  header.writeUInt32LE(1, 8);
  header.writeUInt32LE(2, 12);
  header.writeBigUInt64LE(1000n, 16);
  header.writeUInt32LE(256, 24);
  const tokens = Buffer.alloc(2000);
  const files = {
    good: Buffer.concat([header, tokens]),
    truncated: Buffer.concat([header, tokens.subarray(0, 1000)]),
    foreign: Buffer.alloc(4096, 65),
    beyond: Buffer.concat([header, Buffer.from(tokens).fill(0xff, 600, 602)]),
    short: Buffer.from("too short"),
  };
  const path = (name: string): string => join(api.directory, `${name}.tokens`);
  for (const [name, content] of Object.entries(files)) await writeFile(path(name), content);
  const before = await rowCounts(api.database);
  const refusal = async (data: unknown): Promise<string> => {
    const body = problemOf(await post("/jobs", jobFile(api, { data })), "data-invalid");
    expect(body.errors?.length).toBeGreaterThan(0);
    return `${body.errors?.[0]?.field}: ${body.errors?.[0]?.message}`;
  };
  expect(await refusal({ format: "tokens", path: path("truncated") })).toMatch(
    /^data\.path: is truncated: expected 2064 bytes for 1000 tokens, found 1064/,
  );
  expect(await refusal({ format: "tokens", path: path("foreign") })).toMatch(
    /^data\.path: is not a token file/,
  );
  expect(await refusal({ format: "tokens", path: path("beyond") })).toMatch(
    /^data\.path: holds token 65535 at index 300/,
  );
  expect(await refusal({ format: "tokens", path: path("absent") })).toBe("data.path: does not exist");
  expect(await refusal({ format: "text", paths: [api.textPath, path("absent"), api.directory] })).toBe(
    "data.paths.1: does not exist",
  );
  expect(await refusal({ format: "text", paths: [path("short")] })).toBe(
    "data: holds less than one sequence",
  );
  execFileSync("mkfifo", [path("pipe")]);
  for (let at = 0; at < 3; at += 1)
    expect(await refusal({ format: "tokens", path: path("pipe") })).toBe("data.path: is a pipe");
  expect(await refusal({ format: "text", paths: [path("pipe"), "/dev/zero"] })).toBe(
    "data.paths.0: is a pipe",
  );
  expect(await refusal({ format: "tokens", path: path("good"), packing: "documents" })).toMatch(
    /^data\.packing: needs data that knows its documents/,
  );
  await writeFile(path("lines"), "a\n".repeat(2000));
  const lines = {
    format: "text",
    paths: [path("lines")],
    packing: "documents",
    endOfDocumentToken: 10,
    maxDocumentsPerSequence: 3,
  };
  expect(await refusal(lines)).toMatch(
    /^data\.maxDocumentsPerSequence: is less than the \d+ documents of a sequence of the data/,
  );
  const mixture = (second: object) =>
    refusal({
      format: "mixture",
      sources: [
        { format: "tokens", path: path("good"), weight: 1 },
        { ...second, weight: 2 },
      ],
    });
  expect(await mixture({ format: "tokens", path: path("truncated") })).toMatch(
    /^data\.sources\.1\.path: is truncated/,
  );
  expect(await mixture({ format: "text", paths: [path("absent")] })).toBe(
    "data.sources.1.paths.0: does not exist",
  );
  expect(await mixture({ format: "text", paths: [path("short")] })).toBe(
    "data.sources.1: holds less than one sequence",
  );
  const several = problemOf(
    await post(
      "/jobs",
      jobFile(api, {
        data: {
          format: "mixture",
          sources: ["absent", "good", "truncated"].map((name) => ({
            format: "tokens",
            path: path(name),
            weight: 1,
          })),
        },
      }),
    ),
    "data-invalid",
  );
  expect(several.errors?.map(({ field }) => field)).toEqual(["data.sources.0.path", "data.sources.2.path"]);
  expect(await refusal({ format: "megatron", path: path("good") })).toBe("data.path: does not exist");
  await writeFile(path("good").replace(".tokens", ".idx"), Buffer.alloc(40, 65));
  expect(await refusal({ format: "megatron", path: path("good").replace(".tokens", "") })).toMatch(
    /^data\.path: is no index of Megatron-LM/,
  );
  await writeFile(`${path("good")}.meta`, Buffer.alloc(40, 65));
  expect(await refusal({ format: "internevo", path: path("good") })).toBe(
    "data.path: is no NumPy array file",
  );
  const weights = problemOf(
    await post("/jobs", jobFile(api, { initialWeights: path("absent") })),
    "data-invalid",
  );
  expect(weights.errors).toMatchObject([{ field: "initialWeights", message: "does not exist" }]);
  expect(
    problemOf(await post("/jobs", jobFile(api, { initialWeights: "weights" })), "job-invalid").errors,
  ).toMatchObject([{ field: "initialWeights" }]);
  expect(await rowCounts(api.database)).toEqual(before);
  expect(
    (await post("/jobs", jobFile(api, { data: { format: "tokens", path: path("good") } }))).statusCode,
  ).toBe(201);
});

it("counts what is measured first away from the server", async () => {
  const measuring = {
    probe: { name: "internevo-probe", path: join(api.directory, "probe") },
    threadsPerRank: 1,
  };
  await writeFile(measuring.probe.path, "a probe");
  const own = await startTestApi({ measuring: measuring as Measuring });
  // Legal, and with twenty thousand divisors: its plans have very many sizes.
  const payload = jobFile(own, {
    model: { hiddenSize: 64, layers: 2, heads: 8, kvHeads: 8, vocabularySize: 256 },
    sequenceLengthTokens: 16,
    globalBatchTokens: 16 * 65_214_507_758_400,
    until: "profiling",
    cluster: { name: "here", nodes: 1, gpusPerNode: 8, memoryPerGpu: "1GB" },
  });
  const spec = resolveJob(payload);
  /** Of this thread, the least of three: what else the process does counts too. */
  const microseconds = async (work: () => unknown): Promise<number> => {
    const all: number[] = [];
    for (let at = 0; at < 3; at += 1) {
      const begin = process.threadCpuUsage();
      await work();
      const { user, system } = process.threadCpuUsage(begin);
      all.push(user + system);
    }
    return Math.min(...all);
  };
  try {
    const check = async () => {
      const reply = await own.app.inject({
        method: "POST",
        url: "/api/v1/jobs/check",
        headers: { authorization: own.bearer.operator },
        payload,
      });
      expect(reply.json()).toMatchObject({
        measuredFirst: { missing: measurementsOf, noisy: 0, seconds: null, profile: null },
      });
    };
    const measurementsOf = measurementCount(requiredMeasurements(spec));
    const counting = await microseconds(() => requiredMeasurements(spec));
    expect(await microseconds(check)).toBeLessThan(counting / 2);
  } finally {
    await own.close();
  }
}, 60_000);

it("says, before and at submission, what is measured before the job is planned", async () => {
  const measuring = {
    probe: { name: "internevo-probe", path: join(api.directory, "probe") },
    threadsPerRank: 1,
  };
  await writeFile(measuring.probe.path, "a probe");
  const own = await startTestApi({ measuring: measuring as Measuring });
  try {
    const ask = (path: string, over: Record<string, unknown> = {}) =>
      own.app.inject({
        method: "POST",
        url: `/api/v1${path}`,
        headers: { authorization: own.bearer.operator },
        payload: jobFile(own, {
          cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
          ...over,
        }),
      });
    const before = async (reply: Promise<Reply>) =>
      (await reply).json<{ measuredFirst?: MeasuredFirst }>().measuredFirst;
    const spec = resolveJob(
      jobFile(own, { cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" } }),
    );
    const whole = measurementCount(requiredMeasurements(spec));
    expect(await before(ask("/jobs/check"))).toEqual({
      missing: whole,
      noisy: 0,
      seconds: null,
      profile: null,
    });

    const shipped = shippedProfile("a800-128");
    const quality = exampleQuality({ secondsPerPoint: 0.5 });
    const versions = {
      ...shipped.provenance.versions,
      [PROBE_VERSION]: await programDigest(measuring.probe),
      [THREADS_VERSION]: "1",
    };
    const profile = {
      ...shipped,
      name: "measured here",
      device: { ...shipped.device, runtimeBytes: 2 ** 20 },
      quality,
      provenance: { ...shipped.provenance, versions },
    };
    await own.database.db.transaction((tx) =>
      storeProfile(tx, { clusterKey: clusterKey(spec.cluster), profile, freshForSeconds: 3600 }),
    );
    const { missing, ...rest } = (await before(ask("/jobs/check"))) ?? { missing: 0 };
    expect(missing, "the fresh profile has none of this job's shapes").toBeGreaterThan(0);
    expect(rest).toEqual({ noisy: 0, seconds: missing / 2, profile: "measured here" });
    expect(await before(ask("/jobs"))).toEqual({ missing, ...rest });
    expect(await before(ask("/jobs/check", { measureAgain: true }))).toEqual({
      missing: whole,
      noisy: 0,
      seconds: whole / 2,
      profile: null,
    });
    expect(
      await before(
        ask("/jobs/check", {
          cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "4GiB", profile: "a800-128" },
        }),
      ),
      "what a job names is used as it is",
    ).toEqual({ missing: 0, noisy: 0, seconds: null, profile: "a800-128" });
  } finally {
    await own.close();
  }
});

it("names as enough memory only what is enough, with the program itself where a profile says it", async () => {
  const measuring = {
    probe: { name: "internevo-probe", path: join(api.directory, "another probe") },
    threadsPerRank: 2,
  };
  await writeFile(measuring.probe.path, "a probe");
  const own = await startTestApi({ measuring: measuring as Measuring });
  try {
    const remedyOf = async (cluster: object): Promise<string> => {
      const reply = await own.app.inject({
        method: "POST",
        url: "/api/v1/jobs",
        headers: { authorization: own.bearer.operator },
        payload: jobFile(own, { cluster: { name: "lean", nodes: 1, gpusPerNode: 2, ...cluster } }),
      });
      return reply.statusCode === 201 ? "" : (problemOf(reply).errors?.[0]?.remedy ?? "");
    };
    const named = { profile: "a800-128" };
    const enough = /memoryPerGpu: (\d+)\)/;
    const ofNamed = Number(enough.exec(await remedyOf({ memoryPerGpu: "1MB", ...named }))?.[1]);
    const runtime = shippedProfile("a800-128").device.runtimeBytes;
    expect(ofNamed).toBeGreaterThan(runtime);
    expect(await remedyOf({ memoryPerGpu: `${ofNamed}B`, ...named })).toBe("");
    expect(await remedyOf({ memoryPerGpu: `${ofNamed - 1}B`, ...named })).toMatch(enough);
    expect(await remedyOf({ memoryPerGpu: "1MB" }), "nothing is known").not.toMatch(enough);

    const spec = resolveJob(
      jobFile(own, { cluster: { name: "lean", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" } }),
    );
    const shipped = shippedProfile("a800-128");
    const versions = {
      [PROBE_VERSION]: await programDigest(measuring.probe),
      [THREADS_VERSION]: String(measuring.threadsPerRank),
    };
    const profile = { ...shipped, name: "lean", provenance: { ...shipped.provenance, versions } };
    await own.database.db.transaction((tx) =>
      storeProfile(tx, { clusterKey: clusterKey(spec.cluster), profile, freshForSeconds: 3600 }),
    );
    const fresh = await remedyOf({ memoryPerGpu: `${ofNamed - 1}B` });
    expect(fresh, "the fresh profile's is counted, and measured again").toMatch(/measured again/);
    expect(fresh).not.toMatch(enough);
  } finally {
    await own.close();
  }
});

it("checks held-out data as it checks data, and names it by its own field", async () => {
  const text = join(api.directory, "held-out.txt");
  await writeFile(text, "x".repeat(3000));
  const check = (validation: object) =>
    post(
      "/jobs/check",
      jobFile(api, { sequenceLengthTokens: 64, globalBatchTokens: 512, steps: 25, validation }),
    );
  const checked = shaped(
    JobCheckSchema,
    await check({ data: { format: "text", paths: [text] }, batches: 5 }),
  );
  expect(checked.job.validation).toEqual({
    data: { format: "text", paths: [text] },
    everySteps: 3,
    batches: 5,
  });
  const few = problemOf(await check({ data: { format: "text", paths: [text] }, batches: 6 }), "data-invalid");
  expect(few.errors).toEqual([
    {
      field: "validation.batches",
      value: 6,
      message: "is more than the 5 batches of 512 tokens that the held-out data holds",
      remedy: "use 5 or less, or give more held-out data",
    },
  ]);
  const absent = problemOf(
    await check({ data: { format: "tokens", path: join(api.directory, "none.tokens") } }),
    "data-invalid",
  );
  expect(fields(absent)).toEqual(["validation.data.path"]);
  const relative = problemOf(await check({ data: { format: "text", paths: ["here.txt"] } }), "job-invalid");
  expect(fields(relative)).toEqual(["validation.data.paths.0"]);
});
