import { TrainerConfigSchema } from "@internevo/contracts";
import { requiredMeasurements } from "@internevo/cost-model";
import { resolveJob, validate, type SliceRequest } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { sliceRun } from "./slices.ts";

const fields = { headSize: 96, queryKeyNorm: true, queryKeyValueBias: true, slidingWindowTokens: 512 };
const sliceOf = (model: Record<string, unknown>): SliceRequest => {
  const job = resolveJob({
    name: "any",
    model: { hiddenSize: 512, layers: 2, heads: 8, kvHeads: 4, vocabularySize: 300, ...model },
    sequenceLengthTokens: 1024,
    globalBatchTokens: 16_384,
    cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "8GB" },
  });
  return requiredMeasurements(job).slices[0] as SliceRequest;
};
const configOf = (model: Record<string, unknown>) =>
  sliceRun(sliceOf(model), {
    ranks: 2,
    threadsPerRank: 1,
    cluster: {},
    device: {
      peakFlopsPerSecondFp32: 1e12,
      peakFlopsPerSecondBf16: 1e12,
      memoryBandwidthBytesPerSecond: 1e11,
    },
    seconds: 1,
    dataPath: "any.tokens",
    timelinePath: "any.json",
  }).config;

describe("the run of a slice", () => {
  it("trains a model with what the job's has, so that it is timed", () => {
    const config = configOf(fields);
    expect(config.model).toMatchObject({ hiddenSize: 512, heads: 8, kvHeads: 4, ...fields });
    expect(() =>
      validate(TrainerConfigSchema, config, "plan-invalid", "the trainer's configuration"),
    ).not.toThrow();
  });

  it("says nothing of what a model has not, nor of how positions are scaled", () => {
    const plain = configOf({});
    expect(Object.keys(plain.model).sort()).toEqual(
      [
        "ffnHiddenSize",
        "heads",
        "hiddenSize",
        "initStandardDeviation",
        "kvHeads",
        "layers",
        "normEpsilon",
        "ropeTheta",
        "tiedEmbeddings",
        "vocabularySize",
      ].sort(),
    );
    expect(configOf({ ropeScaling: { kind: "linear", factor: 2 } })).toEqual(plain);
  });
});
