import { readFileSync } from "node:fs";
import { CostModel, shippedProfile, sumLines } from "@internevo/cost-model";
import { resolveJob, type JobSpec, type PlanConstraints } from "@internevo/domain";
import { familyOf, layoutsOf, planOf, planOfJob, shardingsOf } from "@internevo/plan";
import { feasibleFamilies, planJob } from "@internevo/search";
import { describe, expect, it } from "vitest";

interface Answer {
  readonly model: string;
  readonly sequenceK: number;
  readonly b: number;
  readonly n: number;
  readonly a: 0 | 1;
  readonly pp: number;
  readonly dp: number;
  readonly tp: number;
  readonly sp: number;
  readonly ps: number;
  readonly oss: number;
  readonly gibibytes: number;
  readonly seconds: number;
  readonly tokensPerGpuPerSecond: number;
}
const { answers } = JSON.parse(
  readFileSync(new URL("./data/published-answers.json", import.meta.url), "utf8"),
) as { answers: Answer[] };
const profile = shippedProfile("a800-128");

const jobOf = (model: string, lengthK: number, plan?: PlanConstraints): JobSpec => ({
  ...resolveJob({
    name: "published",
    model: { base: model, vocabularySize: 103_168 },
    sequenceLengthTokens: lengthK * 1024,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    memoryModel: "published",
    timeModel: "published",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GiB" },
  }),
  ...(plan === undefined ? {} : { plan }),
});

describe("the published planner's answers", () => {
  it("are those of all models and lengths", () => {
    expect(new Set(answers.map(({ model, sequenceK }) => `${model} ${sequenceK}`)).size).toBe(4 * 7);
  });

  it.each(answers)("$model at $sequenceK k: the same best plan, memory and time", (answer) => {
    const [best] = planJob(jobOf(answer.model, answer.sequenceK), profile, { top: 1 }).candidates;
    expect(best?.plan).toMatchObject({
      microBatchSize: answer.b,
      microBatches: answer.n,
      recompute: answer.a === 1,
      pipelineParallel: answer.pp,
      dataParallel: answer.dp,
      tensorParallel: answer.tp,
      sequenceParallel: answer.sp,
      parameterSharding: answer.ps,
      optimizerStateSharding: answer.oss,
    });
    const { peakMemoryBytes, stepTimeSeconds, tokensPerGpuPerSecond } = best!.predicted;
    expect(peakMemoryBytes / 2 ** 30 / answer.gibibytes).toBeCloseTo(1, 5);
    expect(stepTimeSeconds / answer.seconds).toBeCloseTo(1, 4);
    expect(tokensPerGpuPerSecond / answer.tokensPerGpuPerSecond).toBeCloseTo(1, 4);
  });
});

describe("the search plan by plan", () => {
  /** Every plan of one micro-batch size, listed by hand. */
  const job = jobOf("llama-30b", 64, { microBatchSize: 1, pipelineParallel: 1, pipelineChunks: 1 });
  const model = new CostModel(job, profile);
  const listed = [...layoutsOf(job)]
    .filter(({ fault, layout }) => fault === null && (layout.contextParallel ?? 1) === 1)
    .flatMap(({ layout, replicas }) =>
      [0, 60].flatMap((recomputed) =>
        shardingsOf(replicas)
          .filter(
            ({ gradientSharding: gs, parameterSharding: ps }) =>
              gs === 1 && (layout.tensorParallel === 1 || ps === 1),
          )
          .map((sharding) =>
            planOf(
              layout,
              1,
              64 / layout.dataParallel,
              sharding,
              {
                chunks: 1,
                recomputed,
                gateUp: "kept",
                overlap: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
              },
              60,
            ),
          ),
      ),
    );
  const fitting = listed
    .filter((plan) => sumLines(model.memory(planOfJob(plan, job)).lines) <= job.cluster.memoryPerGpuBytes)
    .flatMap((plan) => {
      const time = model.timeIfKnown(planOfJob(plan, job));
      return time === null
        ? []
        : [{ plan, seconds: Object.values(time).reduce((sum, part) => sum + part, 0) }];
    })
    .sort((a, b) => a.seconds - b.seconds);

  it("lists the fastest of all, and ranks any of them", () => {
    const { candidates, counts } = planJob(job, profile, { top: 5 });
    expect(counts.feasible).toBe(fitting.length);
    expect(counts.evaluated).toBe(
      counts.feasible + Object.values(counts.rejected).reduce((sum, count) => sum + count, 0),
    );
    expect(candidates[0]?.predicted.stepTimeSeconds).toBeCloseTo(fitting[0]!.seconds, 9);
    expect(feasibleFamilies(job, profile)).toBe(new Set(fitting.map(({ plan }) => familyOf(plan))).size);
    const third = candidates[2]!;
    expect(planJob(job, profile, { top: 1, locate: third.plan }).located?.rank).toBe(3);
  });
});

describe("the paper's text as time", () => {
  const times = (over: Partial<JobSpec>) => {
    const job = { ...jobOf("llama-7b", 4), memoryModel: "paper" as const, ...over };
    return planJob(job, profile, { top: 3 });
  };

  it("ranks the paper's ten dimensions, without messages between stages", () => {
    const { candidates, timeModel } = times({ timeModel: "paper" });
    expect(timeModel).toBe("paper");
    expect(candidates).toHaveLength(3);
    const staged = times({ timeModel: "paper", plan: { pipelineParallel: 4 } }).candidates[0]!;
    expect(staged.predicted.time.pipelineCommunicationSeconds).toBe(0);
    expect(staged.predicted.time.pipelineBubbleSeconds).toBeGreaterThan(0);
  });
});
