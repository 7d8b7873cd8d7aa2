import fc from "fast-check";
import type { ModuleShape, Profile } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { ModuleTimes, resized, sizeOf } from "./modules.ts";
import { shippedProfile } from "./shipped-profiles.ts";

const a800 = shippedProfile("a800-128");
const number = (...values: number[]) => fc.constantFrom(...values);
const pass = fc.constantFrom("forward" as const, "backward" as const);
const precision = fc.constantFrom("bf16" as const, "fp32" as const);

/** Shapes of every kind, of widths that profiles have and that they lack. */
const anyShape: fc.Arbitrary<ModuleShape> = fc.oneof(
  fc.record({
    module: fc.constant("linear" as const),
    pass,
    precision,
    rows: number(1, 512, 4096, 5000),
    inputs: number(64, 4096),
    outputs: number(64, 12_288),
  }),
  fc.record({
    module: fc.constant("attention" as const),
    pass,
    precision,
    batch: number(1, 2, 3),
    sequence: number(512, 4096, 6000),
    heads: number(4, 32),
    kvHeads: number(4, 32),
    headSize: number(64, 128),
  }),
  fc.record({
    module: fc.constant("rope" as const),
    pass,
    precision,
    rows: number(1, 4096),
    heads: number(4, 32),
    headSize: number(64, 128),
  }),
  fc.record({
    module: fc.constantFrom("rmsnorm" as const, "swiglu" as const),
    pass,
    precision,
    rows: number(1, 4096),
    width: number(64, 4096),
  }),
  fc.record({
    module: fc.constant("embedding" as const),
    pass,
    precision,
    rows: number(1, 4096),
    width: number(64, 4096),
    vocabulary: number(1000, 103_168),
  }),
  fc.record({
    module: fc.constant("head-loss" as const),
    pass: fc.constant("forward-backward" as const),
    precision,
    rows: number(1, 4096),
    width: number(64, 4096),
    vocabulary: number(1000, 103_168),
  }),
  fc.record({
    module: fc.constantFrom("accumulate" as const, "adamw" as const, "squared-norm" as const),
    pass: fc.constant("update" as const),
    precision,
    elements: number(64, 1 << 20),
  }),
);

const told = (profile: Profile): { times: ModuleTimes; warned: string[] } => {
  const warned: string[] = [];
  const times = new ModuleTimes(profile, (kind, item) => void warned.push(`${kind}: ${item}`));
  warned.length = 0;
  return { times, warned };
};

describe("the time of a module whose size is told later", () => {
  it("is what it is when all is told at once, with the same warnings, whatever was measured", () => {
    const measured = fc.array(fc.tuple(anyShape, fc.integer({ min: 1, max: 1000 })), { maxLength: 12 });
    fc.assert(
      fc.property(
        fc.boolean(),
        measured,
        anyShape,
        fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 4 }),
        (shipped, list, shape, sizes) => {
          const modules = list.map(([one, microseconds]) => ({
            shape: one,
            medianSeconds: microseconds / 1e6,
          }));
          const profile = shipped ? a800 : { ...a800, modules };
          const [atOnce, later] = [told(profile), told(profile)];
          const along = later.times.along(shape);
          for (const size of [sizeOf(shape), ...sizes]) {
            expect(along(size)).toBe(atOnce.times.seconds(resized(shape, size)));
            expect(along(size)).toBeGreaterThan(0);
          }
          expect(new Set(later.warned)).toEqual(new Set(atOnce.warned));
        },
      ),
      { numRuns: 300, seed: 41 },
    );
  });
});
