import { describe, expect, it } from "vitest";
import {
  formatBandwidth,
  formatFlops,
  formatLoss,
  formatRelative,
  formatSignedPercent,
  formatSpan,
  relativeError,
} from "./format.ts";

describe("figures for people", () => {
  it("signs a relative error: above zero is predicted too slow", () => {
    expect(formatSignedPercent(relativeError(110, 100))).toBe("+10.0%");
    expect(formatSignedPercent(relativeError(90, 100))).toBe("−10.0%");
  });

  it("keeps losses, bandwidths and arithmetic apart by unit", () => {
    expect(formatLoss(1.93397)).toBe("1.9340");
    expect(formatLoss(Number.NaN)).toBe("NaN");
    expect(formatBandwidth(2.039e12)).toBe("2.04 TB/s");
    expect(formatBandwidth(4e9)).toBe("4.00 GB/s");
    expect(formatFlops(3.12e14)).toBe("312 TFLOP/s");
  });

  it.each([
    [222, "222 ms"],
    [4200, "4.2 s"],
    [42_000, "42 s"],
    [185_000, "3 min 5 s"],
    [7_440_000, "2 h 4 min"],
    [90_000_000, "1 d 1 h"],
    [120_000, "2 min"],
    [-5, "0 ms"],
  ])("spells a span of %d ms", (milliseconds, words) => {
    expect(formatSpan(milliseconds)).toBe(words);
  });

  it("spells how far a moment is", () => {
    const now = 1e12;
    expect(formatRelative(now - 1000, now)).toBe("just now");
    expect(formatRelative(now - 185_000, now)).toBe("3 min ago");
    expect(formatRelative(now + 6 * 3_600_000, now)).toBe("in 6 h");
  });
});
