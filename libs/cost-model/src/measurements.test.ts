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
    for (const { op, groups, bytes } of collectives) {
      if (op === "point-to-point") expect(groups.every((group) => group.length === 2)).toBe(true);
      expect(groups.flat().sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      expect(bytes % (groups[0]?.length ?? 0)).toBe(0);
    }
    expect(new Set(collectives.map(({ groups }) => groups[0]?.length))).toEqual(new Set([2, 4, 8]));
    expect(new Set(collectives.map(({ op }) => op))).toEqual(
      new Set(["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "point-to-point"]),
    );
  });

  it("asks for messages between neighbouring stages inside a node and between nodes, whatever the numbers", () => {
    const pairs = (nodes: number, gpusPerNode: number) =>
      Object.fromEntries(
        requiredMeasurements({ ...small, cluster: { ...small.cluster, nodes, gpusPerNode } })
          .collectives.filter(({ op }) => op === "point-to-point")
          .map(({ placement, groups }) => [placement, groups]),
      );
    expect(pairs(1, 4)).toEqual({
      "intra-node": [
        [0, 1],
        [2, 3],
      ],
    });
    expect(pairs(1, 3)).toEqual({ "intra-node": [[0, 1]] });
    expect(pairs(2, 2)).toEqual({
      "intra-node": [
        [0, 1],
        [2, 3],
      ],
      "inter-node": [
        [0, 2],
        [1, 3],
      ],
    });
    expect(pairs(3, 1)).toEqual({ "inter-node": [[0, 1]] });
    expect(pairs(1, 1)).toEqual({});
  });

  it("asks for the products of a tensor rank: its part of the widths over all rows", () => {
    const { modules } = requiredMeasurements(small);
    for (const tp of [2, 4, 8]) {
      for (const outputs of [
        256 / tp + 2 * (Math.max(1, 4 / tp) * 32),
        (2 * small.model.ffnHiddenSize) / tp,
      ]) {
        expect(
          modules.some(
            (shape) =>
              shape.module === "linear" &&
              shape.inputs === 256 &&
              shape.outputs === outputs &&
              shape.rows === 256,
          ),
          `${tp} ranks, ${outputs} outputs`,
        ).toBe(true);
      }
      expect(modules.some((shape) => shape.module === "head-loss" && shape.vocabulary === 256 / tp)).toBe(
        true,
      );
    }
  });

  it("asks for attention over whole sequences with the heads of every sequence split", () => {
    const { modules } = requiredMeasurements(small);
    const heads = new Set(modules.flatMap((shape) => (shape.module === "attention" ? [shape.heads] : [])));
    expect(heads).toEqual(new Set([8, 4, 2, 1]));
    for (const shape of modules)
      if (shape.module === "attention" && shape.sequence === 256) expect(shape.batch).toBeLessThanOrEqual(16);
  });

  it("asks for what a ring runs: attention over its parts of the sequence, with all heads too, sums of gradients, and messages between neighbours", () => {
    const { modules, collectives } = requiredMeasurements(small);
    const attention = modules.flatMap((shape) => (shape.module === "attention" ? [shape] : []));
    expect(new Set(attention.map(({ sequence }) => sequence))).toEqual(new Set([256, 128, 64, 32]));
    for (const sequence of [128, 64, 32])
      for (const pass of ["forward", "backward"]) {
        const points = attention.filter((shape) => shape.sequence === sequence && shape.pass === pass);
        expect(Math.max(...points.map(({ heads }) => heads)), `${sequence} ${pass}`).toBe(8);
        expect(points.length).toBeLessThan(12);
      }
    // Keys and values of 32 tokens, four heads of 32: the smallest of a ring of 8.
    expect(modules).toContainEqual({
      module: "accumulate",
      pass: "update",
      precision: "fp32",
      elements: 32 * 2 * 4 * 32,
    });
    const messages = collectives.filter(({ op }) => op === "point-to-point").map(({ bytes }) => bytes);
    expect(Math.min(...messages)).toBeLessThanOrEqual(4 * 32 * 2 * 4 * 32);
    const odd = requiredMeasurements({ ...small, sequenceLengthTokens: 264, globalBatchTokens: 16 * 264 });
    expect(
      new Set(odd.modules.flatMap((shape) => (shape.module === "attention" ? [shape.sequence] : []))),
    ).toEqual(new Set([264, 132, 66]));
  });

  it("asks for the slow-down of what an executor overlaps: products and attention beside the traffic of parameters, for every group, and attention beside a ring's", () => {
    const { modules, overlaps } = requiredMeasurements(small);
    const traffic = [2, 4, 8].flatMap((ranks) =>
      [1, 2].flatMap(() => [
        ["forward", "all-gather", ranks],
        ["backward", "reduce-scatter", ranks],
      ]),
    );
    expect(
      overlaps.map(({ module, collective }) => [
        module.module,
        module.pass,
        collective.op,
        collective.groups[0]?.length,
      ]),
    ).toEqual([
      ...traffic.map((one) => ["linear", ...one]),
      ...traffic.map((one) => ["attention", ...one]),
      ["attention", "forward", "point-to-point", 2],
    ]);
    for (const { module, collective } of overlaps) {
      expect(modules).toContainEqual(module);
      expect(collective.bytes % (collective.groups[0]?.length ?? 0)).toBe(0);
    }
    // The smallest and the largest unit of a layer: attention's output, gate and up.
    const { hiddenSize, ffnHiddenSize } = small.model;
    const gathers = overlaps
      .filter(({ collective }) => collective.op === "all-gather")
      .map(({ collective }) => collective.bytes / 4);
    expect(Math.min(...gathers)).toBe(hiddenSize * hiddenSize);
    expect(Math.max(...gathers)).toBeGreaterThanOrEqual(hiddenSize + 2 * hiddenSize * ffnHiddenSize);
    // Without a ring among the plans there is none to measure.
    const single = requiredMeasurements({ ...small, sequenceLengthTokens: 255, globalBatchTokens: 16 * 255 });
    expect(single.overlaps.some(({ collective }) => collective.op === "point-to-point")).toBe(false);
  });

  it("stays bounded", () => {
    const { modules, collectives } = requiredMeasurements(small);
    expect(modules.length).toBeLessThan(300);
    expect(collectives.length).toBeLessThan(130);
  });
});
