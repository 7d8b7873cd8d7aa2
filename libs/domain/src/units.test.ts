import { describe, expect, it } from "vitest";
import { formatBytes, formatSeconds, parseBytes } from "./units.ts";

describe("parseBytes", () => {
  it.each([
    [80e9, 80e9],
    ["80GB", 80e9],
    [" 512 MiB ", 512 * 2 ** 20],
    ["1.5 KiB", 1536],
    ["17", 17],
    ["0", 0],
  ])("reads %j", (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  it.each(["", "GB", "-1GB", "1e3", "1 constructor", "1 toString", "80 gb", "1.GB", "9".repeat(40), "1GB 2GB", 1.5, -1, Number.NaN, Number.POSITIVE_INFINITY])("takes %j for no byte count", (text) => {
    expect(parseBytes(text)).toBeUndefined();
  });

  it("answers at once, whatever it is given", () => {
    const begin = performance.now();
    for (const text of [`1${" ".repeat(1_000_000)}!`, `${"1".repeat(1_000_000)}!`, `1${"a".repeat(1_000_000)}!`]) expect(parseBytes(text)).toBeUndefined();
    expect(performance.now() - begin).toBeLessThan(1000);
  }, 5000);
});

describe("formats for people", () => {
  it("write bytes and seconds in units of their size", () => {
    expect([0, 1023, 1024, 80e9, 2 ** 50].map(formatBytes)).toEqual(["0 B", "1023 B", "1.00 KiB", "74.5 GiB", "1024.0 TiB"]);
    expect([5e-6, 0.0015, 0.25, 90, 600, 7200].map(formatSeconds)).toEqual(["5 µs", "1.50 ms", "250.0 ms", "90.00 s", "10.0 min", "2.0 h"]);
  });
});
