import {
  cheapestCluster,
  estimatesOf,
  explain,
  largestSequence,
  paretoFront,
  sweep,
  sweptJobs,
  whyNot,
} from "@internevo/advisor";
import {
  CheapestClusterSchema,
  ExplanationSchema,
  ExportedConfigurationSchema,
  FRAMEWORK_NAMES,
  ImportAnswerSchema,
  LargestSequenceSchema,
  ParetoSchema,
  PlanMemorySchema,
  ProblemSchema,
  SweepSchema,
  SWEPT_AXES,
  WhyNotSchema,
  type Problem,
} from "@internevo/contracts";
import { shippedProfile } from "@internevo/cost-model";
import { parsePlanLabel, planLabel, PlanningResultSchema, resolveJob, validate } from "@internevo/domain";
import { SWEEP_AXES } from "@internevo/advisor";
import { FRAMEWORKS } from "@internevo/frameworks";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import {
  createTrials,
  finishTrial,
  startTrial,
  storePlanning,
  storeProfile,
  submitJob,
  transitionJob,
  updateJob,
} from "@internevo/store";
import { exampleMeasurement } from "@internevo/test-kit/fixtures";
import { strFromU8, unzipSync } from "fflate";
import type { TSchema } from "typebox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EXAMPLE_JOB, EXAMPLES } from "../src/routes/advice-examples.ts";
import { jobFile, rowCounts, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const send = (path: string, body: unknown, headers: Record<string, string> = {}) =>
  api.app.inject({
    method: "POST",
    url: `/api/v1${path}`,
    headers: { authorization: api.bearer.viewer, ...headers },
    payload: body as object,
  });
type Reply = Awaited<ReturnType<typeof send>>;
const shaped = <S extends TSchema>(schema: S, reply: Reply) => {
  expect([reply.statusCode, reply.statusCode === 200 ? "" : reply.body]).toEqual([200, ""]);
  return validate(schema, reply.json(), "internal", "the answer");
};
function problem(reply: Reply, status: number, code: Problem["code"]): string[] {
  const body = validate(ProblemSchema, reply.json(), "internal", "the problem");
  expect([reply.statusCode, body.code]).toEqual([status, code]);
  for (const error of body.errors ?? []) expect(error.remedy).not.toBe("");
  return (body.errors ?? []).map(({ field }) => field);
}
/** As it travels: without what is undefined. */
const json = (value: unknown) => JSON.parse(JSON.stringify(value)) as object;

const spec = resolveJob(EXAMPLE_JOB);
const profile = shippedProfile("a800-128");
const subject = { job: EXAMPLE_JOB, profile: "a800-128" };
const whole = "b1 n8 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1";

describe("the examples of the documentation", () => {
  it("are in it, and are answered as it says", async () => {
    const { paths } = (await api.app.inject("/docs/json")).json<{
      paths: Record<
        string,
        { post?: { requestBody?: { content: { "application/json": { example?: unknown } } } } }
      >;
    }>();
    const cases = [
      ["/plans", PlanningResultSchema, EXAMPLES.plans],
      ["/plans/why-not", WhyNotSchema, EXAMPLES.whyNot],
      ["/plans/explain", ExplanationSchema, EXAMPLES.explain],
      ["/plans/memory", PlanMemorySchema, EXAMPLES.memory],
      ["/plans/export", ExportedConfigurationSchema, EXAMPLES.export],
      ["/plans/import", ImportAnswerSchema, EXAMPLES.import],
      ["/what-if/sweep", SweepSchema, EXAMPLES.sweep],
      ["/what-if/largest-sequence", LargestSequenceSchema, EXAMPLES.largestSequence],
      ["/what-if/pareto", ParetoSchema, EXAMPLES.pareto],
      ["/what-if/cheapest-cluster", CheapestClusterSchema, EXAMPLES.cheapestCluster],
    ] as const;
    const before = await rowCounts(api.database);
    for (const [path, schema, example] of cases) {
      expect(paths[`/api/v1${path}`]?.post?.requestBody?.content["application/json"].example).toEqual(
        json(example),
      );
      shaped(schema, await send(path, example));
    }
    expect(await rowCounts(api.database)).toEqual(before);
  });

  it("name the axes and frameworks that there are", () => {
    expect(SWEPT_AXES).toEqual(SWEEP_AXES);
    expect(FRAMEWORK_NAMES).toEqual(FRAMEWORKS);
  });
});

describe("plans", () => {
  const asked = async (show?: "families" | "plans") =>
    (await send("/plans", { ...subject, top: 12, show })).json();

  it("are the best of each family, and where asked the best whatever their family", async () => {
    const families = await asked();
    expect(families).toEqual(await asked("families"));
    expect(families).not.toHaveProperty("plans");
    const both = await asked("plans");
    const own = json(planJob(spec, profile, { top: 12, plans: 12 })) as typeof both;
    expect([both.candidates, both.plans]).toEqual([own.candidates, own.plans]);
    expect(both.candidates).toEqual(families.candidates);
    expect(both.plans).toHaveLength(12);
    expect(both.plans).not.toEqual(both.candidates);
  });

  it("are of these two kinds", async () => {
    const reply = await send("/plans", { ...subject, show: "all" });
    expect(problem(reply, 400, "bad-request")).toEqual(["show"]);
  });
});

describe("questions about plans", () => {
  it("are answered as the library answers them", async () => {
    const plan = parsePlanLabel(whole);
    const [best, second] = planJob(spec, profile, { top: 2 }).candidates;
    expect((await send("/plans/why-not", { ...subject, plan: whole })).json()).toEqual(
      json(whyNot(spec, profile, plan)),
    );
    expect((await send("/plans/why-not", { ...subject, plan: second!.plan })).json()).toMatchObject({
      binding: null,
      standing: { best: { plan: best!.plan } },
    });
    expect((await send("/plans/explain", { ...subject, a: 1, b: planLabel(second!.plan) })).json()).toEqual(
      json(explain(spec, profile, planOfJob(best!.plan, spec), planOfJob(second!.plan, spec))),
    );
    const memory = shaped(PlanMemorySchema, await send("/plans/memory", { ...subject, plan: 1 }));
    expect(memory.stages).toHaveLength(best!.plan.pipelineParallel);
    expect(memory.stages[memory.fullestStage]).toMatchObject({
      bytes: best!.predicted.peakMemoryBytes,
      lines: best!.predicted.memory,
    });
  });

  it("of a part of a plan are answered for the best with it", async () => {
    const part = (await send("/plans/why-not", { ...subject, plan: "tp8 pp2" })).json<
      ReturnType<typeof whyNot>
    >();
    expect(part).toMatchObject({
      bestOf: "pp2 tp8",
      binding: null,
      plan: { tensorParallel: 8, pipelineParallel: 2 },
    });
    expect(part.plan).toEqual(
      planJob({ ...spec, plan: { tensorParallel: 8, pipelineParallel: 2 } }, profile, { top: 1 })
        .candidates[0]?.plan,
    );
  });

  it("of a submitted job take its profile", async () => {
    const submitted = await api.app.inject({
      method: "POST",
      url: "/api/v1/jobs",
      headers: { authorization: api.bearer.operator },
      payload: jobFile(api, { cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "16GiB" } }),
    });
    const { id, spec: own } = submitted.json<{ id: string; spec: typeof spec }>();
    expect(problem(await send("/plans/why-not", { jobId: id, plan: 1 }), 422, "profile-missing")).toEqual([
      "job.cluster.profile",
    ]);
    const profileId = await storeProfile(api.database.db, {
      clusterKey: "another",
      profile: { ...profile, name: "measured for it" },
      freshForSeconds: 60,
    });
    await api.database.transaction(async (tx) => {
      await updateJob(tx, id, { profileId });
      await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    });
    const [best] = planJob(own, profile, { top: 1 }).candidates;
    expect(shaped(ExplanationSchema, await send("/plans/explain", { jobId: id, a: 1, b: 1 })).a.plan).toEqual(
      best!.plan,
    );
  });

  it("of a submitted job take a rank from its own tables, unless another search is asked for", async () => {
    const { candidates, ...rest } = planJob(spec, profile, { top: 4 });
    const shuffled = [1, 3, 2].map((of, at) => ({ ...candidates[of - 1]!, rank: at + 1 }));
    const id = await api.database.transaction(async (tx) => {
      const job = await submitJob(tx, { ...spec, project: "default" });
      const stored = { ...rest, candidates: shuffled, runnableCandidates: [] };
      const planningId = await storePlanning(tx, stored, { jobId: job });
      const profileId = await storeProfile(tx, { clusterKey: "ranked", profile, freshForSeconds: 60 });
      await updateJob(tx, job, { planningId, profileId });
      return job;
    });
    const plansOf = async (more: object) => {
      const found = await send("/plans/explain", { jobId: id, a: 2, b: 4, ...more });
      const { a, b } = shaped(ExplanationSchema, found);
      return [a.plan, b.plan];
    };
    expect(await plansOf({})).toEqual([candidates[2]?.plan, candidates[3]?.plan]);
    expect(await plansOf({ profile: "a800-128" })).toEqual([candidates[1]?.plan, candidates[3]?.plan]);
    const memory = shaped(PlanMemorySchema, await send("/plans/memory", { jobId: id, plan: 2 }));
    expect(memory.plan).toEqual(candidates[2]?.plan);
  });

  it("of a submitted job are decided by what its trials measured of both plans", async () => {
    const submitted = await api.app.inject({
      method: "POST",
      url: "/api/v1/jobs",
      headers: { authorization: api.bearer.operator },
      payload: jobFile(api, { cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "16GiB" } }),
    });
    const { id, spec: own } = submitted.json<{ id: string; spec: typeof spec }>();
    const profileId = await storeProfile(api.database.db, {
      clusterKey: "third",
      profile: { ...profile, name: "measured for trials" },
      freshForSeconds: 60,
    });
    await api.database.transaction(async (tx) => {
      await updateJob(tx, id, { profileId });
      await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
    });
    const { candidates } = planJob(own, profile, { top: 3 });
    const trials = await api.database.transaction((tx) => createTrials(tx, id, candidates));
    const end = (at: number, stepTimeSeconds: number, runStepTimeSeconds: number[]) =>
      api.database.transaction(async (tx) => {
        await startTrial(tx, trials[at]!.id);
        await finishTrial(tx, trials[at]!.id, {
          measured: { ...exampleMeasurement(), stepTimeSeconds, runStepTimeSeconds },
        });
      });
    const ask = async (a: number, b: number) =>
      shaped(ExplanationSchema, await send("/plans/explain", { jobId: id, a, b }));
    // The best prediction was the slower one. Until both were measured, nothing was.
    await end(0, 5, [4.9, 5.1]);
    expect((await ask(1, 2)).measured).toBeNull();
    await end(1, 2, [1.9, 2.1]);
    const found = await ask(1, 2);
    expect(found.measured).toEqual({
      a: { stepTimeSeconds: 5, runStepTimeSeconds: [4.9, 5.1] },
      b: { stepTimeSeconds: 2, runStepTimeSeconds: [1.9, 2.1] },
    });
    const predicted = planOfJob(candidates[0]!.plan, own);
    const other = planOfJob(candidates[1]!.plan, own);
    expect(found.summary).toEqual(explain(own, profile, predicted, other, found.measured).summary);
    expect(found.summary).not.toEqual(explain(own, profile, predicted, other).summary);
    expect((await ask(2, 1)).measured).toEqual({ a: found.measured?.b, b: found.measured?.a });
    expect((await ask(1, 3)).measured).toBeNull();
    // So does the answer to why a plan is not chosen.
    const whyNot = async (plan: unknown) =>
      shaped(WhyNotSchema, await send("/plans/why-not", { jobId: id, plan }));
    expect(await whyNot(2)).toMatchObject({
      standing: { rank: 2 },
      measured: { stepTimeSeconds: 2, place: 1, of: 2, verdict: "fastest", disturbed: false },
    });
    expect((await whyNot(1)).measured).toMatchObject({
      place: 2,
      behind: 1.5,
      fastest: { rank: 2, plan: candidates[1]!.plan },
    });
    expect((await whyNot(3)).measured).toBeNull();
  });

  it("name what is wrong with them", async () => {
    expect(
      problem(await send("/plans/why-not", { profile: "a800-128", plan: 1 }), 400, "bad-request"),
    ).toEqual(["job"]);
    expect(
      problem(await send("/plans/why-not", { ...subject, jobId: "x", plan: 1 }), 400, "bad-request"),
    ).toEqual(["job"]);
    expect(problem(await send("/plans/why-not", { jobId: "x", plan: 1 }), 404, "not-found")).toEqual([
      "jobId",
    ]);
    expect(problem(await send("/plans/why-not", subject), 400, "bad-request")).toEqual(["plan"]);
    expect(problem(await send("/plans/memory", { ...subject, plan: "b1 n8" }), 422, "plan-invalid")).toEqual([
      "plan",
    ]);
    expect(
      problem(await send("/plans/why-not", { ...subject, plan: "TP=8,PP=1" }), 422, "plan-invalid"),
    ).toEqual(["plan"]);
    expect(
      problem(await send("/plans/why-not", { ...subject, plan: "tp3 pp2" }), 422, "plan-invalid"),
    ).toEqual(["plan"]);
    expect(problem(await send("/plans/why-not", { ...subject, plan: "7b" }), 422, "plan-invalid")).toEqual([
      "plan",
    ]);
    expect(
      problem(
        await send("/plans/why-not", { ...subject, plan: { ...parsePlanLabel(whole), microBatchSize: 0 } }),
        400,
        "bad-request",
      ),
    ).toEqual(["plan.microBatchSize"]);
    expect(problem(await send("/plans/explain", { ...subject, a: 1, b: "b1" }), 422, "plan-invalid")).toEqual(
      ["b"],
    );
    expect(
      problem(
        await send("/plans/explain", { ...subject, a: 1, b: "b3 n8 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1" }),
        422,
        "plan-invalid",
      ),
    ).toEqual(["b"]);
    expect(
      problem(
        await send("/plans/memory", { ...subject, plan: "b3 n8 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1" }),
        422,
        "plan-invalid",
      ),
    ).toEqual(["plan"]);
    expect(
      problem(
        await send("/plans/explain", {
          ...subject,
          job: { ...EXAMPLE_JOB, cluster: { ...EXAMPLE_JOB.cluster, memoryPerGpu: "1GB" } },
          a: 1,
          b: 2,
        }),
        422,
        "plan-invalid",
      ),
    ).toEqual(["a"]);
    expect(
      problem(
        await send("/plans/memory", {
          ...subject,
          job: { ...EXAMPLE_JOB, globalBatchTokens: 5000 },
          plan: 1,
        }),
        422,
        "job-invalid",
      ),
    ).toEqual(["job.globalBatchTokens"]);
  });

  it("need a token", async () => {
    for (const path of ["/plans/why-not", "/plans/export", "/what-if/sweep"])
      problem(
        await api.app.inject({ method: "POST", url: `/api/v1${path}`, payload: {} }),
        401,
        "unauthorized",
      );
  });
});

