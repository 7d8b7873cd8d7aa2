import { describe, expect, it } from "vitest";
import type { MeasuredSlice } from "@internevo/domain";
import { ofRounds, slicePartsOf, type SliceOfRounds } from "./slices.ts";
import { rankWaits } from "./rank-waits.ts";
import { computedUnits, passesSeconds, stepParts } from "./step-parts.ts";
import { stepsOf, type LaneEvent, type LaneStep } from "@internevo/domain";

/** Events one after the other: a name and how long, `gap` before it, nested ones at an offset inside. */
interface Told {
  readonly name: string;
  readonly seconds: number;
  readonly gap?: number;
  readonly exposed?: boolean;
  readonly inside?: readonly { readonly name: string; readonly at: number; readonly seconds: number }[];
}

function stepOf(told: readonly Told[], start = 10): LaneStep {
  const events: LaneEvent[] = [];
  let clock = start;
  for (const { name, seconds, gap = 0, exposed = false, inside = [] } of told) {
    clock += gap;
    events.push({
      name,
      lane: exposed ? "exposed communication" : "compute",
      unit: -1,
      start: clock,
      end: clock + seconds,
    });
    for (const each of inside)
      events.push({
        name: each.name,
        lane: "exposed communication",
        unit: -1,
        start: clock + each.at,
        end: clock + each.at + each.seconds,
      });
    clock += seconds;
  }
  return { start, end: clock, events };
}

const ULYSSES: readonly Told[] = [
  { name: "embedding forward", seconds: 1, gap: 0.5 },
  { name: "linear forward qkv", seconds: 4, gap: 1 },
  { name: "all-to-all of heads and sequence", seconds: 2, gap: 0.25, exposed: true },
  { name: "attention forward", seconds: 8 },
  { name: "all-to-all of heads and sequence", seconds: 1, exposed: true },
  { name: "linear forward attention output", seconds: 2 },
  { name: "linear forward gate and up", seconds: 6, gap: 0.5 },
  { name: "linear forward down", seconds: 3 },
  { name: "head and loss", seconds: 5, gap: 0.125 },
  { name: "linear backward down", seconds: 6 },
  { name: "linear backward gate and up", seconds: 12 },
  { name: "linear backward attention output", seconds: 4, gap: 0.5 },
  { name: "all-to-all of heads and sequence", seconds: 3, exposed: true },
  { name: "attention backward", seconds: 16 },
  { name: "linear backward qkv", seconds: 8, gap: 0.25 },
  { name: "embedding backward", seconds: 1 },
  { name: "all-reduce gradients", seconds: 2, exposed: true },
  { name: "gradient norm", seconds: 0.5 },
  { name: "all-reduce loss and gradient norm", seconds: 0.5, exposed: true },
  { name: "optimizer", seconds: 1.5 },
];

const sum = (parts: Readonly<Record<string, number>>): number =>
  Object.values(parts).reduce((total, value) => total + value, 0);

describe("stepParts", () => {
  it("divides the whole step, gaps to what follows, or to what is before where a collective follows", () => {
    const step = stepOf(ULYSSES);
    const parts = stepParts(step);
    expect(sum(parts)).toBeCloseTo(step.end - step.start, 9);
    expect(parts).toMatchObject({
      "begin of the step": 0.5,
      embedding: 2,
      "forward qkv": 5.25,
      "forward attention": 8,
      "forward attention output": 2,
      "forward gate and up": 6.5,
      "forward down": 3,
      "forward communication": 3,
      head: 5.125,
      "backward down": 6,
      "backward gate and up": 12,
      "backward attention output": 4.5,
      "backward attention": 16,
      "backward qkv": 8.25,
      "backward communication": 3,
      "reduction at the end": 3,
      update: 1.5,
      pipeline: 0,
      "parameters and gradients": 0,
    });
    expect(passesSeconds(step)).toBeCloseTo(step.end - step.start - 0.5 - 4.5, 9);
  });

  it("counts a collective inside a computation once, as communication of its pass", () => {
    const told = ULYSSES.map((each): Told => {
      if (each.name === "attention backward")
        return {
          ...each,
          inside: [
            { name: "ring exchange", at: 2, seconds: 3 },
            { name: "ring exchange", at: 10, seconds: 1 },
          ],
        };
      return each.name === "head and loss"
        ? { ...each, inside: [{ name: "all-gather loss statistics", at: 1, seconds: 2 }] }
        : each;
    });
    const step = stepOf(told);
    const parts = stepParts(step);
    expect(sum(parts)).toBeCloseTo(step.end - step.start, 9);
    expect(parts["backward attention"]).toBeCloseTo(12, 9);
    expect(parts["backward communication"]).toBeCloseTo(7, 9);
    expect(parts["head"]).toBeCloseTo(3.125, 9);
    expect(parts["head communication"]).toBeCloseTo(2, 9);
  });

  it("counts a collective that is recorded with the one around it once", () => {
    const told = ULYSSES.map((each): Told =>
      each.exposed === true
        ? { ...each, inside: [{ name: each.name, at: 0.125, seconds: each.seconds - 0.25 }] }
        : each,
    );
    const step = stepOf(told);
    const parts = stepParts(step);
    expect(sum(parts)).toBeCloseTo(step.end - step.start, 9);
    expect(parts).toEqual(stepParts(stepOf(ULYSSES)));
    const twice = stepOf(
      ULYSSES.map((each): Told =>
        each.name === "attention forward"
          ? {
              ...each,
              inside: [
                { name: "ring exchange", at: 1, seconds: 3 },
                { name: "ring exchange", at: 1.5, seconds: 2 },
              ],
            }
          : each,
      ),
    );
    expect(stepParts(twice)).toMatchObject({ "forward attention": 5, "forward communication": 6 });
  });
});

