import { resolveJob } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { requiredMeasurements } from "./measurements.ts";

const small = resolveJob({
  name: "small",
  model: { hiddenSize: 256, layers: 4, heads: 8, kvHeads: 4, vocabularySize: 256 },
  sequenceLengthTokens: 256,
  globalBatchTokens: 16 * 256,
  precision: "fp32",
  cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "2GB" },
});

describe("requiredMeasurements", () => {
  it("asks for each point once, with groups that partition the ranks", () => {
    const { modules, collectives } = requiredMeasurements(small);
    expect(new Set(modules.map((shape) => JSON.stringify(shape))).size).toBe(modules.length);
    expect(new Set(collectives.map((request) => JSON.stringify(request))).size).toBe(collectives.length);
    for (const { groups, bytes } of collectives) {
      expect(groups.flat().sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      expect(bytes % (groups[0]?.length ?? 0)).toBe(0);
    }
    expect(new Set(collectives.map(({ groups }) => groups[0]?.length))).toEqual(new Set([2, 4, 8]));
    expect(new Set(collectives.map(({ op }) => op))).toEqual(new Set(["all-gather", "reduce-scatter", "all-reduce", "all-to-all"]));
  });

  it("asks for attention over whole sequences with the heads of every sequence split", () => {
    const { modules } = requiredMeasurements(small);
    const heads = new Set(modules.flatMap((shape) => (shape.module === "attention" ? [shape.heads] : [])));
    expect(heads).toEqual(new Set([8, 4, 2, 1]));
    for (const shape of modules) if (shape.module === "attention") expect(shape.sequence).toBe(256);
  });

  it("asks for the slow-down of what an executor overlaps: a product beside the traffic of parameters, for every group", () => {
    const { modules, overlaps } = requiredMeasurements(small);
    expect(overlaps.map(({ module, collective }) => [module.pass, collective.op, collective.groups[0]?.length])).toEqual([
      ["forward", "all-gather", 2], ["forward", "all-gather", 4], ["forward", "all-gather", 8],
      ["backward", "reduce-scatter", 2], ["backward", "reduce-scatter", 4], ["backward", "reduce-scatter", 8],
    ]);
    for (const { module, collective } of overlaps) {
      expect(modules).toContainEqual(module);
      expect(collective.bytes % (collective.groups[0]?.length ?? 0)).toBe(0);
    }
  });

  it("stays bounded", () => {
    const { modules, collectives } = requiredMeasurements(small);
    expect(modules.length).toBeLessThan(200);
    expect(collectives.length).toBeLessThan(120);
  });
});