describe("what if", () => {
  it("is answered as the library answers it, whoever does the turns", async () => {
    const values = [4096, 8192, 12_288, 1 << 20];
    expect((await send("/what-if/sweep", { ...subject, axis: "sequence", values })).json()).toMatchObject({
      axis: "sequence",
      rows: json(sweep(spec, profile, "sequence", values)),
    });
    expect(
      (await send("/what-if/largest-sequence", { ...subject, unitTokens: 1 << 18 })).json(),
    ).toMatchObject(json(largestSequence(spec, profile, { unitTokens: 1 << 18 })));
    const front = json(await paretoFront(spec, profile, { points: 9 }));
    expect((await send("/what-if/pareto", { ...subject, points: 9 })).json()).toMatchObject({
      front,
      isWhole: false,
    });
    const deadline = { tokens: 1e12, seconds: 30 * 86_400, pricePerGpuHour: 2 };
    expect((await send("/what-if/cheapest-cluster", { ...subject, ...deadline })).json()).toMatchObject(
      json(cheapestCluster(spec, profile, deadline)),
    );
  });

  it("varies how fast GPUs compute, as the library does", async () => {
    const values = [0.5, 1, 2];
    const { rows } = (await send("/what-if/sweep", { ...subject, axis: "compute-speed", values })).json();
    expect(rows).toEqual(json(sweep(spec, profile, "compute-speed", values)));
    const seconds = (rows as { best: { predicted: { stepTimeSeconds: number } } }[]).map(
      ({ best }) => best.predicted.stepTimeSeconds,
    );
    expect(seconds).toEqual([...seconds].sort((one, other) => other - one));
    expect(new Set(seconds).size).toBe(values.length);
  });

  it("says which figures are estimates, as the library says it, and so do plans", async () => {
    const remedy = { measuredBy: "internevo profile measure JOB.yaml", planWith: spec.cluster.name };
    const own = json(estimatesOf(spec, [spec], profile, remedy));
    expect(own).toMatchObject({ profile: profile.name });
    const values = [8, 16, 1 << 15];
    const rows = sweep(spec, profile, "nodes", values);
    const asked = { "/plans": { top: 1 }, "/what-if/pareto": { points: 1 } };
    for (const [path, question] of Object.entries(asked))
      expect((await send(path, { ...subject, ...question })).json().estimates, path).toEqual(own);
    expect((await send("/what-if/sweep", { ...subject, axis: "nodes", values })).json().estimates).toEqual(
      json(estimatesOf(spec, sweptJobs(spec, "nodes", rows), profile, remedy)),
    );
  });

  it("says where the front ends", async () => {
    const tight = {
      ...EXAMPLE_JOB,
      model: "llama-65b",
      cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "1GB" },
    };
    expect((await send("/what-if/pareto", { job: tight, profile: "a800-128" })).json()).toEqual({
      front: [],
      isWhole: true,
    });
  });

  it("keeps neither plans nor another sweep waiting", async () => {
    const ends: string[] = [];
    const noting = (name: string, reply: Promise<Reply>): Promise<unknown> =>
      reply.then(({ statusCode }) => ends.push(`${name} ${statusCode}`));
    const values = Array.from({ length: 60 }, (_, index) => (index + 20) * 2 ** 30);
    const long = noting("long", send("/what-if/sweep", { ...subject, axis: "memory", values }));
    await Promise.all([
      long,
      noting("short", send("/what-if/sweep", { ...subject, axis: "nodes", values: [16] })),
      noting("plan", send("/plans", { ...subject, top: 1 })),
      noting("explain", send("/plans/explain", { ...subject, a: 1, b: whole })),
    ]);
    expect(ends.at(-1)).toBe("long 200");
    expect(ends.toSorted()).toEqual(["explain 200", "long 200", "plan 200", "short 200"]);
  });

  it("has bounds", async () => {
    expect(
      problem(await send("/what-if/sweep", { ...subject, axis: "sequence", values: [] }), 400, "bad-request"),
    ).toEqual(["values"]);
    expect(
      problem(
        await send("/what-if/sweep", { ...subject, axis: "sequence", values: Array(65).fill(4096) }),
        400,
        "bad-request",
      ),
    ).toEqual(["values"]);
    expect(
      problem(await send("/what-if/sweep", { ...subject, axis: "length", values: [1] }), 400, "bad-request"),
    ).toEqual(["axis"]);
    expect(
      problem(await send("/what-if/sweep", { ...subject, axis: "nodes", values: [1.5] }), 422, "job-invalid"),
    ).toEqual(["cluster.nodes"]);
    expect(problem(await send("/what-if/pareto", { ...subject, points: 201 }), 400, "bad-request")).toEqual([
      "points",
    ]);
    expect(
      problem(
        await send("/what-if/cheapest-cluster", { ...subject, tokens: 0, seconds: 1 }),
        400,
        "bad-request",
      ),
    ).toEqual(["tokens"]);
  });
});

