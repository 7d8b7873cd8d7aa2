import { parseProfile, shippedProfile } from "@internevo/cost-model";
import { ProblemError, resolveJob, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { boundSearches, planJob, SearchLimitError, SearchTimeError, threadSeconds } from "../src/index.ts";

/** What a search of a test may look at: a tenth of a second or so. */
const STEPS = 3000;

const a800 = shippedProfile("a800-128");

/** What came out, or the error when it is one that says what is wrong with which field and what to do. */
function problemOr<Value>(work: () => Value): Value | ProblemError {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    expect(error.details.length).toBeGreaterThan(0);
    for (const { field, message, remedy } of error.details) {
      expect(field).not.toBe("");
      expect(message).not.toBe("");
      expect(remedy ?? "").not.toBe("");
      expect(`${message} ${remedy ?? ""}`).not.toMatch(/NaN|undefined/);
    }
    return error;
  }
}

/** Every number anywhere in a value. */
function* numbersOf(value: unknown): Generator<number> {
  if (typeof value === "number") yield value;
  else if (typeof value === "object" && value !== null)
    for (const one of Object.values(value)) yield* numbersOf(one);
}

function expectSane(result: PlanningResult): void {
  for (const number of numbersOf(result)) expect(Number.isFinite(number)).toBe(true);
  const { evaluated, feasible, pruned = 0, rejected } = result.counts;
  expect(evaluated).toBe(feasible + pruned + Object.values(rejected).reduce((sum, count) => sum + count, 0));
  for (const { predicted } of result.candidates) {
    expect(predicted.stepTimeSeconds).toBeGreaterThan(0);
    expect(predicted.peakMemoryBytes).toBeLessThanOrEqual(result.memoryLimitBytes);
  }
}

const extreme = [
  0,
  -1,
  1,
  2,
  3,
  7,
  8,
  97,
  1000,
  1024,
  99_991,
  2 ** 20,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 40,
  2 ** 50,
  2 ** 53 - 1,
  2 ** 53,
  2 ** 60,
  1e300,
  0.5,
  NaN,
  Infinity,
  -Infinity,
];
const wild = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...extreme) },
  { weight: 1, arbitrary: fc.constantFrom<unknown>(null, "8", "", [], {}, true) },
);
/** Mostly something sensible, so that what is not is met by itself too. */
const mostly = (...sensible: unknown[]) =>
  fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...sensible) }, { weight: 1, arbitrary: wild });

const jobFile = fc.record({
  name: fc.constant("wild"),
  model: fc.oneof(
    fc.constantFrom("llama-7b", "llama-65b"),
    fc.record({
      hiddenSize: mostly(64, 4096),
      layers: mostly(1, 7, 32),
      heads: mostly(1, 4, 32),
      kvHeads: mostly(1, 4),
      ffnHiddenSize: mostly(1, 11_008),
      vocabularySize: mostly(2, 32_000),
    }),
  ),
  sequenceLengthTokens: mostly(8, 4096, 262_144, 2 ** 24),
  globalBatchTokens: mostly(4096, 2 ** 22, 2 ** 40, 2 ** 52),
  precision: fc.constantFrom("fp32", "bf16", "bf16-grad16"),
  cluster: fc.record({
    nodes: mostly(1, 3, 16, 12_500),
    gpusPerNode: mostly(1, 7, 8),
    memoryPerGpu: fc.oneof(mostly("80GB", "1MB"), fc.constantFrom("", "-1GB", "NaNGB", "80")),
  }),
  plan: fc.option(
    fc.record(
      { microBatchSize: mostly(1, 2), pipelineParallel: mostly(1, 4), sequenceParallel: mostly(1, [1, 8]) },
      { requiredKeys: [] },
    ),
    { nil: undefined },
  ),
});

