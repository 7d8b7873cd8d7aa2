import { CostModel, shippedProfile, sumLines, totalSeconds } from "@internevo/cost-model";
import { resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import loader from "highs";
import { describe, expect, it } from "vitest";
import { planJob } from "../src/index.ts";

const profile = shippedProfile("a800-128");
// The package declares the types of its CommonJS build for both of its builds.
const highs = await (loader as unknown as (typeof loader)["default"])();

const divisors = (value: number): number[] =>
  Array.from({ length: value }, (_, i) => i + 1).filter((one) => value % one === 0);

/**
 * Everything but recomputation, where stages are equal, nothing overlaps and a stage is one chunk: the
 * paper's fields.
 */
function* basesOf(
  job: JobSpec,
  stages: readonly number[],
  sequences: readonly number[],
  batches: readonly number[],
): Generator<Plan> {
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  for (const pipelineParallel of stages)
    for (const sequenceParallel of sequences)
      for (const tensorParallel of new Set([1, sequenceParallel])) {
        const dataParallel = ranks / pipelineParallel / sequenceParallel;
        const own = job.globalBatchTokens / job.sequenceLengthTokens / dataParallel;
        const replicas = ranks / pipelineParallel / tensorParallel;
        for (const microBatchSize of batches)
          for (const parameterSharding of divisors(replicas))
            for (const optimizerStateSharding of divisors(replicas / parameterSharding))
              for (const gradientSharding of new Set([1, optimizerStateSharding])) {
                const plan: Plan = {
                  microBatchSize,
                  microBatches: own / microBatchSize,
                  recompute: false,
                  pipelineParallel,
                  dataParallel,
                  tensorParallel,
                  sequenceParallel,
                  parameterSharding,
                  gradientSharding,
                  optimizerStateSharding,
                  forwardOverlap: "none",
                  backwardOverlap: "none",
                };
                yield plan;
                yield { ...plan, gateUp: "again" };
              }
      }
}

/**
 * Which plan, and how many of a stage's k layers are recomputed, as an integer program. Of every plan one of
 * n (no layer is), s (some are) and a (all are) may be 1, and y is how many some are. Where gate and up are
 * made again there is no a: nobody recomputes all layers and gate and up too. Time is a line over k.
 * So is the memory of each stage from k = 1 on; the first layer needs room for what it makes again, the last
 * one changes what is gathered.
 */
function programOf(job: JobSpec, bases: readonly Plan[]): string {
  const model = new CostModel(job, profile);
  const { layers } = job.model;
  const limit = job.cluster.memoryPerGpuBytes;
  const most = Math.max(...bases.map((plan) => plan.pipelineParallel));
  const time: string[] = [];
  const memory = Array.from({ length: most }, (): string[] => []);
  const rows: string[] = [];
  const choices: string[] = [];
  const term = (coefficient: number, name: string): string =>
    `${coefficient < 0 ? "-" : "+"} ${Math.abs(coefficient).toPrecision(15)} ${name}`;
  for (const [f, plan] of bases.entries()) {
    const all = layers / plan.pipelineParallel;
    const withLayers = (k: number): Plan =>
      k === all ? { ...plan, recompute: true } : { ...plan, recomputeLayers: k };
    const seconds = (k: number): number => totalSeconds(model.time(planOfJob(withLayers(k), model.job)));
    const hasAll = plan.gateUp === undefined;
    const last = hasAll ? all : all - 1;
    const slope = (seconds(last) - seconds(0)) / last;
    time.push(
      term(seconds(0), `n${f}`),
      term(seconds(0), `s${f}`),
      term(slope, `y${f}`),
      ...(hasAll ? [term(seconds(all), `a${f}`)] : []),
    );
    const [none, one, two, whole] = [0, 1, 2, last].map((k) =>
      model.stageMemory(planOfJob(withLayers(k), model.job)).map((lines) => sumLines(lines) / limit),
    ) as [number[], number[], number[], number[]];
    for (const [stage, terms] of memory.entries()) {
      const at = Math.min(stage, plan.pipelineParallel - 1);
      const [atNone, atOne, atTwo, atWhole] = [none[at], one[at], two[at], whole[at]] as [
        number,
        number,
        number,
        number,
      ];
      terms.push(
        term(atNone, `n${f}`),
        term(atOne - (atTwo - atOne), `s${f}`),
        term(atTwo - atOne, `y${f}`),
        ...(hasAll ? [term(atWhole, `a${f}`)] : []),
      );
    }
    rows.push(`y${f} - s${f} >= 0`, `y${f} - ${all - 1} s${f} <= 0`);
    choices.push(`n${f}`, `s${f}`, ...(hasAll ? [`a${f}`] : []));
  }
  const constraints = [
    ...memory.map((terms) => `${terms.join("\n ")} <= 1`),
    `${choices.join("\n + ")} = 1`,
    ...rows,
  ];
  return `Minimize\n obj: ${time.join("\n ")}\nSubject To\n${constraints.map((row, i) => ` c${i}: ${row}`).join("\n")}\nBinary\n ${choices.join("\n ")}\nGeneral\n ${bases.map((_, f) => `y${f}`).join("\n ")}\nEnd\n`;
}

describe("an integer program", () => {
  const stages = [1, 2, 4];
  const sequences = [1, 4];
  const batches = [1, 2];
  const jobOf = (memoryPerGpu: string, sequenceLengthTokens: number): JobSpec =>
    resolveJob({
      name: "program",
      model: "llama-7b",
      sequenceLengthTokens,
      globalBatchTokens: 64 * sequenceLengthTokens,
      precision: "bf16",
      cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu },
      plan: {
        pipelineParallel: stages,
        sequenceParallel: sequences,
        microBatchSize: batches,
        contextParallel: 1,
        pipelineChunks: 1,
        forwardOverlap: "none",
        backwardOverlap: "none",
      },
    });

  it("has the same least time as the search, whatever the memory", () => {
    const recomputed = new Set<string>();
    for (const [memoryPerGpu, sequenceLengthTokens] of [
      ["9GB", 4096],
      ["16GB", 4096],
      ["24GB", 4096],
      ["32GB", 8192],
      ["40GB", 16_384],
      ["80GB", 4096],
      ["80GB", 32_768],
    ] as const) {
      const job = jobOf(memoryPerGpu, sequenceLengthTokens);
      const [best] = planJob(job, profile, { top: 1 }).candidates;
      const solved = highs.solve(programOf(job, [...basesOf(job, stages, sequences, batches)]), {
        output_flag: false,
        mip_rel_gap: 0,
        mip_abs_gap: 0,
      });
      if (best === undefined) {
        expect(solved.Status).toBe("Infeasible");
        recomputed.add("nothing fits");
        continue;
      }
      expect(solved.Status).toBe("Optimal");
      expect(Math.abs(solved.ObjectiveValue / best.predicted.stepTimeSeconds - 1)).toBeLessThan(1e-6);
      const fewer = (best.plan.recomputeLayers ?? 0) > 0 ? "some" : "none";
      recomputed.add(best.plan.recompute ? "all" : fewer);
      if (best.plan.gateUp === "again") recomputed.add("gate and up");
    }
    // The cases are not all of one kind.
    expect(recomputed).toContain("some");
    expect(recomputed).toContain("none");
    expect(recomputed).toContain("gate and up");
    expect(recomputed).toContain("nothing fits");
  });
});
