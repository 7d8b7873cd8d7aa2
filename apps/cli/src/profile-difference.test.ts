import type { Change, ProfileDifference } from "@internevo/profiles";
import picocolors from "picocolors";
import { expect, it } from "vitest";
import { differenceText } from "./profile-difference.ts";

const colors = picocolors.createColors(false);
const change = (name: string, ratio: number): Change => ({
  name,
  points: 3,
  ratio,
  furthest: { at: "64 rows", ratio, beforeSeconds: 0.001, afterSeconds: 0.001 * ratio },
  beyondSpread: 0,
  withSpread: 3,
});
const difference = (over: Partial<ProfileDifference>): ProfileDifference => ({
  stated: [],
  collectives: [],
  modules: [],
  overlaps: [],
  onlyInFirst: [],
  onlyInSecond: [],
  ...over,
});

it("has a row for what differs between two profiles, and counts what does not", () => {
  const text = differenceText(
    difference({
      collectives: [change("all-gather, 2 ranks", 1), change("reduce-scatter, 2 ranks", 1)],
      modules: [change("linear", 1), change("attention", 1.5)],
    }),
    ["a", "b"],
    colors,
  );
  expect(text).toMatch(/\nCOLLECTIVES\nthe same in both: all 2\n/);
  expect(text).toMatch(/\nattention +3 +50\.0% slower .*\nthe same in both: 1 more$/);
  expect(text).not.toMatch(/all-gather|linear/);
});

it("shows slow-downs as factors, not as times", () => {
  const one = change("all-gather beside linear", 1.2);
  const overlaps = [{ ...one, furthest: { ...one.furthest, beforeSeconds: 1.3, afterSeconds: 1.56 } }];
  expect(differenceText(difference({ overlaps }), ["a", "b"], colors)).toMatch(
    /SLOW-DOWN[\s\S]*: 1\.30 → 1\.56(?! s)/,
  );
});

it("bounds what profiles say of themselves, and names that are long", () => {
  const source = `measured by ${"a very long command ".repeat(15)}at noon`;
  const long = change(`linear ${"with many sizes ".repeat(20)}forward`, 1.5);
  const shown = differenceText(
    difference({
      stated: [{ field: "provenance.source", before: source, after: "other" }],
      modules: [long],
      onlyInFirst: [long.name],
    }),
    ["a", "b"],
    colors,
  );
  expect(Math.max(...shown.split("\n").map((line) => line.length))).toBeLessThan(200);
  expect(shown).toMatch(/measured by .*….*at noon +other/);
  const narrow = differenceText(
    difference({ stated: [{ field: "provenance.source", before: source, after: source }], modules: [long] }),
    ["a", "b"],
    { ...colors, width: 80 },
  );
  expect(narrow.split("\n").filter((line) => line.length > 80)).toEqual([]);
});

it("shows what they state in figures that people read", () => {
  const shown = differenceText(
    difference({
      stated: [
        { field: "device.memoryBandwidthBytesPerSecond", before: 111532716928.2418, after: 2.0390001e12 },
      ],
    }),
    ["a", "b"],
    colors,
  );
  expect(shown).toMatch(/BytesPerSecond +111,532,716,928 +2,039,000,100,000$/m);
});

it("says once that two profiles are the same", () => {
  expect(differenceText(difference({ modules: [change("linear", 1)] }), ["a", "b"], colors)).toMatch(
    /they are the same/,
  );
});
