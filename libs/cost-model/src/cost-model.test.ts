import { aPlan } from "@internevo/test-kit";
import {
  NAMED_MODELS,
  resolveJob,
  totalParameters,
  type JobSpec,
  type Model,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CollectiveTimes } from "./collectives.ts";
import { CostModel } from "./cost-model.ts";
import { layerModules } from "./layer.ts";
import { ModuleTimes } from "./modules.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { unitParameters } from "./stage.ts";
import { together } from "./together.ts";
import { tokenFlops } from "./utilisation.ts";
import { Warnings } from "./warnings.ts";
import { workOf } from "./work.ts";

const profile = shippedProfile("a800-128");
const llama7b = NAMED_MODELS["llama-7b"] as Model;

const jobOf = (over: Record<string, unknown> = {}): JobSpec =>
  resolveJob({
    name: "job",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...over,
  });

const planOf = (over: Partial<Plan> = {}): Plan =>
  aPlan({
    microBatchSize: 2,
    microBatches: 4,
    dataParallel: 128,
    parameterSharding: 4,
    optimizerStateSharding: 2,
    forwardOverlap: "inter-layer",
    backwardOverlap: "intra-layer",
    ...over,
  });

describe("collective times", () => {
  const times = (gpusPerNode = 8) => new CollectiveTimes(profile, gpusPerNode, new Warnings().add);
  const measured = (op: string, groupSize: number, bytes: number) =>
    profile.collectives
      .find((curve) => curve.op === op && curve.groupSize === groupSize)
      ?.points.find((point) => point.bytes === bytes)?.medianSeconds ?? NaN;

  it("are the measured ones where there is a measurement", () => {
    expect(times().seconds("all-gather", 2 ** 28, { size: 8, nodes: 1 })).toBeCloseTo(
      measured("all-gather", 8, 2 ** 28),
      9,
    );
    expect(times().seconds("all-to-all", 2 ** 28, { size: 32, nodes: 4 })).toBeCloseTo(
      measured("all-to-all", 32, 2 ** 28),
      9,
    );
    expect(times().seconds("all-gather", 2 ** 28, { size: 1, nodes: 1 })).toBe(0);
  });

  it("give groups that share their nodes the time of whole nodes that move all their bytes", () => {
    // 16 ranks on 16 nodes: eight such groups share each node's links.
    expect(times().seconds("all-reduce", 2 ** 27, { size: 16, nodes: 16 })).toBeCloseTo(
      measured("all-reduce", 128, 2 ** 30),
      9,
    );
  });

  it("take a message as half of an all-to-all between two ranks, or two nodes", () => {
    expect(times().seconds("point-to-point", 2 ** 27, { size: 2, nodes: 1 })).toBeCloseTo(
      measured("all-to-all", 2, 2 ** 28),
      9,
    );
    expect(times().seconds("point-to-point", 2 ** 27, { size: 2, nodes: 2 })).toBeCloseTo(
      measured("all-to-all", 16, 2 ** 28),
      9,
    );
  });

  it("lie between the neighbours for a group size that was not measured, with a warning", () => {
    const warnings = new Warnings();
    const seconds = new CollectiveTimes(profile, 8, warnings.add).seconds("all-to-all", 2 ** 28, {
      size: 6,
      nodes: 1,
    });
    expect(seconds).toBeGreaterThan(measured("all-to-all", 4, 2 ** 28));
    expect(seconds).toBeLessThan(measured("all-to-all", 8, 2 ** 28));
    expect(warnings.lines.join("\n")).toMatch(
      /group sizes that the profile lacks.*all-to-all intra-node over 6 ranks/,
    );
  });

  it("never shrink with the bytes", () => {
    for (const op of ["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "point-to-point"] as const)
      for (const size of [2, 3, 8, 16, 48, 128, 512]) {
        let last = 0;
        for (let bytes = 1; bytes < 2 ** 36; bytes *= 3) {
          const seconds = times().seconds(op, bytes, { size, nodes: Math.ceil(size / 8) });
          expect(seconds).toBeGreaterThanOrEqual(last * (1 - 1e-12));
          last = seconds;
        }
      }
  });

  it("fall back to the memory bandwidth without any curve, with a warning", () => {
    const warnings = new Warnings();
    const bare: Profile = { ...profile, collectives: [] };
    expect(
      new CollectiveTimes(bare, 8, warnings.add).seconds("all-reduce", 2.039e12, { size: 8, nodes: 1 }),
    ).toBeCloseTo(1, 9);
    expect(warnings.lines).toHaveLength(1);
  });
});

describe("module times", () => {
  const modules = () => new ModuleTimes(profile, new Warnings().add);

  it("are the measured ones for measured shapes", () => {
    expect(
      modules().seconds({
        module: "linear",
        pass: "forward",
        precision: "bf16",
        rows: 8192,
        inputs: 8192,
        outputs: 8192,
      }),
    ).toBe(4645.5e-6);
    expect(
      modules().seconds({
        module: "attention",
        pass: "backward",
        precision: "bf16",
        batch: 1,
        sequence: 4096,
        heads: 32,
        kvHeads: 32,
        headSize: 128,
      }),
    ).toBe(2330.9e-6);
  });

  it("keep the order of sizes between measured shapes", () => {
    const linear = (rows: number) =>
      modules().seconds({
        module: "linear",
        pass: "forward",
        precision: "bf16",
        rows,
        inputs: 4096,
        outputs: 22_016,
      });
    const attention = (sequence: number) =>
      modules().seconds({
        module: "attention",
        pass: "forward",
        precision: "bf16",
        batch: 1,
        sequence,
        heads: 7,
        kvHeads: 7,
        headSize: 128,
      });
    for (const [small, large] of [
      [100, 200],
      [3000, 5000],
      [100_000, 200_000],
    ] as const) {
      expect(linear(small)).toBeLessThanOrEqual(linear(large));
      expect(attention(small)).toBeLessThanOrEqual(attention(large));
    }
    expect(attention(2 ** 20) / attention(2 ** 19)).toBeCloseTo(4, 6);
  });

  it("take a backward product as two forward ones when it was not measured", () => {
    const shape = { module: "linear", precision: "bf16", rows: 8192, inputs: 8192, outputs: 8192 } as const;
    expect(modules().seconds({ ...shape, pass: "backward" })).toBeCloseTo(
      2 * modules().seconds({ ...shape, pass: "forward" }),
      12,
    );
  });
});

describe("sizes", () => {
  it("count every parameter of a model once", () => {
    for (const model of [...Object.values(NAMED_MODELS), { ...llama7b, tiedEmbeddings: true, kvHeads: 8 }]) {
      const { embedding, layer, head } = unitParameters(model, 1);
      expect(embedding + model.layers * layer + head).toBe(totalParameters(model));
    }
  });

  it("give each of t tensor ranks its part of the matrices", () => {
    const whole = unitParameters(llama7b, 1);
    const norms = 2 * llama7b.hiddenSize;
    for (const tp of [2, 4, 8])
      expect((unitParameters(llama7b, tp).layer - norms) * tp).toBe(whole.layer - norms);
  });

  it("take the FLOPs of a token from the modules that run", () => {
    const slice = { microBatchSize: 1, sequenceLengthTokens: 4096, sequenceParallel: 1, tensorParallel: 1 };
    const forward = layerModules(llama7b, slice, "bf16").forward.filter(
      ({ shape }) => shape.module === "linear" || shape.module === "attention",
    );
    const layer = forward.reduce((sum, { shape, count }) => sum + count * workOf(shape).flops, 0) / 4096;
    const head = 2 * llama7b.hiddenSize * llama7b.vocabularySize;
    const [none, all, gateUp] = [
      tokenFlops(llama7b, 4096, { recomputed: 0, gateUpAgain: 0 }),
      tokenFlops(llama7b, 4096, { recomputed: 1, gateUpAgain: 0 }),
      tokenFlops(llama7b, 4096, { recomputed: 0, gateUpAgain: 1 }),
    ];
    expect(none.causal / (3 * (32 * layer + head))).toBeCloseTo(1, 12);
    expect(all.executed - none.executed).toBeCloseTo(32 * layer, -3);
    expect(gateUp.executed - none.executed).toBeCloseTo(32 * 2 * 2 * 4096 * 11_008, -3);
  });

  it("agree with Megatron's formula when attention is counted in full", () => {
    // 96·B·s·l·h²·(1 + s/6h + V/16lh) counts 4 passes of a layer with an MLP of 4h; LLaMA's gated MLP of 8/3
    // h has the same products.
    const model = { ...llama7b, ffnHiddenSize: (8 * 4096) / 3 };
    const { layers: l, hiddenSize: h, vocabularySize: v } = model;
    const s = 4096;
    const withoutRecompute = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    const flops = tokenFlops(model, s, { recomputed: 0, gateUpAgain: 0 });
    expect(flops.fullAttention / withoutRecompute).toBeCloseTo(1, 12);
  });
});

describe("memory", () => {
  const bytes = (plan: Partial<Plan>, over: Record<string, unknown> = {}) =>
    new CostModel(jobOf(over), profile).memory(planOfJob(planOf(plan), jobOf(over))).bytes;

  it("shrinks with every kind of sharding, and grows with the micro-batch", () => {
    expect(bytes({ parameterSharding: 8 })).toBeLessThan(bytes({ parameterSharding: 4 }));
    expect(bytes({ optimizerStateSharding: 4 })).toBeLessThan(bytes({ optimizerStateSharding: 2 }));
    expect(bytes({ gradientSharding: 2 })).toBeLessThan(bytes({ gradientSharding: 1 }));
    expect(bytes({ recompute: true })).toBeLessThan(bytes({ recompute: false }));
    expect(bytes({ microBatchSize: 4, microBatches: 2 })).toBeGreaterThan(bytes({}));
    expect(bytes({ dataParallel: 64, sequenceParallel: 2, microBatchSize: 4 })).toBeLessThanOrEqual(
      bytes({ dataParallel: 128, microBatchSize: 4, microBatches: 2 }) * 1.05,
    );
  });

  it("of the paper's model is the paper's arithmetic", () => {
    const { lines } = new CostModel(jobOf(), profile, { memoryModel: "paper" }).memory(
      planOfJob(planOf(), jobOf()),
    );
    const parameters = totalParameters(llama7b);
    expect(lines).toMatchObject({
      parameters: Math.ceil((2 * parameters) / 4),
      gradients: Math.ceil((2 * parameters) / 4),
      optimizerStates: Math.ceil((6 * parameters) / 8),
      activations: 34 * 2 * 4096 * 4096 * 32,
    });
  });

  it("holds min(s_pp, n) micro-batches in the first stage", () => {
    const activations = (pipelineParallel: number, n: number) => {
      const dataParallel = 128 / pipelineParallel;
      const job = jobOf({ globalBatchTokens: 2 * n * dataParallel * 4096 });
      return new CostModel(job, profile, { memoryModel: "paper" }).memory(
        planOfJob(
          planOf({
            pipelineParallel,
            dataParallel,
            parameterSharding: 1,
            optimizerStateSharding: 1,
            microBatches: n,
          }),
          job,
        ),
      ).lines["activations"];
    };
    expect(activations(4, 64)).toBe(34 * 2 * 4096 * 4096 * 8 * 4);
    expect(activations(4, 2)).toBe(34 * 2 * 4096 * 4096 * 8 * 2);
  });
});

describe("time", () => {
  const model = new CostModel(jobOf(), profile);
  const time = (plan: Partial<Plan>) => model.time(planOfJob(planOf(plan), model.job));

  it("of work side by side lies between the longer and the sum, and grows with both", () => {
    expect(together(2, 0, 1.3)).toBe(2);
    expect(together(2, 2, 1.3)).toBeCloseTo(2.6, 12);
    expect(together(2, 1, 1.3)).toBeCloseTo(2.3, 12);
    expect(together(1, 2, 1.3)).toBe(together(2, 1, 1.3));
  });

  it("adds a forward pass for recomputation, a bubble for a pipeline, and a reduction a micro-batch for sharded gradients", () => {
    expect(time({}).recomputeSeconds).toBe(0);
    const again = time({ recompute: true });
    expect(again.recomputeSeconds / again.computeSeconds).toBeGreaterThan(0.2);
    expect(again.recomputeSeconds / again.computeSeconds).toBeLessThan(0.4);
    expect(time({}).pipelineBubbleSeconds).toBe(0);
    const staged = time({ pipelineParallel: 4, dataParallel: 32, microBatches: 16 });
    expect(staged.pipelineBubbleSeconds).toBeGreaterThan(0);
    expect(staged.pipelineCommunicationSeconds).toBeGreaterThan(0);
    const none = {
      forwardOverlap: "none",
      backwardOverlap: "none",
      parameterSharding: 1,
      optimizerStateSharding: 8,
    } as const;
    expect(time({ ...none, gradientSharding: 8 }).gradientCommunicationSeconds).toBeCloseTo(
      4 * time({ ...none, gradientSharding: 1 }).gradientCommunicationSeconds,
      9,
    );
  });

  it("has a bubble of 1/v with v chunks a stage, and more messages", () => {
    const staged = { pipelineParallel: 4, dataParallel: 32, microBatches: 16 } as const;
    const [plain, interleaved] = [time(staged), time({ ...staged, pipelineChunks: 4 })];
    expect(interleaved.pipelineBubbleSeconds / plain.pipelineBubbleSeconds).toBeCloseTo(1 / 4, 9);
    expect(interleaved.pipelineCommunicationSeconds).toBeGreaterThan(plain.pipelineCommunicationSeconds);
    expect(interleaved.computeSeconds).toBe(plain.computeSeconds);
  });

  it("waits in a pipeline for a micro-batch to pass the other stages, as they are", () => {
    const none = {
      forwardOverlap: "none",
      backwardOverlap: "none",
      parameterSharding: 1,
      optimizerStateSharding: 1,
    } as const;
    const compute = (pipelineParallel: number) => {
      const dataParallel = 128 / pipelineParallel;
      const one = jobOf({ globalBatchTokens: 2 * dataParallel * 4096 });
      return new CostModel(one, profile).time(
        planOfJob(planOf({ ...none, pipelineParallel, dataParallel, microBatches: 1 }), one),
      );
    };
    // One micro-batch goes through all layers, embedding and head, however they are cut.
    const whole = compute(1).computeSeconds;
    for (const stages of [2, 4, 8, 16])
      expect((compute(stages).computeSeconds + compute(stages).pipelineBubbleSeconds) / whole).toBeCloseTo(
        1,
        9,
      );
  });

  it("recomputes in proportion to the layers that are recomputed", () => {
    const all = time({ recompute: true }).recomputeSeconds;
    expect(time({ recomputeLayers: 8 }).recomputeSeconds / all).toBeCloseTo(8 / 32, 9);
    expect(time({ recomputeLayers: 0 }).recomputeSeconds).toBe(0);
    const staged = { pipelineParallel: 4, dataParallel: 32, microBatches: 16 } as const;
    expect(
      time({ ...staged, recomputeLayers: 2 }).recomputeSeconds /
        time({ ...staged, recompute: true }).recomputeSeconds,
    ).toBeCloseTo(2 / 8, 9);
  });

  it("exposes everything without overlap, and less with it", () => {
    const exposed = time({ forwardOverlap: "none", backwardOverlap: "none" });
    expect(exposed.parameterCommunicationSeconds).toBeGreaterThan(time({}).parameterCommunicationSeconds);
  });

  it("needs no sequence communication without a sequence split", () => {
    expect(time({}).sequenceCommunicationSeconds).toBe(0);
    expect(
      time({ dataParallel: 32, sequenceParallel: 4, microBatches: 16 }).sequenceCommunicationSeconds,
    ).toBeGreaterThan(0);
    expect(
      time({ dataParallel: 32, sequenceParallel: 4, tensorParallel: 4, microBatches: 16 })
        .sequenceCommunicationSeconds,
    ).toBeGreaterThan(0);
  });
});
