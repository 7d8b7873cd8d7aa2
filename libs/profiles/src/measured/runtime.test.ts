import { expect, it } from "vitest";
import { plannedRuntimeBytes } from "./runtime.ts";

it("is enough for the starts of a program that were measured on processors", () => {
  const starts = [18_259_968, 18_460_672];
  for (const measured of starts)
    for (const other of starts) expect(plannedRuntimeBytes(measured, {})).toBeGreaterThanOrEqual(other);
});

it("is what was measured on GPUs", () => {
  expect(plannedRuntimeBytes(2 ** 31, { device: "cuda" })).toBe(2 ** 31);
});