describe("configurations of other frameworks", () => {
  it("are exported, also as an archive, and imported again", async () => {
    for (const framework of FRAMEWORK_NAMES) {
      const exported = shaped(
        ExportedConfigurationSchema,
        await send("/plans/export", { ...subject, plan: 1, framework }),
      );
      expect(exported.predicted.fits).toBe(exported.predicted.peakMemoryBytes <= 80e9);
      const archive = await send(
        "/plans/export",
        { ...subject, plan: 1, framework },
        { accept: "application/zip" },
      );
      expect([archive.headers["content-type"], archive.headers["content-disposition"]]).toEqual([
        "application/zip",
        `attachment; filename="seven-${framework}.zip"`,
      ]);
      const files = Object.entries(unzipSync(new Uint8Array(archive.rawPayload))).map(([name, bytes]) => ({
        name,
        text: strFromU8(bytes),
      }));
      expect(files).toEqual(exported.files);
      const back = shaped(
        ImportAnswerSchema,
        await send("/plans/import", { framework, files, nodes: 16, gpusPerNode: 8, profile: "a800-128" }),
      );
      expect(planLabel(back.imported.plan)).toBe(planLabel(exported.plan));
      expect(back.planning.located).toBeDefined();
    }
  });

  it("say what a framework cannot say where no plan is named", async () => {
    const model = {
      hiddenSize: 4096,
      layers: 32,
      heads: 32,
      ffnHiddenSize: 11008,
      vocabularySize: 32000,
      queryKeyValueBias: true,
    };
    const biased = { ...subject, job: { ...EXAMPLE_JOB, model } };
    for (const framework of ["internevo", "deepspeed", "torchtitan"])
      expect(problem(await send("/plans/export", { ...biased, framework }), 422, "plan-invalid")).toEqual([
        "model.queryKeyValueBias",
      ]);
    const fixed = { ...subject, job: { ...EXAMPLE_JOB, plan: { gateUp: "again" } } };
    for (const framework of FRAMEWORK_NAMES)
      expect(problem(await send("/plans/export", { ...fixed, framework }), 422, "plan-invalid")).toEqual([
        "plan.gateUp",
      ]);
  });

  it("that cannot be read say what is wrong", async () => {
    expect(
      problem(
        await send("/plans/import", { framework: "megatron", files: [], profile: "a800-128" }),
        400,
        "bad-request",
      ),
    ).toEqual(["files"]);
    expect(
      problem(
        await send("/plans/import", {
          framework: "nemo",
          files: [{ name: "a", text: "" }],
          profile: "a800-128",
        }),
        400,
        "bad-request",
      ),
    ).toEqual(["framework"]);
    const unknown = await send("/plans/import", {
      ...EXAMPLES.import,
      files: [{ name: "train.sh", text: `${EXAMPLES.import.files[0].text.trim()} --hiden-size 3\n` }],
    });
    expect(problem(unknown, 400, "bad-request")).toContain("--hiden-size");
    expect(
      problem(
        await send("/plans/import", { ...EXAMPLES.import, profile: "/etc/passwd" }),
        422,
        "profile-missing",
      ),
    ).toEqual(["profile"]);
    expect(
      problem(await send("/plans/import", { ...EXAMPLES.import, memoryPerGpu: "much" }), 422, "job-invalid"),
    ).toEqual(["cluster.memoryPerGpu"]);
    expect(
      problem(
        await send("/plans/import", { ...EXAMPLES.import, gpusPerNode: undefined }),
        400,
        "bad-request",
      ),
    ).toEqual(["gpusPerNode"]);
    expect(
      problem(
        await send("/plans/export", { ...subject, plan: whole, framework: "nemo" }),
        400,
        "bad-request",
      ),
    ).toEqual(["framework"]);
  });
});

