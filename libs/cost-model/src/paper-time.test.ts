import { aPlan } from "@internevo/test-kit";
import { layerParameters, NAMED_MODELS, resolveJob, type Model, type Plan } from "@internevo/domain";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { paperTime, type Tau } from "./paper-time.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { totalSeconds } from "./step-time.ts";

const model = NAMED_MODELS["llama-7b"] as Model;
const job = resolveJob({
  name: "text",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  precision: "bf16-grad16",
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const slice = new CostModel(job, shippedProfile("a800-128")).sliceTime(2, aPlan({ dataParallel: 128 }));
const { forwardSeconds, backwardSeconds, recomputeSeconds, embeddingSeconds, headSeconds } = slice;
const planOf = (over: Partial<Plan> = {}): Plan =>
  aPlan({ microBatchSize: 2, microBatches: 4, dataParallel: 128, ...over });
const nothing: Tau = () => 0;

describe("the paper's text as time", () => {
  it("is (n + s_pp - 1) times T_other and R times the layers of a stage, where nothing is sent", () => {
    for (const pipelineParallel of [1, 4]) {
      for (const recompute of [false, true]) {
        const time = paperTime(job, planOf({ pipelineParallel, recompute }), slice, nothing);
        const layer = forwardSeconds + backwardSeconds + (recompute ? recomputeSeconds : 0);
        const once = embeddingSeconds + headSeconds + (32 / pipelineParallel) * 1.3 * layer;
        expect(totalSeconds(time)).toBeCloseTo((4 + pipelineParallel - 1) * once, 9);
      }
    }
  });

  it("asks for the collectives of its equations", () => {
    const asked: unknown[] = [];
    const plan = planOf({
      dataParallel: 32,
      sequenceParallel: 4,
      parameterSharding: 8,
      optimizerStateSharding: 2,
      gradientSharding: 2,
    });
    paperTime(job, plan, slice, (...call) => {
      asked.push(call);
      return 0;
    });
    const stream = 2 * 2 * 4096 * model.hiddenSize;
    const layer = 2 * layerParameters(model);
    expect(asked).toEqual([
      ["all-to-all", (3 * stream) / 4, 4, 1],
      ["all-to-all", stream / 4, 4, 1],
      ["all-gather", layer, 8, 1],
      ["reduce-scatter", layer, 8, 1],
      ["all-reduce", layer / 8, 16, 8],
      ["reduce-scatter", layer / 8, 2, 8],
      ["all-reduce", layer / 8, 16, 8],
    ]);
  });

  it("takes R times the longer of what is computed and what is sent", () => {
    const plan = planOf({ parameterSharding: 8, optimizerStateSharding: 2 });
    const computed = forwardSeconds + backwardSeconds;
    fc.assert(
      fc.property(fc.double({ min: 1e-6, max: 1, noNaN: true }), (seconds) => {
        const time = paperTime(job, plan, slice, (op, _bytes, size) =>
          size === 1 || op === "all-reduce" ? 0 : seconds,
        );
        // Two all-gathers and a reduce-scatter of a layer, and one reduce-scatter of it a step.
        const once = embeddingSeconds + headSeconds + 32 * 1.3 * Math.max(computed, 3 * seconds);
        expect(totalSeconds(time)).toBeCloseTo(4 * once + 32 * seconds, 9);
        for (const part of Object.values(time)) expect(part).toBeGreaterThanOrEqual(0);
      }),
    );
  });
});
