import { expect, it } from "vitest";
import { disturbancesOf } from "./host-use.ts";
import { qualityWords, type ProfileQuality } from "./profile.ts";

const quality: ProfileQuality = {
  verdict: "noisy",
  points: 5844,
  noisyPoints: 1710,
  mostSpreadPercent: 100,
  mostOthersPercent: 10,
  measuredAgain: 1066,
  worstSpreadPercent: 21_254.3,
  disturbances: [],
  hosts: [],
};

const USE = {
  host: "h",
  ranks: 2,
  cores: 2,
  seconds: 10,
  ranksSeconds: 4,
  othersSeconds: 16,
  stolenSeconds: 0,
  loadBefore: 13.8,
  loadAfter: 12.9,
  runnableBefore: 1,
  runnableAfter: 1,
  involuntarySwitches: 18_512,
};

it("says how quiet a measurement was with counts as people read them", () => {
  expect(qualityWords(quality)[0]).toMatch(
    /^1,710 of 5,844 points are noisy, after 1,066 repeated measurements: .* \(the worst: 21,254%\)\.$/,
  );
});

it("says once of each host how much others took, and all else as it is", () => {
  const took = (host: string, othersSeconds: number): string[] =>
    disturbancesOf([{ ...USE, host, othersSeconds }], 1);
  const one = took("b", 3);
  const disturbances = [...took("a", 9), ...took("a", 0.9), ...one, ...took("a", 16), "something else"];
  expect(qualityWords({ ...quality, disturbances }).slice(1, -1)).toEqual([
    "a: others took 4.5% to 80% of the processor time in 3 measurements.",
    `${one[0]}.`,
    "something else.",
  ]);
  const same = [...took("a", 9), ...took("a", 9)];
  expect(qualityWords({ ...quality, disturbances: same })[1]).toBe(
    "a: others took 45% of the processor time in 2 measurements.",
  );
});

it("says what ran beside ranks with counts as people read them", () => {
  expect(disturbancesOf([USE], 10)).toEqual([
    "h: others took 80% of the processor time; load 13.8 before, 12.9 after; ranks lost their core 18,512 times",
  ]);
});
