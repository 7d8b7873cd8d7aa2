import { aPlan } from "@internevo/test-kit";
import { resolveJob, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { placementOf, planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CollectiveTimes } from "./collectives.ts";
import { CostModel } from "./cost-model.ts";
import { layerModules, ringElements } from "./layer.ts";
import { ModuleTimes } from "./modules.ts";
import { ringPlace, ringSeconds } from "./ring-time.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { totalSeconds } from "./step-time.ts";
import { together } from "./together.ts";
import { Warnings } from "./warnings.ts";
import { workOf } from "./work.ts";

const profile = shippedProfile("a800-128");
const times = new CollectiveTimes(profile, 8, new Warnings().add);
const message = (bytes: number, nodes: number) => times.seconds("point-to-point", bytes, { size: 2, nodes });

const job: JobSpec = resolveJob({
  name: "long",
  model: { hiddenSize: 4096, layers: 32, heads: 32, kvHeads: 8, vocabularySize: 32_000 },
  sequenceLengthTokens: 65_536,
  globalBatchTokens: 4 * 1024 * 1024,
  precision: "bf16",
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const planOf = (over: Partial<Plan> = {}): Plan =>
  aPlan({
    microBatches: 16,
    dataParallel: 4,
    sequenceParallel: 32,
    parameterSharding: 8,
    optimizerStateSharding: 4,
    ...over,
  });
const slice = (contextParallel: number) => ({
  microBatchSize: 1,
  sequenceLengthTokens: 65_536,
  sequenceParallel: 32,
  tensorParallel: 1,
  contextParallel,
});

describe("the time of a ring", () => {
  const work = {
    ranks: 4,
    place: ringPlace(1, 1, 8),
    elements: 2 ** 22,
    activationBytes: 2,
    forwardTurnSeconds: 1,
    backwardTurnSeconds: 2,
  } as const;

  it("is none without one", () =>
    expect(ringSeconds({ ...work, ranks: 1, beside: null }, times)).toEqual({ forward: 0, backward: 0 }));

  it("is every message where nothing sends beside computation: c − 1 blocks each way, c gradients of them in float32", () => {
    const { forward, backward } = ringSeconds({ ...work, beside: null }, times);
    expect(forward).toBeCloseTo(3 * message(2 ** 23, 1), 12);
    // Where blocks and gradients are on the way at a time they share the link.
    expect(backward).toBeCloseTo(3 * message(2 ** 23, 1) + 4 * message(2 ** 24, 1), 12);
    expect(ringSeconds({ ...work, ranks: 2, beside: null }, times).backward).toBeCloseTo(
      message(2 ** 23, 1) + 2 * message(2 ** 24, 1),
      12,
    );
  });

  it("is what attention does not hide, and the way home of the gradients, where messages travel beside it", () => {
    expect(ringSeconds({ ...work, beside: { forward: 1, backward: 1 } }, times).forward).toBeCloseTo(0, 12);
    expect(ringSeconds({ ...work, beside: { forward: 1, backward: 1 } }, times).backward).toBeCloseTo(
      message(2 ** 24, 1),
      12,
    );
    const short = { ...work, forwardTurnSeconds: 1e-6, backwardTurnSeconds: 1e-6 };
    expect(ringSeconds({ ...short, beside: { forward: 1, backward: 1 } }, times).forward).toBeCloseTo(
      3 * (message(2 ** 23, 1) - 1e-6),
      12,
    );
    expect(ringSeconds({ ...short, beside: { forward: 1.2, backward: 1 } }, times).forward).toBeCloseTo(
      3 * (together(1e-6, message(2 ** 23, 1), 1.2) - 1e-6),
      12,
    );
  });

  it("takes the slower of links inside a node and between nodes, shared by as many ranks of a node as cross", () => {
    const over = (stride: number, nodes: number) =>
      ringSeconds({ ...work, place: ringPlace(stride, nodes, 8), beside: null }, times).forward / 3;
    expect(over(8, 4)).toBeCloseTo(message(2 ** 23, 2), 12);
    expect(over(16, 4)).toBeCloseTo(message(2 ** 23, 2), 12);
    expect(over(2, 2)).toBeCloseTo(Math.max(message(2 ** 23, 1), message(2 ** 21, 2)), 12);
    expect(over(2, 1)).toBeCloseTo(message(2 ** 23, 1), 12);
  });
});

describe("context parallelism in the cost model", () => {
  it("leaves the arithmetic of a rank what it is", () => {
    const flops = (contextParallel: number) =>
      layerModules(job.model, slice(contextParallel), "bf16").forward.reduce(
        (sum, { shape, count }) => sum + count * workOf(shape).flops,
        0,
      );
    for (const ring of [2, 4, 8, 32]) expect(flops(ring) / flops(1)).toBeCloseTo(1, 12);
  });

  it("adds nothing to a plan that says 1, and names its group where there is one", () => {
    const model = new CostModel(job, profile);
    expect(model.predict(planOfJob(planOf({ contextParallel: 1 }), model.job))).toEqual(
      model.predict(planOfJob(planOf(), model.job)),
    );
    expect(placementOf(planOf({ contextParallel: 1 }), job.cluster)).toEqual(
      placementOf(planOf(), job.cluster),
    );
    expect(placementOf(planOf({ contextParallel: 4 }), job.cluster).nodesPerGroup).toMatchObject({
      contextParallel: 4,
      sequenceParallel: 4,
    });
    expect(placementOf(planOf({ contextParallel: 2 }), job.cluster).nodesPerGroup).toMatchObject({
      contextParallel: 2,
    });
  });

  it("takes attention in turns, all-to-all over the ranks that share heads, and the ring's messages", () => {
    const model = new CostModel(job, profile);
    const modules = new ModuleTimes(profile, new Warnings().add);
    const ring = model.time(planOfJob(planOf({ contextParallel: 4 }), model.job));
    const layer = layerModules(job.model, slice(4), "bf16");
    const seconds = (list: typeof layer.forward) =>
      list.reduce((sum, { shape, count }) => sum + count * modules.seconds(shape), 0);
    const attention = layer.forward.find(({ shape }) => shape.module === "attention");
    expect(attention).toMatchObject({
      count: 4,
      shape: { sequence: 16_384, heads: 4, kvHeads: 1, batch: 1 },
    });
    expect(layer.backward.find(({ shape }) => shape.module === "accumulate")).toMatchObject({
      count: 3,
      shape: { elements: ringElements(job.model, slice(4)) },
    });
    expect(ringElements(job.model, slice(4))).toBe(16_384 * 2 * 128);
    const tokens = 65_536 / 32;
    const heads = { size: 8, nodes: 1 };
    const toHeads =
      2 * times.seconds("all-to-all", tokens * 4096 * 2, heads) +
      2 * times.seconds("all-to-all", tokens * 8 * 128 * 2, heads);
    const messages = 6 * message(16_384 * 2 * 128 * 2, 2) + 4 * message(16_384 * 2 * 128 * 4, 2);
    expect(ring.sequenceCommunicationSeconds / (16 * 32 * (2 * toHeads + messages))).toBeCloseTo(1, 9);
    expect(seconds(layer.forward)).toBeGreaterThan(0);
  });

  it("hides the ring behind attention where the plan overlaps, and needs nothing else of it", () => {
    const overlapping: Profile = {
      ...profile,
      executor: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
    };
    const model = new CostModel(job, overlapping);
    const plain = model.time(planOfJob(planOf({ contextParallel: 32 }), model.job));
    const beside = model.time(
      planOfJob(
        planOf({ contextParallel: 32, forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" }),
        model.job,
      ),
    );
    expect(beside.sequenceCommunicationSeconds).toBeLessThan(plain.sequenceCommunicationSeconds / 2);
    expect(beside.sequenceCommunicationSeconds).toBeGreaterThan(0);
    expect(beside.computeSeconds).toBe(plain.computeSeconds);
    // Recomputed layers send their keys and values once more.
    const again = model.time(planOfJob(planOf({ contextParallel: 32, recompute: true }), model.job));
    expect(again.sequenceCommunicationSeconds).toBeGreaterThan(plain.sequenceCommunicationSeconds);
    for (const contextParallel of [1, 2, 4, 8, 16, 32])
      expect(
        Number.isFinite(totalSeconds(model.time(planOfJob(planOf({ contextParallel }), model.job)))),
      ).toBe(true);
  });
});