describe("a job that makes no sense", () => {
  it("is refused with what is wrong and what to do, or planned, and ends", () => {
    const seen = { refused: 0, planned: 0, none: 0, limited: 0 };
    fc.assert(
      fc.property(jobFile, (file) => {
        const job = problemOr(() => resolveJob(file));
        if (job instanceof ProblemError) return void (seen.refused += 1);
        const result = problemOr(() => planJob(job, a800, { top: 3, maximumSteps: STEPS }));
        if (result instanceof ProblemError) return void (seen.limited += 1);
        seen[result.candidates.length > 0 ? "planned" : "none"] += 1;
        expectSane(result);
      }),
      { numRuns: 1500, seed: 77 },
    );
    for (const count of Object.values(seen)) expect(count).toBeGreaterThan(2);
  });

  it("says of the plan that comes closest how much it lacks", () => {
    const result = planJob(
      resolveJob({
        name: "large",
        model: "llama-65b",
        sequenceLengthTokens: 4096,
        globalBatchTokens: 4096,
        cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "80GB" },
      }),
      a800,
    );
    expect(result.candidates).toEqual([]);
    expect(result.closest?.peakMemoryBytes).toBeGreaterThan(result.memoryLimitBytes);
  });

  it("of thousands of chunks and of layers to recompute counts them too, and is given up in time", async () => {
    const deep = resolveJob({
      name: "deep",
      model: { hiddenSize: 16, heads: 2, layers: 2000, vocabularySize: 256 },
      sequenceLengthTokens: 1024,
      globalBatchTokens: 65_536,
      cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "2GiB" },
    });
    // Few families, of a million plans each.
    expect(problemOr(() => planJob(deep, a800, { maximumSteps: 5000 }))).toBeInstanceOf(SearchLimitError);
    await expect(
      boundSearches({ seconds: 0.05, clock: threadSeconds }, () => planJob(deep, a800)),
    ).rejects.toBeInstanceOf(SearchTimeError);
    // The bound is of that work alone.
    expect(planJob(small, a800).candidates.length).toBeGreaterThan(0);
  });

  it("is given up soon when it leaves too much, and says how to leave less", () => {
    const job = resolveJob({
      name: "vast",
      model: "llama-7b",
      sequenceLengthTokens: 8,
      globalBatchTokens: 2 ** 50,
      cluster: { nodes: 4096, gpusPerNode: 8, memoryPerGpu: "80GB" },
    });
    expect(problemOr(() => planJob(job, a800, { maximumSteps: 10 }))).toMatchObject({
      code: "job-invalid",
      details: [{ field: "plan", remedy: expect.stringContaining("plan.") as string }],
    });
  });
});

const small: JobSpec = resolveJob({
  name: "small",
  model: { hiddenSize: 64, layers: 3, heads: 4, kvHeads: 2, ffnHiddenSize: 96, vocabularySize: 200 },
  sequenceLengthTokens: 64,
  globalBatchTokens: 64 * 12,
  precision: "bf16",
  cluster: { nodes: 3, gpusPerNode: 2, memoryPerGpu: "16GB" },
});

type Path = readonly (string | number)[];
function* leavesOf(value: unknown, path: Path = []): Generator<Path> {
  if (typeof value === "number") yield path;
  else if (typeof value === "object" && value !== null)
    for (const [key, one] of Object.entries(value)) yield* leavesOf(one, [...path, key]);
}
function put(value: unknown, path: Path, what: unknown): void {
  const parent = path.slice(0, -1).reduce((at, key) => (at as Record<string | number, unknown>)[key], value);
  (parent as Record<string | number, unknown>)[path.at(-1) as string | number] = what;
}
const leaves = [...leavesOf(a800)];

describe("a profile that makes no sense", () => {
  it("is refused, naming the number, or gives finite predictions", () => {
    let refused = 0;
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(
            fc.nat(leaves.length - 1),
            fc.constantFrom<unknown>(0, -1, -1e-9, 1e-12, 1e300, NaN, Infinity, null, "fast"),
          ),
          { minLength: 1, maxLength: 3 },
        ),
        (changes) => {
          const broken = structuredClone(a800);
          for (const [at, what] of changes) put(broken, leaves[at] as Path, what);
          const profile = problemOr(() => parseProfile(broken, "the profile"));
          if (profile instanceof ProblemError) return void (refused += 1);
          expectSane(planJob(small, profile, { top: 3 }));
        },
      ),
      { numRuns: 300, seed: 5 },
    );
    expect(refused).toBeGreaterThan(150);
  });

  it("with holes still plans, and says what was assumed in their place", () => {
    const some = <Value>(list: readonly Value[]) => fc.subarray([...list]);
    fc.assert(
      fc.property(
        some(a800.collectives),
        some(a800.modules),
        some(a800.overlaps),
        fc.constantFrom(1, 0.5),
        (collectives, modules, overlaps, thinned) => {
          const points = collectives.map((curve) => ({
            ...curve,
            points: curve.points.slice(0, Math.ceil(curve.points.length * thinned)),
          }));
          const profile: Profile = parseProfile(
            { ...a800, collectives: points, modules, overlaps },
            "the profile",
          );
          const result = planJob(small, profile, { top: 3 });
          expectSane(result);
          expect(result.candidates).toHaveLength(3);
          if (collectives.length === 0)
            expect(result.warnings.join()).toContain("collectives that the profile lacks");
          if (modules.length === 0)
            expect(result.warnings.join()).toContain("modules that the profile lacks");
        },
      ),
      { numRuns: 60, seed: 6, examples: [[[], [], [], 1]] },
    );
  });
});
