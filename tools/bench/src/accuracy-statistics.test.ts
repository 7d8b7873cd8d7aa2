import { describe, expect, it } from "vitest";
import { statisticsOf, steadied, tauOf, undisturbed, type Compared } from "./accuracy-statistics.ts";

const plan = (
  rank: number,
  predictedSeconds: number,
  runs: readonly number[],
  over: Partial<Compared> = {},
): Compared => ({
  plan: `plan ${rank}`,
  rank,
  candidate: rank <= 2,
  predictedSeconds,
  range: { low: 0.95 * predictedSeconds, high: 1.05 * predictedSeconds },
  runs,
  predictedBytes: 99,
  measuredBytes: 100,
  ...over,
});

describe("tauOf", () => {
  const by = (field: 0 | 1) => (a: readonly [number, number], b: readonly [number, number]) =>
    a[field] - b[field];

  it("is 1 and −1 at the ends, and null without an order", () => {
    expect(
      tauOf(
        [
          [1, 1],
          [2, 2],
          [3, 3],
        ] as const,
        by(0),
        by(1),
      ).tau,
    ).toBe(1);
    expect(
      tauOf(
        [
          [1, 3],
          [2, 2],
          [3, 1],
        ] as const,
        by(0),
        by(1),
      ).tau,
    ).toBe(-1);
    expect(
      tauOf(
        [
          [1, 1],
          [1, 2],
        ] as const,
        by(0),
        by(1),
      ),
    ).toEqual({ tau: null, firstTies: 1, secondTies: 0 });
  });

  it("leaves ties of either side out of its part of the root", () => {
    // Pairs: 1-2 tied by the first, 1-3 and 2-3 in order by both.
    const { tau, firstTies } = tauOf(
      [
        [1, 1],
        [1, 2],
        [2, 3],
      ] as const,
      by(0),
      by(1),
    );
    expect(tau).toBeCloseTo(2 / Math.sqrt(2 * 3), 12);
    expect(firstTies).toBeCloseTo(1 / 3, 12);
  });
});

describe("statisticsOf", () => {
  it("says how far predictions are off, and what trials would have chosen", () => {
    const s = statisticsOf([plan(1, 1, [1.1, 1.1]), plan(2, 1.02, [1.2, 0.8]), plan(3, 2, [1.9, 1.9])]);
    expect(s.timeError.mean).toBeCloseTo((0.1 / 1.1 + 0.02 + 0.1 / 1.9) / 3, 12);
    expect(s.timeError.worst).toBeCloseTo(0.1 / 1.1, 12);
    expect(s.best).toEqual({ plan: "plan 2", predictedRank: 2, candidate: true });
    expect(s.firstSlowerBy).toBeCloseTo(0.1, 12);
    // The second plan's first run was bad luck: trials choose the first.
    expect(s.chosenSlowerBy).toBeCloseTo(0.1, 12);
    expect(s.bestCandidateSlowerBy).toBe(0);
    expect(s.memoryError.worst).toBeCloseTo(0.01, 12);
    expect(s.spread).toBeCloseTo(0.9, 12);
    expect(s.withinRange).toBeCloseTo(2 / 3, 12);
  });

  it("counts plans whose ranges touch, and times within the noise, as ties", () => {
    const s = statisticsOf([plan(1, 1, [1.04, 1.0]), plan(2, 1.05, [1.01, 0.97]), plan(3, 2, [2, 2.08])]);
    expect(s.kendallTau).toBeCloseTo(1 / 3, 12);
    expect(s.kendallTauWithTies).toBe(1);
    expect(s.predictedTies).toBeCloseTo(1 / 3, 12);
    expect(s.measuredTies).toBeCloseTo(1 / 3, 12);
  });

  it("says how well a plan's first run predicts its second", () => {
    const s = statisticsOf([
      plan(1, 1, [1, 1.25, 9]),
      plan(2, 1, [2, 2]),
      plan(3, 1, [3, 1.5]),
      plan(4, 1, [4]),
    ]);
    expect(s.repetition?.mean).toBeCloseTo((0.2 + 0 + 1) / 3, 12);
    expect(s.repetition?.worst).toBeCloseTo(1, 12);
    expect(s.repetition?.kendallTau).toBeCloseTo(1 / 3, 12);
    expect(statisticsOf([plan(1, 1, [1])]).repetition).toBeNull();
  });

  it("takes predictions without a range as they are", () => {
    const s = statisticsOf([plan(1, 1, [1], { range: null }), plan(2, 1.01, [2], { range: null })]);
    expect(s.withinRange).toBeNull();
    expect(s.kendallTauWithTies).toBe(1);
  });

  it("needs a candidate", () => {
    expect(() => statisticsOf([plan(3, 1, [1])])).toThrow(/no candidate/);
  });
});

describe("steadied", () => {
  /** Plans of 1, 1.1, … s that run by turns; `slowness` of the machine at each run. */
  const turns = (plans: number, rounds: number, slowness: (at: number) => number): Compared[] =>
    Array.from({ length: plans }, (_, index) => {
      const order = Array.from(
        { length: rounds },
        (__, round) => round * plans + ((index * 5 + round * 3) % plans),
      );
      return plan(
        index + 1,
        1 + index / 10,
        order.map((at) => (1 + index / 10) * slowness(at)),
        { order },
      );
    });

  it("finds the times of a steady machine where it was slower for a while", () => {
    const compared = turns(12, 3, (at) => (at >= 8 && at < 24 ? 1.3 : 1));
    const steady = steadied(compared) as Compared[];
    expect(statisticsOf(compared).noise).toBeCloseTo(0.3, 12);
    expect(statisticsOf(steady).noise).toBeLessThan(0.01);
    expect(statisticsOf(compared).kendallTau).toBeLessThan(1);
    expect(statisticsOf(steady).kendallTau).toBe(1);
  });

  it("leaves the times of a steady machine alone", () => {
    const compared = turns(7, 3, () => 1);
    expect((steadied(compared) as Compared[]).map(({ runs }) => runs)).toEqual(
      compared.map(({ runs }) => runs),
    );
  });

  it("needs three runs of each plan, and when they were made", () => {
    expect(steadied(turns(7, 2, () => 1))).toBeNull();
    expect(steadied([plan(1, 1, [1, 1, 1])])).toBeNull();
  });
});

describe("undisturbed", () => {
  it("keeps the runs beside which nothing ran, and the plans that have one", () => {
    const kept = undisturbed([
      plan(1, 1, [1, 3], { disturbed: [false, true], order: [0, 3] }),
      plan(2, 1, [5, 6], { disturbed: [true, true] }),
    ]);
    expect(kept).toMatchObject([{ rank: 1, runs: [1], order: [0], disturbed: [false] }]);
    expect(kept && statisticsOf(kept).timeError.worst).toBe(0);
  });
  it("says nothing where it is not known, or no candidate has a quiet run", () => {
    expect(undisturbed([plan(1, 1, [1])])).toBeNull();
    expect(undisturbed([plan(1, 1, [1], { disturbed: [true] })])).toBeNull();
  });
});
