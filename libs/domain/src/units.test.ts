import { growth } from "@internevo/test-kit";
import { describe, expect, it } from "vitest";
import {
  aboutSeconds,
  formatBytes,
  formatSeconds,
  parseBytes,
  parseQuantity,
  readMemory,
  writeBytes,
} from "./units.ts";

describe("parseBytes", () => {
  it.each([
    [80e9, 80e9],
    ["80GB", 80e9],
    ["80G", 80e9],
    ["80 gb", 80e9],
    [" 512 MiB ", 512 * 2 ** 20],
    ["512Mi", 512 * 2 ** 20],
    ["1.5 KiB", 1536],
    ["17", 17],
    ["17B", 17],
    ["8e10", 80e9],
    ["0", 0],
  ])("reads %j", (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  it.each([
    "",
    "GB",
    "-1GB",
    "1 constructor",
    "1 toString",
    "1.GB",
    "012GB",
    "9".repeat(40),
    "1e999",
    "1GB 2GB",
    1.5,
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
  ])("takes %j for no byte count", (text) => {
    expect(parseBytes(text)).toBeUndefined();
  });

  it.each([
    ["blanks", (size: number) => `1${" ".repeat(size)}!`],
    ["digits", (size: number) => `${"1".repeat(size)}!`],
    ["letters", (size: number) => `1${"a".repeat(size)}!`],
    ["decimals", (size: number) => `.${"1".repeat(size)}!`],
  ])("takes no longer than it takes to read: %s", async (_what, text) => {
    const parse = (size: number): void => expect(parseBytes(text(size))).toBeUndefined();
    expect(await growth(parse, 4_000, 8)).toBeLessThan(24);
    parse(1_000_000);
  });
});

describe("parseQuantity", () => {
  it.each([
    ["4k", "lengthTokens", 4096],
    ["4K", "lengthTokens", 4096],
    ["4M", "lengthTokens", 4 * 2 ** 20],
    ["4 m", "lengthTokens", 4 * 2 ** 20],
    ["1.5k", "lengthTokens", 1536],
    [4096, "lengthTokens", 4096],
    ["2T", "trainingTokens", 2e12],
    ["300B", "trainingTokens", 300e9],
    ["2e12", "trainingTokens", 2e12],
    ["1.5 t", "trainingTokens", 1.5e12],
    ["1e18", "trainingTokens", 1e18],
  ] as const)("reads %j as %s", (text, kind, count) => {
    expect(parseQuantity(text, kind)).toBe(count);
  });

  it.each([
    ["4kB", "lengthTokens"],
    ["1.5", "lengthTokens"],
    ["4b", "lengthTokens"],
    ["2TB", "trainingTokens"],
    ["1e19", "trainingTokens"],
    ["a lot", "trainingTokens"],
  ] as const)("takes %j for no count of %s", (text, kind) => {
    expect(parseQuantity(text, kind)).toBeUndefined();
  });
});

describe("readMemory", () => {
  it.each([
    ["80GB", 80e9],
    ["80B", 80],
    [2 ** 20, 2 ** 20],
    ["80000000000", 80e9],
  ])("reads %j", (text, bytes) => {
    expect(readMemory(text)).toEqual({ bytes });
  });

  it.each([
    [80, "80GB"],
    ["80", "80GB"],
    [" 80 ", "80GB"],
    [1023, "1023GB"],
    [1024, "1024MiB"],
    [2048, "2048MiB"],
    [2 ** 20 - 1, "1048575MiB"],
  ])("takes %j for %s whose unit was forgotten", (text, meant) => {
    const bytes = Number(text);
    expect(readMemory(text)).toEqual({
      message: `is ${bytes} bytes`,
      remedy: `did you mean ${meant}? For bytes, write ${bytes}B`,
    });
  });

  it.each(["lots", "", 0, "0GB", -1, "2000TiB"])("refuses %j with a remedy", (text) => {
    expect(readMemory(text)).toMatchObject({
      message: expect.stringMatching(/^is /),
      remedy: expect.stringMatching(/^give /),
    });
  });
});

describe("formats for people", () => {
  it("write bytes and seconds in units of their size", () => {
    expect([0, 1023, 1024, 80e9, 2 ** 50].map(formatBytes)).toEqual([
      "0 B",
      "1023 B",
      "1.00 KiB",
      "74.5 GiB",
      "1024.0 TiB",
    ]);
    expect([5e-6, 0.0015, 0.25, 90, 600, 7200, 172_799, 1_338_120].map(formatSeconds)).toEqual([
      "5 µs",
      "1.50 ms",
      "250.0 ms",
      "90.00 s",
      "10.0 min",
      "2.0 h",
      "2.0 d",
      "15.5 d",
    ]);
    expect(
      [0, 4.88e-7, 9.996e-7, 4e-10].map(formatSeconds),
      "what takes time is never written as none",
    ).toEqual(["0 s", "488 ns", "1 µs", "< 1 ns"]);
  });

  it("carry what rounds up to the next unit over to it", () => {
    expect([1_048_570, 1_048_524, 1023.97 * 2 ** 30, 9.999 * 1024].map(formatBytes)).toEqual([
      "1.00 MiB",
      "1023.9 KiB",
      "1.00 TiB",
      "10.0 KiB",
    ]);
    expect([0.000_999_6, 0.009_996, 0.999_96, 119.996, 7199, 172_790].map(formatSeconds)).toEqual([
      "1.00 ms",
      "10.0 ms",
      "1.00 s",
      "2.0 min",
      "2.0 h",
      "2.0 d",
    ]);
  });

  it("write about how long something takes as people say it", () => {
    expect([0, 4, 5, 34, 54, 60, 89, 90, 156, 3300, 5399, 7300].map(aboutSeconds)).toEqual([
      "a few seconds",
      "a few seconds",
      "about 10 seconds",
      "about 30 seconds",
      "about 50 seconds",
      "about a minute",
      "about a minute",
      "about 2 minutes",
      "about 3 minutes",
      "about an hour",
      "about an hour",
      "about 2 hours",
    ]);
  });

  it("write bytes exactly, in the largest unit that divides them", () => {
    expect([80e9, 2 ** 31, 512 * 2 ** 20, 1.5e12, 81, 2 ** 50].map(writeBytes)).toEqual([
      "80GB",
      "2GiB",
      "512MiB",
      "1500GB",
      "81B",
      "1024TiB",
    ]);
    for (const bytes of [1, 999, 1000, 1024, 123_456_789, 80e9, 2 ** 50 - 1, 2 ** 50])
      expect(parseBytes(writeBytes(bytes))).toBe(bytes);
  });
});