describe("headroom", () => {
  const job = (memoryPerGpuBytes: number) => ({
    ...EXAMPLE_JOB,
    cluster: { ...EXAMPLE_JOB.cluster, memoryPerGpu: `${memoryPerGpuBytes}B` },
  });
  const [whole, left] = [80e9, 60e9];

  it("is asked of every search as the same job on GPUs with so much less memory", async () => {
    const asks: Readonly<Record<string, object>> = {
      "/plans": { top: 3 },
      "/plans/why-not": { plan: 1 },
      "/plans/memory": { plan: 1 },
      "/what-if/sweep": { axis: "sequence", values: [4096, 8192] },
      "/what-if/largest-sequence": { unitTokens: 65_536 },
      "/what-if/pareto": { points: 2 },
      "/what-if/cheapest-cluster": { tokens: 1e12, seconds: 2_592_000, nodes: [16] },
    };
    for (const [path, question] of Object.entries(asks)) {
      const asked = { profile: "a800-128", ...question };
      const kept = await send(path, { ...asked, job: job(whole), headroom: "25%" });
      const less = await send(path, { ...asked, job: job(left) });
      expect([path, kept.statusCode, kept.json()]).toEqual([path, 200, less.json()]);
      expect([path, (await send(path, { ...asked, job: job(whole), headroom: "20GB" })).json()]).toEqual([
        path,
        less.json(),
      ]);
    }
    expect(
      (await send("/plans", { job: job(whole), profile: "a800-128", headroom: "25%" })).json(),
    ).toMatchObject({ memoryLimitBytes: left });
  });

  it("is refused where it says nothing, leaves nothing, or is what is varied", async () => {
    const asked = { job: EXAMPLE_JOB, profile: "a800-128" };
    for (const headroom of ["5", "100%", "-5%", "much", "80GB", "1TB"])
      for (const [path, question] of [
        ["/plans", {}],
        ["/what-if/largest-sequence", {}],
        ["/what-if/sweep", { axis: "nodes", values: [1] }],
      ] as const)
        expect([
          headroom,
          path,
          problem(await send(path, { ...asked, ...question, headroom }), 400, "bad-request"),
        ]).toEqual([headroom, path, ["headroom"]]);
    const memory = { ...asked, axis: "memory", values: [80e9], headroom: "5%" };
    expect(problem(await send("/what-if/sweep", memory), 400, "bad-request")).toEqual(["headroom"]);
  });
});
