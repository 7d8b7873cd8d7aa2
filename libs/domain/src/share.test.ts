import { expect, it } from "vitest";
import { percentOf, readPercent, readShare, shareOfPercent } from "./share.ts";

it("writes a share in percent, and reads it back, without what binary fractions add", () => {
  for (let percent = 0; percent <= 1000; percent++) {
    const share = Number(`${percent}e-3`);
    expect(String(percentOf(share))).toBe(String(percent / 10));
    expect(shareOfPercent(percentOf(share))).toBe(share);
  }
  expect(percentOf(0.07)).toBe(7);
  expect(shareOfPercent(0.7)).toBe(0.007);
});

it("reads a share with and without a percent sign", () => {
  expect(["5%", "5 %", " 0.7% ", "0.05", "-2%", "-0.02", "0", "1e-3", ".5", "+5%"].map(readShare)).toEqual([
    0.05, 0.05, 0.007, 0.05, -0.02, -0.02, 0, 0.001, 0.5, 0.05,
  ]);
  for (const text of ["", "%", "5%%", "five", "5 percent", "0,05", "0x1", "Infinity"])
    expect(readShare(text), text).toBeUndefined();
});

it("reads percent only with their sign", () => {
  expect(["5%", "99.9 %", "5", "5GB"].map(readPercent)).toEqual([5, 99.9, undefined, undefined]);
});
