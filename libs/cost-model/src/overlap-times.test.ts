import type { ModuleShape, Overlap } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { mixed, NO_SLOWDOWN, OverlapTimes } from "./overlap-times.ts";
import { Warnings } from "./warnings.ts";

const linear = (pass: "forward" | "backward"): ModuleShape => ({
  module: "linear",
  pass,
  precision: "bf16",
  rows: 64,
  inputs: 64,
  outputs: 64,
});
const attention: ModuleShape = {
  module: "attention",
  pass: "forward",
  precision: "bf16",
  batch: 1,
  sequence: 64,
  heads: 4,
  kvHeads: 4,
  headSize: 16,
};
const times = (...overlaps: Overlap[]) => {
  const warnings = new Warnings();
  return { of: new OverlapTimes({ overlaps }, warnings.add), warnings };
};
const ANY = [1024];
const inside = (size: number) => ({ size, nodes: 1 });

describe("the slow-down of what runs side by side", () => {
  it("is that of what computes, in its pass, and of what communicates where", () => {
    const { of } = times(
      { shape: linear("forward"), op: "all-gather", groupSize: 2, placement: "intra-node", slowdown: 1.1 },
      { shape: linear("backward"), op: "all-gather", groupSize: 2, placement: "intra-node", slowdown: 1.2 },
      { shape: attention, op: "all-gather", groupSize: 2, placement: "intra-node", slowdown: 1.3 },
      { shape: linear("forward"), op: "all-gather", groupSize: 2, placement: "inter-node", slowdown: 1.4 },
      { shape: linear("forward"), op: "all-gather", groupSize: 8, placement: "intra-node", slowdown: 1.5 },
      {
        shape: linear("backward"),
        op: "reduce-scatter",
        groupSize: 2,
        placement: "intra-node",
        slowdown: 1.6,
      },
    );
    expect(of.slowdown("all-gather", "forward", inside(2), ANY)).toEqual({ product: 1.1, attention: 1.3 });
    expect(of.slowdown("all-gather", "backward", inside(2), ANY).product).toBe(1.2);
    expect(of.slowdown("all-gather", "forward", { size: 2, nodes: 2 }, ANY).product).toBe(1.4);
    // The nearest group that was measured, by ratio.
    expect(of.slowdown("all-gather", "forward", inside(6), ANY).product).toBe(1.5);
    expect(of.slowdown("reduce-scatter", "backward", inside(2), ANY).product).toBe(1.6);
    expect(of.slowdown("all-gather", "forward", inside(1), ANY)).toBe(NO_SLOWDOWN);
  });

  it("is taken from another collective with a warning, and is none where nothing was measured", () => {
    const { of, warnings } = times({ op: "all-gather", groupSize: 2, slowdown: 1.25 });
    expect(of.slowdown("point-to-point", "forward", inside(2), ANY).attention).toBe(1.25);
    expect(warnings.lines.join()).toMatch(/lacks for a collective.*point-to-point/);
    expect(times().of.slowdown("all-gather", "forward", inside(2), ANY).product).toBe(1);
  });

  it("is laid on the time that both run: two that take turns on one core have R = 2, whatever their lengths", () => {
    for (const [computeSeconds, communicationSeconds] of [
      [1, 1],
      [3, 1],
      [1, 4],
    ] as const) {
      const slowdown =
        (computeSeconds + communicationSeconds) / Math.max(computeSeconds, communicationSeconds);
      const { of } = times({
        shape: linear("forward"),
        op: "all-gather",
        groupSize: 2,
        slowdown,
        computeSeconds,
        communicationSeconds,
      });
      expect(of.slowdown("all-gather", "forward", inside(2), ANY).product).toBeCloseTo(2, 12);
    }
  });

  it("depends on how long messages are: by how much of the traffic each is, between those measured, flat beyond", () => {
    const sized = (bytes: number, slowdown: number): Overlap => ({
      shape: linear("forward"),
      op: "all-gather",
      groupSize: 2,
      bytes,
      slowdown,
    });
    const { of } = times(sized(16_384, 1.2), sized(1024, 1.5), sized(1024, 2));
    const product = (...messages: number[]) =>
      of.slowdown("all-gather", "forward", inside(2), messages).product;
    expect([product(1024), product(16_384), product(16), product(2 ** 20)]).toEqual([1.75, 1.2, 1.75, 1.2]);
    expect(product(4096)).toBeCloseTo(1.475, 12);
    expect(product(1024, 4096)).toBeCloseTo((1.75 + 4 * 1.475) / 5, 12);
    // A profile that does not say of which size is one for all.
    expect(
      times(sized(16_384, 1.2), {
        shape: linear("forward"),
        op: "all-gather",
        groupSize: 2,
        slowdown: 1.4,
      }).of.slowdown("all-gather", "forward", inside(2), [16]).product,
    ).toBeCloseTo(1.3, 12);
  });

  it("is never a speed-up, and noise of a long one does not speak for a short one", () => {
    expect(
      times({
        op: "all-gather",
        groupSize: 2,
        slowdown: 0.9,
        computeSeconds: 1,
        communicationSeconds: 0.1,
      }).of.slowdown("all-gather", "forward", inside(2), ANY).product,
    ).toBe(1);
    expect(
      times({
        op: "all-gather",
        groupSize: 2,
        slowdown: 1.01,
        computeSeconds: 1,
        communicationSeconds: 1e-6,
      }).of.slowdown("all-gather", "forward", inside(2), ANY).product,
    ).toBeLessThan(1.1);
  });

  it("of computation of both kinds lies between theirs", () => {
    expect(mixed({ product: 1, attention: 2 }, 1, 4)).toBe(1.25);
    expect(mixed({ product: 1, attention: 2 }, 0, 0)).toBe(1);
  });
});
