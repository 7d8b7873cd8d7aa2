// Random jobs with plans, for tests of what is exported and imported.
import fc from "fast-check";
import { resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import { planFault } from "@internevo/plan";

/** LLaMA 7B on 128 GPUs, and what is written otherwise. */
export const jobOf = (written: Record<string, unknown> = {}): JobSpec =>
  resolveJob({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 32_768,
    globalBatchTokens: 4_194_304,
    steps: 1000,
    seed: 1,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...written,
  });

const divisorsOf = (value: number): number[] =>
  Array.from({ length: value }, (_, index) => index + 1).filter((each) => value % each === 0);
const pick = <Value>(values: readonly Value[], choice: number): Value =>
  values[choice % values.length] as Value;

/** Plans of the whole space of small jobs, extensions included. */
export const planAndJob = fc
  .tuple(
    fc.array(fc.nat(1_000_000), { minLength: 23, maxLength: 23 }),
    fc.constantFrom("bf16" as const, "fp32" as const, "bf16-grad16" as const),
    fc.boolean(),
  )
  .map(([choices, precision, tiedEmbeddings]) => {
    let at = 0;
    const next = <Value>(values: readonly Value[]): Value => pick(values, choices[at++] as number);
    const ranks = next([8, 16, 24, 64]);
    const pp = next(divisorsOf(ranks).filter((each) => each <= 8));
    const sp = next(divisorsOf(ranks / pp).filter((each) => each <= 8 && each !== 3 && each !== 6));
    const dp = ranks / pp / sp;
    const tp = next([1, sp]);
    const ring = tp === 1 ? next(divisorsOf(sp)) : 1;
    const replicas = (dp * sp) / tp;
    const ps = next(divisorsOf(replicas));
    const oss = next(divisorsOf(replicas / ps));
    const b = next([1, 2, 3]);
    const chunks = pp > 1 ? next([1, 2, 3]) : 1;
    const n = next([1, 2, 4]) * pp;
    const layers = pp * chunks + next([0, 1, 3, 8, 12]);
    const recompute = next([true, false]);
    const k = recompute ? 0 : next([0, 0, 1, 2, Math.ceil(layers / pp)]);
    const plan: Plan = {
      microBatchSize: b,
      microBatches: n,
      recompute,
      pipelineParallel: pp,
      dataParallel: dp,
      tensorParallel: tp,
      sequenceParallel: sp,
      parameterSharding: ps,
      gradientSharding: next([1, oss]),
      optimizerStateSharding: oss,
      forwardOverlap: next(["none", "block", "inter-layer", "intra-layer"] as const),
      backwardOverlap: next(["none", "block", "intra-layer"] as const),
      ...(ring > 1 ? { contextParallel: ring } : {}),
      ...(chunks > 1 ? { pipelineChunks: chunks } : {}),
      ...(k > 0 && k <= Math.ceil(layers / pp) ? { recomputeLayers: k } : {}),
      ...(!recompute && k < Math.ceil(layers / pp)
        ? next([{}, { gateUp: "again" as const }, { gateUp: "host" as const }])
        : {}),
    };
    const model = {
      hiddenSize: 1024,
      layers,
      heads: 16,
      kvHeads: next([16, 8, 2]),
      vocabularySize: next([32_000, 100_001]),
      ffnHiddenSize: next([2816, 2730, 1001, 4096]),
      tiedEmbeddings,
      ropeTheta: next([10_000, 500_000]),
    };
    // 4104 is a multiple of 8 and of no more, 4100 of 4.
    const sequenceLengthTokens = next([4096, 4096, 4104, 4100]);
    const job = jobOf({
      model,
      precision,
      seed: next([0, 1, 42]),
      sequenceLengthTokens,
      globalBatchTokens: sequenceLengthTokens * b * n * dp,
      cluster: { nodes: ranks / 8, gpusPerNode: 8, memoryPerGpu: "80GB" },
    });
    return { plan, job };
  })
  .filter(({ plan, job }) => planFault(plan, job) === null);

/** As Llama 3.1 scales its positions. */
export const LLAMA3_ROPE = {
  kind: "llama3",
  factor: 8,
  originalPositions: 8192,
  lowFrequencyFactor: 1,
  highFrequencyFactor: 4,
} as const;
