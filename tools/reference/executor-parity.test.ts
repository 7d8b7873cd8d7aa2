import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import {
  PRECISIONS,
  chunksOf,
  contextOf,
  headRanks,
  makesGateUpAgain,
  headSize,
  keepsGateUpOnHost,
  resolveJob,
  usesGpus,
  worldSize,
  type JobSpec,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { assertProgram, trainerIn } from "@internevo/launcher";
import { divisors, isRunnable, planFault, planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { jobCase } from "@internevo/test-kit/job-cases";
import {
  anyCase,
  anyCaseWithFields,
  dryRun as dryRunIn,
  withoutRuntime,
  type Case,
  type DryRunOptions,
} from "./src/any-case.ts";

/** The executor says what it allocates; the cost model must say the same, line by line. */

const trainer = trainerIn(
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? fileURLToPath(new URL("../../native/dist", import.meta.url)),
);
let directory = "";
const dryRun = (one: Case, options: Omit<DryRunOptions, "trainer" | "directory"> = {}) =>
  dryRunIn(one, { trainer, directory, ...options });

beforeAll(async () => {
  await assertProgram(trainer);
  directory = await mkdtemp(join(tmpdir(), "internevo-parity-"));
});
afterAll(async () => rm(directory, { recursive: true, force: true }));

const jobOf = (
  model: Record<string, unknown>,
  sequenceLengthTokens: number,
  precision: string,
  ranks: number,
  device: "cpu" | "cuda",
): JobSpec =>
  resolveJob({
    name: "parity",
    model,
    sequenceLengthTokens,
    globalBatchTokens: sequenceLengthTokens * 16,
    precision,
    cluster: { nodes: 1, gpusPerNode: ranks, memoryPerGpu: "1TB", device },
  });

/**
 * Odd widths, grouped heads fewer than sequence ranks, tied and untied heads, batches on both sides of a loss
 * chunk; heads that GPUs have kernels of their own for.
 */
function* cases(): Generator<Case> {
  const models = [
    { hiddenSize: 256, layers: 4, heads: 8, vocabularySize: 256 },
    {
      hiddenSize: 96,
      layers: 3,
      heads: 8,
      kvHeads: 2,
      ffnHiddenSize: 250,
      vocabularySize: 1013,
      tiedEmbeddings: true,
    },
    { hiddenSize: 24, layers: 1, heads: 4, kvHeads: 1, ffnHiddenSize: 31, vocabularySize: 300 },
    { hiddenSize: 512, layers: 2, heads: 8, kvHeads: 4, vocabularySize: 300 },
    { hiddenSize: 1024, layers: 2, heads: 8, vocabularySize: 300 },
    { hiddenSize: 1536, layers: 2, heads: 8, vocabularySize: 300 },
    { hiddenSize: 768, layers: 2, heads: 8, kvHeads: 2, vocabularySize: 300 },
  ];
  let index = 0;
  for (const ranks of [1, 2, 4, 6, 8])
    for (const precision of PRECISIONS)
      for (const [m, model] of models.entries())
        for (const device of ["cpu", "cuda"] as const)
          for (const sequence of [72, 1024, 65_536]) {
            // So long that sums of the gradient of q do not go into one launch.
            if (sequence > 1024 && device === "cpu") continue;
            const job = jobOf(model, sequence, precision, ranks, device);
            for (const sequenceParallel of divisors(ranks))
              for (const parameterSharding of divisors(ranks))
                for (const optimizerStateSharding of divisors(ranks / parameterSharding)) {
                  index += 1;
                  const dataParallel = ranks / sequenceParallel;
                  if (16 % dataParallel !== 0) continue;
                  const sizes = divisors(16 / dataParallel);
                  const microBatchSize = sizes[index % sizes.length] as number;
                  const plan: Plan = {
                    microBatchSize,
                    microBatches: 16 / dataParallel / microBatchSize,
                    recompute: index % 2 === 0,
                    pipelineParallel: 1,
                    dataParallel,
                    tensorParallel: 1,
                    sequenceParallel,
                    parameterSharding,
                    gradientSharding: (index + m) % 3 === 0 ? 1 : optimizerStateSharding,
                    optimizerStateSharding,
                    forwardOverlap: "none",
                    backwardOverlap: "none",
                  };
                  // A spread over the lattice: every third point.
                  if (index % 3 === 0 && planFault(plan, job) === null) yield { job, plan };
                }
          }
}

const profile = shippedProfile("a800-128");
const describeCase = ({ job, plan }: Case) =>
  `${worldSize(plan)} ranks, ${JSON.stringify(plan)}, ` +
  `${JSON.stringify(job.model)}, S ${job.sequenceLengthTokens} ${job.precision}`;

describe("the memory model of the executor", () => {
  const spread = [...cases()];

  it("is compared over a wide spread of plans", () => {
    expect(spread.length).toBeGreaterThan(100);
    for (const fieldOf of [
      (plan: Plan) => plan.recompute,
      (plan: Plan) => plan.gradientSharding > 1,
      (plan: Plan) => plan.parameterSharding > 1,
      (plan: Plan) => plan.sequenceParallel > 1,
    ]) {
      expect(new Set(spread.map(({ plan }) => fieldOf(plan))).size).toBe(2);
    }
    for (const ranks of [2, 4, 8])
      expect(
        spread.filter(({ job, plan }) => usesGpus(job.cluster) && worldSize(plan) === ranks).length,
        `plans of ${ranks} GPUs, whose communicators take memory`,
      ).toBeGreaterThan(10);
    for (const size of [32, 64, 96, 128, 192])
      expect(
        spread.filter(({ job }) => usesGpus(job.cluster) && headSize(job.model) === size).length,
      ).toBeGreaterThan(20);
  });

  it("equals what the executor plans, byte for byte", async () => {
    for (const [index, one] of spread.entries()) {
      const threadsPerRank = 1 + (index % 2);
      const { fullest } = await dryRun(one, { threadsPerRank });
      expect(
        withoutRuntime(
          new CostModel(one.job, profile, { threadsPerRank }).memory(planOfJob(one.plan, one.job)).lines,
        ),
        describeCase(one),
      ).toEqual(fullest);
    }
  }, 200_000);
});

describe("the memory of models with more than LLaMA has", () => {
  it("is what the executor plans, on every stage", async () => {
    const feasible = fc
      .sample(anyCaseWithFields, { numRuns: 8000, seed: 20_240_118 })
      .filter(({ job, plan }) => planFault(plan, job) === null && isRunnable(plan, job).runnable);
    for (const field of [
      "headSize",
      "queryKeyNorm",
      "queryKeyValueBias",
      "slidingWindowTokens",
      "ropeScaling",
    ] as const) {
      const own = feasible.filter(({ job }) => job.model[field] !== undefined);
      expect(own.filter(({ plan }) => plan.tensorParallel > 1).length, field).toBeGreaterThan(3);
      expect(own.filter(({ plan }) => headRanks(plan) > 1).length, field).toBeGreaterThan(3);
      expect(own.filter(({ plan }) => contextOf(plan) > 1).length, field).toBeGreaterThan(3);
    }
    for (const one of feasible.slice(0, 150)) {
      const { refusal, stages } = await dryRun(one);
      expect(refusal, describeCase(one)).toBeNull();
      const model = new CostModel(one.job, profile);
      expect(
        model.stageMemory(planOfJob(one.plan, model.job)).map(withoutRuntime),
        describeCase(one),
      ).toEqual(stages);
    }
  }, 200_000);
});

describe("the plan space of the executor", () => {
  // Many more than are run: those that go together are rare.
  const sample = fc.sample(anyCase, { numRuns: 16_000, seed: 20_240_117 });
  const feasible = sample.filter(({ job, plan }) => planFault(plan, job) === null);
  const refused = sample.filter(({ job, plan }) => planFault(plan, job) !== null);

  it("is sampled in every direction", () => {
    expect(feasible.length).toBeGreaterThan(80);
    const has = (what: (one: Case) => boolean) =>
      expect(feasible.filter(what).length, String(what)).toBeGreaterThan(3);
    has(({ plan }) => plan.pipelineParallel > 1 && plan.tensorParallel > 1);
    has(({ plan }) => plan.pipelineParallel > 2);
    has(({ plan, job }) => plan.pipelineParallel > 1 && job.model.layers % plan.pipelineParallel !== 0);
    has(({ plan, job }) => plan.pipelineParallel > 1 && job.model.tiedEmbeddings);
    has(({ plan, job }) => plan.tensorParallel > job.model.kvHeads);
    has(({ plan }) => plan.tensorParallel > 1 && plan.backwardOverlap !== "none");
    has(({ plan }) => (plan.pipelineChunks ?? 1) > 1);
    has(({ plan }) => (plan.recomputeLayers ?? 0) > 0);
    has(({ plan }) => makesGateUpAgain(plan) && (plan.recomputeLayers ?? 0) > 0);
    has(({ plan }) => makesGateUpAgain(plan) && plan.tensorParallel > 1 && plan.parameterSharding > 1);
    has(({ plan, job }) => makesGateUpAgain(plan) && usesGpus(job.cluster));
    has(({ plan }) => keepsGateUpOnHost(plan) && (plan.recomputeLayers ?? 0) > 0);
    has(({ plan }) => keepsGateUpOnHost(plan) && plan.tensorParallel > 1);
    has(({ plan }) => keepsGateUpOnHost(plan) && chunksOf(plan) > 1);
    has(({ plan, job }) => keepsGateUpOnHost(plan) && usesGpus(job.cluster));
    for (const precision of PRECISIONS)
      has(({ plan, job }) => contextOf(plan) > 1 && job.precision === precision);
    has(({ plan }) => contextOf(plan) > 1 && headRanks(plan) > 1);
    has(({ plan, job }) => contextOf(plan) > 1 && plan.sequenceParallel > job.model.heads);
    has(
      ({ plan, job }) =>
        contextOf(plan) > 1 && plan.pipelineParallel > 1 && job.data?.packing === "documents",
    );
    has(({ job }) => job.timeline !== undefined);
    has(({ plan, job }) => usesGpus(job.cluster) && plan.pipelineParallel > 2);
    has(({ plan, job }) => usesGpus(job.cluster) && plan.pipelineParallel === 2 && chunksOf(plan) > 1);
    has(({ plan, job }) => usesGpus(job.cluster) && plan.tensorParallel > job.model.kvHeads);
    has(({ plan, job }) => usesGpus(job.cluster) && plan.pipelineParallel > 1 && job.model.tiedEmbeddings);
    for (const size of [32, 64, 96, 128, 192])
      has(({ plan, job }) => usesGpus(job.cluster) && headSize(job.model) === size && contextOf(plan) > 1);
    has(({ plan, job }) => plan.tensorParallel > 1 && job.data?.packing === "documents");
    expect(new Set(refused.map(({ job, plan }) => planFault(plan, job)?.reason))).toEqual(
      new Set([
        "more-stages-than-layers",
        "sequence-not-divisible",
        "heads-not-divisible",
        "tensor-not-divisible",
        "context-not-possible",
        "chunks-not-possible",
        "recompute-layers-not-possible",
        "gate-up-not-possible",
      ]),
    );
  });

  it("needs on every stage the bytes that the executor plans, and the search sees the fullest", async () => {
    for (const one of feasible.slice(0, 150)) {
      const { refusal, stages, fullest, hostMemoryBytes } = await dryRun(one);
      expect(refusal, describeCase(one)).toBeNull();
      expect((fullest["communicators"] ?? 0) > 0, describeCase(one)).toBe(
        usesGpus(one.job.cluster) && worldSize(one.plan) > 1,
      );
      expect(isRunnable(one.plan, one.job).runnable).toBe(true);
      const model = new CostModel(one.job, profile);
      expect(
        model.stageMemory(planOfJob(one.plan, model.job)).map(withoutRuntime),
        describeCase(one),
      ).toEqual(stages);
      expect(withoutRuntime(model.memory(planOfJob(one.plan, model.job)).lines), describeCase(one)).toEqual(
        fullest,
      );
      expect(model.hostBytes(planOfJob(one.plan, model.job)), describeCase(one)).toBe(hostMemoryBytes);
      const [shards, batch] = [
        model.shardBytes(one.plan, one.plan, one.plan),
        model.batchBytes(one.plan, one.plan, one.plan),
      ];
      expect(
        Math.max(...shards.map((bytes, stage) => bytes + (batch[stage] as number))),
        describeCase(one),
      ).toBe(model.memory(planOfJob(one.plan, model.job)).bytes);
    }
  });

  it("refuses what the executor refuses, for the same constraint", async () => {
    const byReason = new Map<string, Case[]>();
    for (const one of refused) {
      const reason = planFault(one.plan, one.job)?.reason ?? "";
      byReason.set(reason, [...(byReason.get(reason) ?? []), one]);
    }
    for (const [reason, list] of byReason)
      for (const one of list.slice(0, 12))
        expect((await dryRun(one)).refusal?.split(":")[0], describeCase(one)).toBe(reason);
  });
});

describe("the paper's jobs, as they are written", () => {
  it("are runnable: the executor plans the bytes of the best plan of each", async () => {
    const folder = fileURLToPath(new URL("../../examples/paper/", import.meta.url));
    const files = (await readdir(folder)).filter((name) => name.endsWith(".yaml"));
    expect(files.length).toBe(28);
    for (const file of files) {
      const job = resolveJob(parse(await readFile(join(folder, file), "utf8")));
      const [best] = planJob(job, profile, { top: 1 }).runnableCandidates;
      if (best === undefined) throw new Error(`${file}: none of its plans is runnable`);
      const { refusal, fullest } = await dryRun({ job, plan: best.plan });
      expect(refusal, file).toBeNull();
      expect(withoutRuntime(best.predicted.memory), file).toEqual(fullest);
    }
  }, 400_000);
});

describe("a plan that the search lists as runnable", () => {
  it("is accepted by the executor, within the memory of the job", async () => {
    const withRoom: Profile = {
      ...profile,
      executor: { forwardOverlap: "none", backwardOverlap: "none" },
      device: { ...profile.device, runtimeBytes: 64 * 2 ** 20 },
    };
    const jobs = fc.sample(jobCase, { numRuns: 400, seed: 60 });
    let tried = 0;
    for (const [index, drawn] of jobs.entries()) {
      if (tried === 60) break;
      const job: JobSpec = {
        ...drawn,
        memoryModel: "executor",
        cluster: { ...drawn.cluster, memoryPerGpuBytes: drawn.cluster.memoryPerGpuBytes + 68 * 2 ** 20 },
      };
      const { runnableCandidates } = planJob(job, withRoom, { top: 40 });
      const candidate = runnableCandidates[(index * 7) % Math.max(1, runnableCandidates.length)];
      if (!candidate) continue;
      tried += 1;
      expect(
        (await dryRun({ job, plan: candidate.plan }, { memoryLimitBytes: job.cluster.memoryPerGpuBytes }))
          .refusal,
        describeCase({ job, plan: candidate.plan }),
      ).toBeNull();
    }
    expect(tried).toBe(60);
  });
});
