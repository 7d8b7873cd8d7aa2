import { describe, expect, it } from "vitest";
import { formatLoss, formatRelative, formatSignedPercent, relativeError } from "./format.ts";

describe("figures for people", () => {
  it("signs a relative error: above zero is predicted too slow", () => {
    expect(formatSignedPercent(relativeError(110, 100))).toBe("+10.0%");
    expect(formatSignedPercent(relativeError(90, 100))).toBe("−10.0%");
  });

  it("writes losses with four decimals", () => {
    expect(formatLoss(1.93397)).toBe("1.9340");
    expect(formatLoss(Number.NaN)).toBe("NaN");
  });

  it("spells how far a moment is", () => {
    const now = 1e12;
    expect(formatRelative(now - 1000, now)).toBe("just now");
    expect(formatRelative(now - 185_000, now)).toBe("3 min ago");
    expect(formatRelative(now + 6 * 3_600_000, now)).toBe("in 6 h");
  });
});