it("slicePartsOf takes what a slow rank lets the others wait for as part of the passes, and sums to the step", () => {
  const fast = stepOf(ULYSSES);
  const slow = stepOf(
    ULYSSES.map((each) => (each.name === "attention forward" ? { ...each, seconds: 18 } : each)),
  );
  const { parts, medianSeconds, samples } = slicePartsOf(
    [
      [fast, fast, fast],
      [slow, slow, slow],
    ],
    1,
    1,
  );
  expect(samples).toBe(3);
  expect(medianSeconds).toBeCloseTo(passesSeconds(slow), 9);
  expect(
    sum(
      Object.fromEntries(
        Object.entries(parts).map(([name, value]) => [
          name,
          [value].flat().reduce((total, each) => total + each, 0),
        ]),
      ),
    ),
  ).toBeCloseTo(medianSeconds, 9);
  expect(() => slicePartsOf([[fast], []], 1, 1)).toThrow(/did not record the same steps/);
});

it("ofRounds takes the round in the middle, with the spread of all", () => {
  const round = (medianSeconds: number, ...disturbances: string[]): SliceOfRounds => ({
    disturbances,
    ...slicePartsOf([[stepOf(ULYSSES)]], 1, 1),
    shape: {} as MeasuredSlice["shape"],
    layers: 1,
    microBatches: 1,
    medianSeconds,
    p10Seconds: medianSeconds - 0.5,
    p90Seconds: medianSeconds + 0.5,
    samples: 4,
  });
  expect(ofRounds([round(9), round(4), round(3)])).toMatchObject({
    medianSeconds: 4,
    p10Seconds: 2.5,
    p90Seconds: 9.5,
    samples: 12,
  });
  expect(ofRounds([round(9), round(4)])).toMatchObject({
    medianSeconds: 4,
    p10Seconds: 3.5,
    p90Seconds: 9.5,
  });
  expect(ofRounds([round(2)])).toMatchObject({ medianSeconds: 2, p10Seconds: 1.5, p90Seconds: 2.5 });
  expect(ofRounds([round(9, "load"), round(4), round(8, "load")])).toMatchObject({
    medianSeconds: 4,
    p90Seconds: 4.5,
    disturbances: [],
  });
  expect(ofRounds([round(9, "load"), round(4, "load")])).toMatchObject({
    medianSeconds: 4,
    disturbances: ["load"],
  });
});

it("computedUnits divides the passes by the units of a layer, attention with the product before it", () => {
  const step = stepOf(ULYSSES.filter(({ name }) => !name.startsWith("all-to-all")));
  const units = computedUnits(step);
  expect(units.map(({ seconds }) => seconds)).toEqual([1, 13, 2, 6.5, 3, 5.125, 6, 12, 20.5, 8.25, 1]);
  expect(units.map(({ beginsLayer }) => beginsLayer)).toEqual([
    true,
    true,
    false,
    false,
    false,
    true,
    true,
    false,
    false,
    false,
    true,
  ]);
  expect(sum(Object.fromEntries(units.map(({ seconds }, index) => [index, seconds])))).toBeCloseTo(
    passesSeconds(step),
    9,
  );
});

it("rankWaits says what waiting at every unit and every layer costs beside waiting once a step", () => {
  const slower = (which: string, by: number) =>
    stepOf(
      ULYSSES.filter(({ name }) => !name.startsWith("all-to-all")).map((each) =>
        each.name === which ? { ...each, seconds: each.seconds + by } : each,
      ),
    );
  const passes = passesSeconds(stepOf(ULYSSES.filter(({ name }) => !name.startsWith("all-to-all"))));
  // As long in all: the one is slower in its first pass, the other in its second.
  const turned = rankWaits([[slower("linear forward qkv", 4)], [slower("linear backward qkv", 4)]]);
  expect(turned?.unit).toBeCloseTo((passes + 8) / (passes + 4), 9);
  expect(turned?.layer).toBeCloseTo((passes + 8) / (passes + 4), 9);
  // In two units of one layer: who waits at layers only does not notice.
  const inLayer = rankWaits([[slower("linear forward qkv", 4)], [slower("linear forward down", 4)]]);
  expect(inLayer?.unit).toBeCloseTo((passes + 8) / (passes + 4), 9);
  expect(inLayer?.layer).toBeCloseTo(1, 9);
  expect(rankWaits([[slower("linear forward qkv", 4)], [slower("linear forward qkv", 4)]])).toEqual({
    unit: 1,
    layer: 1,
  });
  expect(rankWaits([[], []])).toBeUndefined();
});

it("stepsOf cuts a rank's events where updates end", () => {
  const first = stepOf(ULYSSES);
  const second = stepOf(ULYSSES, first.end);
  const third = stepOf(ULYSSES, second.end);
  const steps = stepsOf([...first.events, ...second.events, ...third.events]);
  expect(steps.map(({ start, end }) => [start, end])).toEqual([
    [second.start, second.end],
    [third.start, third.end],
  ]);
  expect(steps[0]?.events).toEqual(second.events);
});
