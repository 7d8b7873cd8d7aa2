import { expect, it } from "vitest";
import { percentFault, shareOfField } from "./percent.ts";

it("takes percent within bounds, and says what to give for nothing", () => {
  expect([0, 7, "5", 100].map((value) => percentFault(value, 0, 100))).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
  for (const value of ["", " ", "-", -1, 101, Number.NaN])
    expect(percentFault(value, 0, 100), String(value)).toBe("Give a number from 0 to 100");
});

it("sends what was typed", () => {
  expect(shareOfField(7)).toBe(0.07);
  expect(shareOfField("0.7")).toBe(0.007);
});
