import { ProblemSchema } from "@internevo/contracts";
import { parsePlanLabel, planLabel, resolveJob, validate, type Plan } from "@internevo/domain";
import { planFault } from "@internevo/plan";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EXAMPLE_JOB } from "../src/routes/advice-examples.ts";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const subject = { job: EXAMPLE_JOB, profile: "a800-128" };
const job = resolveJob(EXAMPLE_JOB);
const GOOD = "b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16";

/**
 * Of each route the fields by which a request gives a plan, and what else it needs. Why-not alone is for
 * plans that do not divide.
 */
const TAKES_A_PLAN: Readonly<
  Record<
    string,
    {
      readonly fields: readonly string[];
      readonly rest: Readonly<Record<string, unknown>>;
      readonly refuses: boolean;
    }
  >
> = {
  "POST /api/v1/plans/why-not": { fields: ["plan"], rest: {}, refuses: false },
  "POST /api/v1/plans/explain": { fields: ["a", "b"], rest: {}, refuses: true },
  "POST /api/v1/plans/memory": { fields: ["plan"], rest: {}, refuses: true },
  "POST /api/v1/plans/export": { fields: ["plan"], rest: { framework: "megatron" }, refuses: true },
};
/**
 * These are asked elsewhere, or look as if they took one: a job's `plan` narrows a search, a profile's slices are not
 * yet held against any job, and a plan change needs a job that trains (plan-changes.test.ts).
 */
const TAKES_NONE: Readonly<Record<string, readonly string[]>> = {
  "POST /api/v1/jobs": ["plan"],
  "POST /api/v1/jobs/check": ["plan"],
  "POST /api/v1/jobs/{id}/plan-changes": ["plan"],
  "POST /api/v1/profiles": ["slices"],
};
const REFUSING = Object.entries(TAKES_A_PLAN)
  .filter(([, { refuses }]) => refuses)
  .flatMap(([route, { fields, rest }]) =>
    fields.map((field) => ({
      url: route.replace("POST ", ""),
      field,
      body: { ...subject, ...Object.fromEntries(fields.map((one) => [one, GOOD])), ...rest },
    })),
  );

const ask = (url: string, payload: object) =>
  api.app.inject({ method: "POST", url, headers: { authorization: api.bearer.viewer }, payload });

describe("every route that takes a plan", () => {
  it("is one of these", async () => {
    const { paths } = (await api.app.inject("/docs/json")).json<{
      paths: Record<
        string,
        Record<
          string,
          { requestBody?: { content: Record<string, { schema: { properties?: Record<string, unknown> } }> } }
        >
      >;
    }>();
    const found: Record<string, readonly string[]> = {};
    for (const [path, methods] of Object.entries(paths))
      for (const [method, { requestBody }] of Object.entries(methods)) {
        const properties = requestBody?.content["application/json"]?.schema.properties ?? {};
        // A schema that knows a plan's fields is a plan's; a job is checked by its own rules.
        const fields = Object.keys(properties).filter((name) =>
          JSON.stringify(properties[name]).includes('"microBatchSize"'),
        );
        if (fields.length > 0) found[`${method.toUpperCase()} ${path}`] = fields;
      }
    expect(found).toEqual({
      ...TAKES_NONE,
      ...Object.fromEntries(Object.entries(TAKES_A_PLAN).map(([route, { fields }]) => [route, fields])),
    });
  });

  it.each([
    [
      "another batch",
      "b1 n4 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16",
      "batch-not-divisible",
      "smallest change: microBatches 4 → 8",
    ],
    [
      "another number of ranks",
      "b1 n16 a0 pp1 dp64 tp1 sp1 ps8 gs1 oss8",
      "ranks-not-divisible",
      "smallest change: dataParallel 64 → 128",
    ],
    [
      "factors that do not divide",
      "b1 n8 a0 pp1 dp128 tp1 sp1 ps2147483647 gs5 oss16",
      "sharding-not-divisible",
      "choose a divisor of 128",
    ],
    [
      "a ring that is no part of its ranks",
      "b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16 cp3",
      "context-not-possible",
      "choose contextParallel",
    ],
    [
      "a million stages of a thousand chunks",
      "b1 n1 a0 pp1000000 dp1 tp1 sp1 ps1 gs1 oss1 v1024",
      "ranks-not-divisible",
      "choose pipelineParallel",
    ],
  ])(
    "refuses a plan with %s by the same problem, by its label and by its fields",
    async (_, label, reason, remedy) => {
      for (const { url, field, body } of REFUSING)
        for (const plan of [label, parsePlanLabel(label)]) {
          const reply = await ask(url, { ...body, [field]: plan });
          const problem = validate(ProblemSchema, reply.json(), "internal", "the problem");
          expect([reply.statusCode, problem.code], url).toEqual([422, "plan-invalid"]);
          expect(problem.errors).toHaveLength(1);
          expect(problem.errors?.[0]).toMatchObject({ field, value: label });
          expect(problem.errors?.[0]?.message).toMatch(new RegExp(`^${reason}: `));
          expect(problem.errors?.[0]?.remedy.startsWith(remedy), problem.errors?.[0]?.remedy).toBe(true);
        }
      // Why-not says the same, as its answer.
      expect((await ask("/api/v1/plans/why-not", { ...subject, plan: label })).json()).toMatchObject({
        binding: { reason },
      });
    },
  );

  it("refuses 200 plans that do not divide before it asks anything else of them", async () => {
    const factor = fc.oneof(
      fc.integer({ min: 1, max: 9 }),
      fc.constantFrom(1, 2, 4, 8, 16, 32, 64, 128),
      fc.constantFrom(1_000_000, 2 ** 31 - 1),
    );
    const anyPlan: fc.Arbitrary<Plan> = fc.record({
      microBatchSize: factor,
      microBatches: factor,
      recompute: fc.boolean(),
      pipelineParallel: factor,
      dataParallel: factor,
      tensorParallel: factor,
      sequenceParallel: factor,
      contextParallel: fc.integer({ min: 1, max: 2 ** 20 }),
      parameterSharding: factor,
      gradientSharding: factor,
      optimizerStateSharding: factor,
      forwardOverlap: fc.constant("none" as const),
      backwardOverlap: fc.constant("none" as const),
      pipelineChunks: fc.constantFrom(1, 2, 1024),
    });
    const plans = fc.sample(
      anyPlan.filter((plan) => planFault(plan, job) !== null),
      { numRuns: 200, seed: 3 },
    );
    for (const [index, plan] of plans.entries()) {
      const { url, field, body } = REFUSING[index % REFUSING.length]!;
      const reply = await ask(url, { ...body, [field]: plan });
      expect([reply.statusCode, reply.json<{ code: string }>().code], planLabel(plan)).toEqual([
        422,
        "plan-invalid",
      ]);
    }
  }, 120_000);

  it("answers one that divides", async () => {
    for (const { url, body } of REFUSING) expect((await ask(url, body)).statusCode, url).toBe(200);
  });
});
