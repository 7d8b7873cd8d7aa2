import { aPlan } from "@internevo/test-kit";
import {
  commonProgram,
  NAMED_MODELS,
  resolveJob,
  seenKeysShare,
  type JobSpec,
  type Model,
  type ModuleShape,
  type Plan,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { layerModules, layerTraffic, type LayerModule } from "./layer.ts";
import { layerValues } from "./layer-memory.ts";
import { requiredMeasurements } from "./measurements.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { layersOfSlice, partsOf, sliceShape } from "./slice-corrections.ts";
import { tokenFlops } from "./utilisation.ts";

/** What models may have beyond LLaMA: heads of their own size, norms of heads, biases, windows. */

const profile = shippedProfile("a800-128");
const base = { ...(NAMED_MODELS["llama-7b"] as Model), kvHeads: 8 };
const jobOf = (model: Record<string, unknown> = {}): JobSpec =>
  resolveJob({
    name: "job",
    model: { base: "llama-7b", kvHeads: 8, ...model },
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
const plain = { microBatchSize: 2, sequenceLengthTokens: 4096, sequenceParallel: 1, tensorParallel: 1 };
const NOTHING_AGAIN = { recomputed: 0, gateUpAgain: 0 };
const ulysses = { ...plain, sequenceParallel: 8 };
const planOf = (over: Partial<Plan> = {}): Plan =>
  aPlan({ microBatchSize: 2, microBatches: 4, dataParallel: 128, parameterSharding: 8, ...over });
const linesOf = (job: JobSpec, plan: Plan) => new CostModel(job, profile).memory(planOfJob(plan, job)).lines;
const of = (list: readonly LayerModule[], module: ModuleShape["module"]) =>
  list.filter(({ shape }) => shape.module === module);

describe("a window", () => {
  it.each([
    [1, 5, 5 / 15],
    [2, 5, 9 / 15],
    [4, 5, 14 / 15],
    [5, 5, 1],
    [9, 5, 1],
  ])("of %i tokens over %i has a query see %d of the keys", (slidingWindowTokens, sequence, share) => {
    let seen = 0;
    for (let t = 0; t < sequence; t += 1) seen += Math.min(t + 1, slidingWindowTokens);
    expect(seen / 15).toBeCloseTo(share, 12);
    expect(seenKeysShare({ slidingWindowTokens }, sequence)).toBeCloseTo(share, 12);
  });

  it("makes attention shorter by the keys that are not seen, and nothing else", () => {
    const share = seenKeysShare({ slidingWindowTokens: 1024 }, 4096);
    const timeOf = (model: Record<string, unknown>, sequenceParallel: number, contextParallel: number) =>
      new CostModel(jobOf(model), profile).sliceTime(2, {
        pipelineParallel: 1,
        dataParallel: 128 / sequenceParallel,
        sequenceParallel,
        tensorParallel: 1,
        contextParallel,
      });
    for (const [ranks, ring] of [
      [1, 1],
      [8, 1],
      [8, 8],
    ] as const) {
      const whole = timeOf({}, ranks, ring);
      const seen = timeOf({ slidingWindowTokens: 1024 }, ranks, ring);
      expect(seen.forwardAttentionSeconds / whole.forwardAttentionSeconds).toBeCloseTo(share, 12);
      expect(seen.backwardAttentionSeconds / whole.backwardAttentionSeconds).toBeCloseTo(share, 12);
      expect(seen.forwardSeconds - seen.forwardAttentionSeconds).toBeCloseTo(
        whole.forwardSeconds - whole.forwardAttentionSeconds,
        12,
      );
    }
    expect(timeOf({ slidingWindowTokens: 4096 }, 1, 1)).toEqual(timeOf({}, 1, 1));
  });

  it("is left out of the causal FLOPs, and no bytes", () => {
    const flops = (slidingWindowTokens?: number) =>
      tokenFlops(
        { ...base, ...(slidingWindowTokens === undefined ? {} : { slidingWindowTokens }) },
        4096,
        NOTHING_AGAIN,
      );
    const share = seenKeysShare({ slidingWindowTokens: 512 }, 4096);
    const attention = 3 * 32 * 2 * 4096 * 4096;
    expect(flops().causal - flops(512).causal).toBeCloseTo(attention * (1 - share), -3);
    expect(flops(512).fullAttention).toBe(flops().fullAttention);
    expect(flops(4096)).toEqual(flops());
    expect(linesOf(jobOf({ slidingWindowTokens: 512 }), planOf())).toEqual(linesOf(jobOf(), planOf()));
  });
});

describe("norms of heads", () => {
  const model = jobOf({ queryKeyNorm: true }).model;

  it("are norms of as many rows as there are heads, made again in the backward pass", () => {
    for (const slice of [plain, ulysses]) {
      const { forward, backward } = layerModules(model, slice, "bf16");
      const norm = { module: "rmsnorm", pass: "forward", precision: "bf16", width: 128 };
      const rows = ((2 * 4096) / slice.sequenceParallel) * (32 + 8);
      expect(forward).toContainEqual({ shape: { ...norm, rows }, count: 1, units: [0] });
      expect(backward).toContainEqual({ shape: { ...norm, rows }, count: 1, units: [0] });
      expect(backward).toContainEqual({ shape: { ...norm, pass: "backward", rows }, count: 1, units: [0] });
    }
  });

  it("have rotary positions on the heads of a rank, and exchange as often as without them", () => {
    const ropes = of(layerModules(model, ulysses, "bf16").forward, "rope").map(({ shape }) => shape);
    expect(ropes).toMatchObject([
      { rows: 2 * 4096, heads: 4 },
      { rows: 2 * 4096, heads: 1 },
    ]);
    expect(layerTraffic(commonProgram(model), "ulysses")).toEqual(
      layerTraffic(commonProgram(base), "ulysses"),
    );
    expect(layerTraffic(commonProgram(model), "tensorParallel")).toEqual(
      layerTraffic(commonProgram(base), "tensorParallel"),
    );
  });

  it("are not timed with the heads of other slices", () => {
    const cost = new CostModel(jobOf({ queryKeyNorm: true, kvHeads: 2 }), profile);
    const layout = (sequenceParallel: number) => ({
      pipelineParallel: 1,
      dataParallel: 128 / sequenceParallel,
      sequenceParallel,
      tensorParallel: 1,
    });
    const [alone, shared] = [cost.sliceTime(1, layout(1)), cost.sliceTime(8, layout(8))];
    // As many rows of the stream; each of eight ranks has a head of keys of its own, four of two in all.
    expect(shared.forwardModules[0] as number).toBeGreaterThan(alone.forwardModules[0] as number);
    expect(shared.forwardModules[2]).toBeCloseTo(alone.forwardModules[2] as number, 12);
  });

  it("keep one row of gains, whatever the micro-batch", () => {
    const kept = (job: JobSpec, microBatchSize: number) =>
      linesOf(job, planOf({ microBatchSize, microBatches: 8 / microBatchSize }))["activations"] as number;
    const gains = (microBatchSize: number) =>
      kept(jobOf({ queryKeyNorm: true }), microBatchSize) - kept(jobOf(), microBatchSize);
    expect(gains(1)).toBe(32 * 2 * 128 * 2);
    expect(gains(8)).toBe(gains(1));
    expect(
      layerValues(
        model,
        "bf16",
        { pipelineParallel: 1, dataParallel: 1, sequenceParallel: 1, tensorParallel: 1 },
        "kept",
      ).kept,
    ).toContainEqual({ rows: "once", bytesPerRow: 2 * 128 * 2 });
  });
});

describe("biases of projections", () => {
  it("are one more pass over q, k and v, each way", () => {
    const { forward, backward } = layerModules(jobOf({ queryKeyValueBias: true }).model, plain, "bf16");
    const shape = {
      module: "residual-add",
      pass: "forward",
      precision: "bf16",
      rows: 8192,
      width: 4096 + 2048,
    };
    expect(forward).toContainEqual({ shape, count: 1, units: [0] });
    expect(backward).toContainEqual({ shape, count: 1, units: [0] });
  });

  it("are parameters, and keep nothing", () => {
    const plan = planOf();
    const [with_, without] = [linesOf(jobOf({ queryKeyValueBias: true }), plan), linesOf(jobOf(), plan)];
    expect(with_["activations"]).toBe(without["activations"]);
    expect(with_["optimizerStates"]).toBeGreaterThan(without["optimizerStates"] as number);
  });
});

describe("heads of their own size", () => {
  const wide = jobOf({ headSize: 256 });

  it("widen the products and what is exchanged, not the residual stream", () => {
    const { forward } = layerModules(wide.model, plain, "bf16");
    expect(of(forward, "linear").slice(0, 2)).toMatchObject([
      { shape: { inputs: 4096, outputs: 8192 + 2 * 2048 } },
      { shape: { inputs: 8192, outputs: 4096 } },
    ]);
    expect(of(forward, "residual-add")).toMatchObject([{ shape: { width: 4096 } }]);
    const plan = planOf({ microBatches: 32, dataParallel: 16, sequenceParallel: 8 });
    const [own, without] = [linesOf(wide, plan), linesOf(jobOf(), plan)];
    expect(own["allToAllStaging"]).toBe(2 * (without["allToAllStaging"] as number));
    expect(own["ropeTables"]).toBe(2 * (without["ropeTables"] as number));
    expect(tokenFlops(wide.model, 4096, NOTHING_AGAIN).fullAttention).toBeGreaterThan(
      tokenFlops(base, 4096, NOTHING_AGAIN).fullAttention + 3 * 32 * 4 * 4096 * 4096,
    );
  });

  it("may be narrower than the hidden size", () => {
    const narrow = jobOf({ heads: 30, kvHeads: 10, headSize: 64 });
    expect(of(layerModules(narrow.model, plain, "bf16").forward, "linear")[1]).toMatchObject({
      shape: { inputs: 1920, outputs: 4096 },
    });
    expect(linesOf(narrow, planOf())["layerWorkspace"]).toBeGreaterThan(0);
  });
});

describe("slices that the trainer runs", () => {
  const fields = { headSize: 96, queryKeyNorm: true, queryKeyValueBias: true, slidingWindowTokens: 512 };

  it("say what the model has, and nothing of it where it has nothing", () => {
    expect(sliceShape(jobOf(fields), plain)).toMatchObject(fields);
    expect(Object.keys(sliceShape(jobOf(), plain))).toHaveLength(11);
    expect(layersOfSlice(sliceShape(jobOf({ headSize: 256 }), plain), 32)).toBeGreaterThanOrEqual(1);
    for (const { shape } of requiredMeasurements(jobOf(fields)).slices) expect(shape).toMatchObject(fields);
  });

  it.each(Object.entries(fields))("of a model with another %s are not taken", (field, value) => {
    const job = jobOf({ [field]: value });
    const layout = { pipelineParallel: 1, dataParallel: 128, sequenceParallel: 1, tensorParallel: 1 };
    const measuredFor = (spec: JobSpec) => {
      const composed = partsOf(new CostModel(spec, profile).sliceTime(2, layout));
      return {
        ...profile,
        slices: [
          {
            shape: sliceShape(spec, plain),
            layers: 2,
            microBatches: 1,
            parts: { ...composed, forwardAttention: 3 * composed.forwardAttention },
            medianSeconds: 1,
            samples: 4,
          },
        ],
      };
    };
    const time = (given: typeof profile) => new CostModel(job, given).sliceTime(2, layout);
    expect(time(measuredFor(jobOf())).forwardAttentionSeconds).toBe(time(profile).forwardAttentionSeconds);
    expect(time(measuredFor(job)).forwardAttentionSeconds).toBeCloseTo(
      3 * time(profile).forwardAttentionSeconds,
      12,
    );
  });
});
