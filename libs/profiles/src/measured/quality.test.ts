import { noisyMeasurements, shippedProfile, type Measurements } from "@internevo/cost-model";
import { ProfileSchema, validate, type ModuleTime, type Profile } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { freshProfileWith, mergeProfiles } from "./measurements.ts";
import { marked, qualityOf, quieter } from "./quality.ts";

const limits = { mostSpreadPercent: 50, mostOthersPercent: 10 };
const shape = (rows: number): ModuleTime["shape"] => ({
  module: "rmsnorm",
  pass: "forward",
  precision: "fp32",
  rows,
  width: 8,
});
const time = (
  rows: number,
  medianSeconds: number,
  apart: number,
  over: Partial<ModuleTime> = {},
): ModuleTime => ({
  shape: shape(rows),
  medianSeconds,
  p10Seconds: medianSeconds - apart / 2,
  p90Seconds: medianSeconds + apart / 2,
  samples: 5,
  ...over,
});
const profileOf = (modules: ModuleTime[]): Profile => ({
  ...shippedProfile("a800-128"),
  modules,
  collectives: [],
  overlaps: [],
  slices: [],
});

describe("marked", () => {
  it("marks points whose samples lie too far apart, and all where other work ran beside them", () => {
    expect(marked([time(1, 1, 0.4), time(2, 1, 0.6)], false, limits).map(({ noisy }) => noisy)).toEqual([
      undefined,
      true,
    ]);
    expect(marked([time(1, 1, 0.4)], true, limits)).toMatchObject([{ noisy: true }]);
    expect(marked([{ ...time(1, 1, 0.4), noisy: true as const }], false, limits)[0]).not.toHaveProperty(
      "noisy",
    );
  });
});

describe("quieter", () => {
  it("takes the newer, unless it is noisy and the older is not, or spreads less", () => {
    const noisy = (apart: number) => time(1, 1, apart, { noisy: true });
    expect(quieter(time(1, 1, 0.1), time(1, 2, 0.9))).toMatchObject({ medianSeconds: 2 });
    expect(quieter(time(1, 1, 0.1), noisy(0.9))).not.toHaveProperty("noisy");
    expect(quieter(noisy(0.9), time(1, 2, 0.1))).not.toHaveProperty("noisy");
    expect(quieter(noisy(0.6), noisy(0.9))).toEqual(noisy(0.6));
    expect(quieter(noisy(0.9), noisy(0.6))).toEqual(noisy(0.6));
  });
  it("decides in merged profiles too", () => {
    const merged = mergeProfiles(
      profileOf([time(1, 1, 0.9, { noisy: true }), time(2, 1, 0.1)]),
      profileOf([time(1, 2, 0.1), time(2, 2, 0.9, { noisy: true })]),
    );
    expect(merged.modules.map(({ medianSeconds, noisy }) => [medianSeconds, noisy])).toEqual([
      [2, undefined],
      [1, undefined],
    ]);
  });
});

describe("a fresh profile that another job completes", () => {
  it("marks what is noisy in both measurements, and nothing else", () => {
    const noisy = (rows: number, apart: number) => time(rows, 1, apart, { noisy: true });
    const { modules } = freshProfileWith(
      profileOf([noisy(1, 0.9), noisy(2, 0.9), noisy(3, 0.9), time(4, 1, 0.1)]),
      profileOf([noisy(1, 0.8), time(2, 1, 0.1), noisy(5, 0.9)]),
    );
    expect(modules).toEqual([
      { ...noisy(1, 0.8), stillNoisy: true },
      time(2, 1, 0.1),
      noisy(3, 0.9),
      time(4, 1, 0.1),
      noisy(5, 0.9),
    ]);
  });
});

describe("the quality of a profile", () => {
  const measured = { measuredAgain: 3, hosts: [], disturbances: ["here: busy", "here: busy"] };
  const of = (noisy: number, points = 100) =>
    qualityOf(
      profileOf(
        Array.from({ length: points }, (_, rows) =>
          time(rows + 1, 1, rows < noisy ? 0.8 : 0.1, rows < noisy ? { noisy: true } : {}),
        ),
      ),
      limits,
      measured,
    );

  it("is noisy where more than a tenth of its points are", () => {
    expect(of(0)).toMatchObject({ verdict: "quiet", noisyPoints: 0, disturbances: [], measuredAgain: 3 });
    expect(of(10)).toMatchObject({ verdict: "quiet", noisyPoints: 10 });
    expect(of(11)).toMatchObject({
      verdict: "noisy",
      noisyPoints: 11,
      points: 100,
      disturbances: ["here: busy"],
    });
    expect(of(11).worstSpreadPercent).toBeCloseTo(80, 9);
  });
  it("is a part of a profile that profiles of before lack", () => {
    const old = profileOf([time(1, 1, 0.1)]);
    expect(validate(ProfileSchema, old, "profile-invalid", "it")).not.toHaveProperty("quality");
    expect(
      validate(ProfileSchema, { ...old, quality: of(11) }, "profile-invalid", "it").quality?.verdict,
    ).toBe("noisy");
  });
});

it("noisyMeasurements are those of the needed ones that a profile has, but noisily", () => {
  const needed: Measurements = {
    modules: [shape(1), shape(2), shape(3)],
    collectives: [],
    overlaps: [],
    slices: [],
  };
  expect(
    noisyMeasurements(
      profileOf([time(1, 1, 0.9, { noisy: true }), time(2, 1, 0.1), time(4, 1, 0.9, { noisy: true })]),
      needed,
    ).modules,
  ).toEqual([shape(1)]);
});
