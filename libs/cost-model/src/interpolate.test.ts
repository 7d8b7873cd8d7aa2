import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { between, Curve } from "./interpolate.ts";

const points = fc.array(
  fc.record({
    at: fc.integer({ min: 1, max: 1e9 }),
    seconds: fc.double({ min: 1e-9, max: 1e3, noNaN: true }),
  }),
  { minLength: 1, maxLength: 12 },
);

describe("Curve", () => {
  it("never shrinks with size, whatever was measured", () => {
    fc.assert(
      fc.property(
        points,
        fc.array(fc.double({ min: 0.5, max: 1e10, noNaN: true }), { minLength: 2, maxLength: 20 }),
        (measured, sizes) => {
          const curve = new Curve(measured);
          const times = sizes.sort((a, b) => a - b).map((size) => curve.seconds(size));
          for (const [i, time] of times.entries()) {
            expect(Number.isFinite(time) && time > 0).toBe(true);
            if (i > 0) expect(time).toBeGreaterThanOrEqual((times[i - 1] as number) * (1 - 1e-12));
          }
        },
      ),
      { seed: 1 },
    );
  });

  it("goes through monotone measurements, on a log–log line between them", () => {
    const curve = new Curve([
      { at: 100, seconds: 1 },
      { at: 400, seconds: 4 },
      { at: 1600, seconds: 8 },
    ]);
    expect(curve.seconds(100)).toBeCloseTo(1, 12);
    expect(curve.seconds(400)).toBeCloseTo(4, 12);
    expect(curve.seconds(200)).toBeCloseTo(2, 12);
    expect(curve.seconds(800)).toBeCloseTo(4 * Math.SQRT2, 12);
    expect(curve.smoothed).toEqual([]);
  });

  it("is flat below the measurements (latency) and proportional above (bandwidth)", () => {
    const curve = new Curve([
      { at: 100, seconds: 1 },
      { at: 200, seconds: 3 },
    ]);
    expect(curve.seconds(1)).toBeCloseTo(1, 12);
    expect(curve.seconds(2000)).toBeCloseTo(30, 9);
  });

  it("brings an outlier down to the next larger size, and says so", () => {
    // reduce-scatter over 4 ranks of the shipped measurements: 512 KiB, 1 MiB, 4 MiB.
    const curve = new Curve([
      { at: 524_288, seconds: 40.631e-6 },
      { at: 1_048_576, seconds: 399.85e-6 },
      { at: 4_194_304, seconds: 62.968e-6 },
    ]);
    expect(curve.seconds(1_048_576)).toBeCloseTo(62.968e-6, 12);
    expect(curve.smoothed).toEqual([{ at: 1_048_576, seconds: 399.85e-6 }]);
  });
});

describe("between", () => {
  it("meets the curves at their sizes and lies between them", () => {
    const times = [1, 4, 5];
    const at = (size: number) =>
      between(
        [2, 8, 32],
        size,
        (i) => times[i] as number,
        () => 1,
      );
    expect([at(2), at(8), at(32)]).toEqual([1, 4, 5]);
    expect(at(4)).toBeCloseTo(2, 12);
    expect(at(64)).toBeCloseTo(10, 12);
    expect(at(1)).toBeCloseTo(0.5, 12);
  });
});
