import { describe, expect, it } from "vitest";
import {
  formatBandwidth,
  formatClock,
  formatCorrelation,
  formatCounted,
  formatFlops,
  formatInteger,
  formatMoment,
  formatPercent,
  formatRate,
  formatSecondsRange,
  formatSignedPercent,
  formatSpan,
  formatTokens,
  formatZone,
  shortened,
} from "./figures.ts";

describe("figures for people", () => {
  it("separate thousands, and count in words", () => {
    expect([0, 999, 32_768, 38_572_704].map(formatInteger)).toEqual(["0", "999", "32,768", "38,572,704"]);
    expect([
      formatCounted(1, "rank"),
      formatCounted(0, "rank"),
      formatCounted(5844, "plan"),
      formatCounted(2, "family", "families"),
    ]).toEqual(["1 rank", "0 ranks", "5,844 plans", "2 families"]);
    expect([39_098.6, 3_456_789, 12.345, Number.NaN].map(formatRate)).toEqual([
      "39,099",
      "3,456,789",
      "12.3",
      "–",
    ]);
    expect([4096, 2 ** 20, 1000, 5000].map(formatTokens)).toEqual(["4k", "1M", "1,000", "5,000"]);
  });

  it("write correlations with the sign of differences", () => {
    expect([1, 0.784, -0.001, 0, -0.4, -1].map(formatCorrelation)).toEqual([
      "1.00",
      "0.78",
      "0.00",
      "0.00",
      "−0.40",
      "−1.00",
    ]);
  });

  it("write percentages in one way, and never a share that exists as none", () => {
    expect([0.476, 0, 0.0002, 1].map((share) => formatPercent(share))).toEqual([
      "47.6%",
      "0.0%",
      "< 0.1%",
      "100.0%",
    ]);
    expect(formatPercent(0.476, 0)).toBe("48%");
    expect([0.1, -0.1, 0.0004, -0.0004, 0].map((share) => formatSignedPercent(share))).toEqual([
      "+10.0%",
      "−10.0%",
      "±0.0%",
      "±0.0%",
      "±0.0%",
    ]);
  });

  it("write ranges with their unit once", () => {
    expect(formatSecondsRange({ low: 8.02, high: 8.31 })).toBe("8.02 – 8.31 s");
    expect(formatSecondsRange({ low: 0.5, high: 1.5 })).toBe("500.0 ms – 1.50 s");
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
    [36_540, "36 s"],
    [122_000, "2 min 2 s"],
  ])("spell a span of %d ms", (milliseconds, words) => {
    expect(formatSpan(milliseconds)).toBe(words);
  });

  it("keep bandwidths and arithmetic apart by unit", () => {
    expect(formatBandwidth(2.039e12)).toBe("2.04 TB/s");
    expect(formatBandwidth(4e9)).toBe("4.00 GB/s");
    expect(formatFlops(3.12e14)).toBe("312 TFLOP/s");
    expect(formatFlops(5e5)).toBe("0.500 MFLOP/s");
  });

  it("carry what rounds up to the next unit over to it", () => {
    expect([999.6, 999.6e6, 999.4e6, 2e15].map(formatBandwidth)).toEqual([
      "1.00 kB/s",
      "1.00 GB/s",
      "999 MB/s",
      "2,000 TB/s",
    ]);
    expect([999.7e12, 1.2e18].map(formatFlops)).toEqual(["1.00 PFLOP/s", "1,200 PFLOP/s"]);
    expect([999.6, 9960, 9940].map(formatSpan)).toEqual(["1.0 s", "10 s", "9.9 s"]);
  });

  it("write moments on a 24-hour clock, with their zone", () => {
    const evening = "2026-11-23T18:18:51.250Z";
    expect(formatMoment(evening, "UTC")).toBe("2026-11-23 18:18:51 UTC");
    expect(formatMoment(Date.parse(evening), "Europe/Berlin")).toBe("2026-11-23 19:18:51 CET");
    expect(formatMoment("2026-07-01T22:30:00Z", "Europe/Berlin")).toBe("2026-07-02 00:30:00 CEST");
    expect([formatClock(evening, "Asia/Shanghai"), formatZone(evening, "Asia/Shanghai")]).toEqual([
      "02:18:51",
      "GMT+8",
    ]);
    expect(formatMoment(evening)).toBe(
      formatMoment(evening, Intl.DateTimeFormat().resolvedOptions().timeZone),
    );
  });

  it("shorten names in the middle", () => {
    expect(shortened("short", 5)).toBe("short");
    expect(shortened("a-long-name-of-a-cluster", 9)).toBe("a-lo…ster");
    expect(Array.from(shortened("é".repeat(50), 10))).toHaveLength(10);
    expect(shortened("x".repeat(300), 40)).toHaveLength(40);
  });
});
