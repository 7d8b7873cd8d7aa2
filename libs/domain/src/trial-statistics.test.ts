import { aPlan } from "@internevo/test-kit";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Measurement, TrialRun } from "./execution.ts";
import type { Candidate } from "./planning.ts";
import {
  choiceOf,
  choiceWords,
  disturbedTrialsWords,
  formatMeasuredSeconds,
  measuredStanding,
  measuredStandingWords,
  noiseOf,
  quantile,
  rangesTouch,
  runsOf,
  tiedWithFastest,
  trialToRepeat,
  withRun,
  type Choice,
  type Tried,
} from "./trial-statistics.ts";

const PLAN = aPlan();
const DISTURBED = ["here: others took 45% of the processor time"];

/** One run; its steps lie as far apart as is said. */
function ran(
  seconds: number,
  options: {
    readonly apart?: number;
    readonly steps?: number;
    readonly disturbed?: boolean;
    readonly bytes?: number;
  } = {},
): Measurement {
  const { apart = 0, steps = 5, disturbed = false, bytes = 100 } = options;
  const run: TrialRun = {
    stepTimeSeconds: seconds,
    stepTimeSecondsP10: seconds - apart / 2,
    stepTimeSecondsP90: seconds + apart / 2,
    steps,
    communicationSeconds: 0.1,
    ...(disturbed ? { disturbances: DISTURBED } : {}),
  };
  const { disturbances: _, ...times } = run;
  return {
    ...times,
    runs: [run],
    tokensPerGpuPerSecond: 100 / seconds,
    peakMemoryBytes: bytes,
    residentPeakBytes: bytes,
    memory: { parameters: bytes },
    loss: 1,
  };
}
const runsTogether = ([first, ...others]: readonly Measurement[]): Measurement =>
  others.reduce(withRun, first as Measurement);
const trial = (rank: number, ...runs: Measurement[]): Tried => ({
  candidate: { rank, plan: { ...PLAN, dataParallel: rank } } as Candidate,
  measured: runs.length === 0 ? null : runsTogether(runs),
});

it("quantile interpolates", () => {
  expect([0, 0.5, 1, 0.25].map((q) => quantile([3, 1, 2], q))).toEqual([1, 2, 3, 1.5]);
  expect(() => quantile([], 0.5)).toThrow(RangeError);
});

describe("ties", () => {
  it("are times whose ranges touch", () => {
    expect(rangesTouch({ low: 1, high: 2 }, { low: 2, high: 3 })).toBe(true);
    expect(rangesTouch({ low: 1, high: 2 }, { low: 2.1, high: 3 })).toBe(false);
  });
  it("are told of the fastest, and need another", () => {
    const tied = (...list: (readonly [number, number?])[]) =>
      tiedWithFastest(
        list,
        ([seconds]) => seconds,
        ([seconds, half]) => (half === undefined ? undefined : { low: seconds - half, high: seconds + half }),
      ).map(([seconds]) => seconds);
    expect(tied([3, 0.1], [1, 0.5], [2, 0.5])).toEqual([1, 2]);
    expect(tied([3, 0.1], [1, 0.5])).toEqual([]);
    expect(tied([3, 5], [1])).toEqual([]);
    expect(tied()).toEqual([]);
  });
});

describe("a measurement of several runs", () => {
  it("counts by the middle of its runs, and keeps each", () => {
    const all = runsTogether([ran(4), ran(1, { bytes: 200 }), ran(2)]);
    expect(all).toMatchObject({
      stepTimeSeconds: 2,
      runStepTimeSeconds: [4, 1, 2],
      stepTimeSecondsP10: 1,
      stepTimeSecondsP90: 4,
      steps: 15,
      peakMemoryBytes: 200,
      memory: { parameters: 200 },
    });
    expect(all.runs).toHaveLength(3);
    expect(all.tokensPerGpuPerSecond).toBeCloseTo(50, 12);
  });
  it("leaves disturbed runs out as soon as there is another", () => {
    const all = runsTogether([ran(4, { disturbed: true }), ran(2)]);
    expect(all).toMatchObject({
      stepTimeSeconds: 2,
      runStepTimeSeconds: [2],
      stepTimeSecondsP90: 2,
      steps: 5,
    });
    expect(all.tokensPerGpuPerSecond).toBeCloseTo(50, 12);
    expect(runsOf(all)).toHaveLength(2);
    expect(runsTogether([ran(4, { disturbed: true }), ran(2, { disturbed: true })]).stepTimeSeconds).toBe(3);
  });
  it("reads what earlier versions stored", () => {
    const { runs: _, ...old } = ran(2);
    expect(
      runsOf({ ...old, runStepTimeSeconds: [1, 3], steps: 10 }).map(({ stepTimeSeconds, steps }) => [
        stepTimeSeconds,
        steps,
      ]),
    ).toEqual([
      [1, 5],
      [3, 5],
    ]);
    expect(runsOf(old)).toHaveLength(1);
  });
  it("is as noisy as its runs lie apart, as its steps do, and never less than a quiet machine", () => {
    expect(noiseOf(ran(2))).toBeCloseTo(0.025, 12);
    expect(noiseOf(runsTogether([ran(2), ran(2), ran(2), ran(2)]))).toBeCloseTo(0.0125, 12);
    expect(noiseOf(runsTogether([ran(2), ran(3)]))).toBeCloseTo(0.2, 12);
    expect(noiseOf(ran(2, { apart: 2, steps: 4 }))).toBeCloseTo(0.25, 12);
  });
});

describe("choiceOf", () => {
  it("calls a plan the winner that is ahead by more than the noise of both", () => {
    const choice = choiceOf([trial(1, ran(1.3, { bytes: 10 })), trial(2, ran(1)), trial(3)]);
    expect(choice).toMatchObject({
      verdict: "winner",
      chosen: { rank: 2 },
      tied: [{ rank: 2 }],
      measuredPlans: 2,
      disturbances: [],
    });
    expect(choice?.within).toBeCloseTo(0.3, 12);
    expect(choice && choiceWords(choice)).toContain("fastest of 2 measured plans, 30.0% ahead of the next");
    expect(choice && disturbedTrialsWords(choice)).toBeUndefined();
  });
  it("never chooses a plan that another one beats in time and memory", () => {
    const noisy = trial(3, ran(1.08, { apart: 0.4, bytes: 45 }));
    const trials = [trial(1, ran(1, { bytes: 50 })), trial(2, ran(1.06, { steps: 400, bytes: 40 })), noisy];
    expect(choiceWords(choiceOf(trials) as Choice)).toBe(
      "Tie between #1 and #3 within 8.0%; passed over #3, which #2 beats in time and memory; chose #1, 50 B a rank",
    );
    fc.assert(
      fc.property(
        fc.array(
          fc.record({
            seconds: fc.double({ min: 1, max: 1.5, noNaN: true }),
            bytes: fc.integer({ min: 1, max: 20 }),
            apart: fc.double({ min: 0, max: 1, noNaN: true }),
            runs: fc.integer({ min: 1, max: 4 }),
          }),
          { minLength: 1, maxLength: 8 },
        ),
        (drawn) => {
          const tried = drawn.map(({ seconds, runs, ...more }, index) =>
            trial(index + 1, ...Array.from({ length: runs }, () => ran(seconds, more))),
          );
          const choice = choiceOf(tried);
          const own = tried.find(({ candidate }) => candidate === choice?.chosen)?.measured;
          expect(choice?.tied[0]).toBe(choice?.chosen);
          for (const { measured } of tried)
            expect(
              measured &&
                own &&
                (measured.stepTimeSeconds >= own.stepTimeSeconds ||
                  measured.peakMemoryBytes >= own.peakMemoryBytes),
            ).toBe(true);
        },
      ),
    );
  });

  it("calls no winner whose own runs differ by more than its lead, and takes the leanest of those that tie", () => {
    // As a job on a busy machine measured it: 14.7% ahead of the next, while the plan's own two runs took
    // 2.07 and 2.63 s.
    const choice = choiceOf([
      trial(1, ran(2.07, { bytes: 500 }), ran(2.63)),
      trial(2, ran(2.695, { bytes: 300 })),
      trial(3, ran(5, { bytes: 1 })),
    ]);
    expect(choice).toMatchObject({
      verdict: "tie",
      chosen: { rank: 2 },
      tied: [{ rank: 2 }, { rank: 1 }],
      peakMemoryBytes: 300,
    });
    expect(choice?.within).toBeCloseTo(2.695 / 2.35 - 1, 12);
    expect(choice && choiceWords(choice)).toMatch(
      /^Tie between #2 and #1 within 14\.7%; chose the leanest: #2, 300 B a rank$/,
    );
  });
  it("tells plans of equal memory apart by communication, then by prediction", () => {
    const busy = { ...ran(1), communicationSeconds: 0.5 };
    expect(choiceOf([{ ...trial(1), measured: busy }, trial(2, ran(1.01))])?.chosen.rank).toBe(2);
    expect(choiceOf([{ ...trial(1), measured: busy }, trial(2, ran(1)), trial(3, ran(1))])?.chosen.rank).toBe(
      2,
    );
  });
  it("says so where one plan was measured, and nothing where none was", () => {
    expect(choiceOf([trial(1), trial(2, ran(1))])).toMatchObject({ verdict: "only", within: null });
    expect(choiceOf([trial(1)])).toBeUndefined();
  });
  it("says which trials were disturbed", () => {
    const choice = choiceOf([trial(1, ran(1, { disturbed: true })), trial(2, ran(2))]);
    expect(choice && disturbedTrialsWords(choice)).toBe(
      "Trials were disturbed: other work ran beside 1 of 2 measured plans, so their times say little (here: others took 45% of the processor time)",
    );
    expect(choiceOf([trial(1, ran(1, { disturbed: true }), ran(1)), trial(2, ran(2))])?.disturbedPlans).toBe(
      0,
    );
  });
});

describe("choiceWords", () => {
  const busy = { disturbed: true };
  const words = (...trials: readonly Tried[]) => choiceWords(choiceOf(trials)!);
  it("doubts a winner where other work ran beside the runs", () => {
    expect(words(trial(1, ran(1.3, busy)), trial(2, ran(1, busy)))).toBe(
      "#2 was the fastest of 2 measured plans, 30.0% ahead of the next; its noise is ±2.5%; in doubt, " +
        "since other work ran beside every run of all of them",
    );
    expect(words(trial(1, ran(1.3, busy)), trial(2, ran(1)))).toMatch(
      /; in doubt, since other work ran beside every run of 1 of them$/,
    );
    expect(words(trial(1, ran(1.3, busy), ran(1.3)), trial(2, ran(1)))).not.toContain("doubt");
  });
  it("doubts a tie, and a time that nothing is compared with", () => {
    expect(words(trial(1, ran(1, busy)), trial(2, ran(1)))).toMatch(/a rank; in doubt, since .* 1 of them$/);
    expect(words(trial(1, ran(1, busy)))).toBe(
      "#1 was the only measured plan; its time is in doubt, since other work ran beside every run of it",
    );
  });
});

describe("measuredStanding", () => {
  const planOf = (rank: number) => ({ ...PLAN, dataParallel: rank });
  const words = (trials: readonly Tried[], rank: number) => {
    const standing = measuredStanding(trials, planOf(rank));
    return standing && measuredStandingWords(standing);
  };
  it("says where a plan stands among the measured ones, whatever was predicted", () => {
    const trials = [trial(1, ran(5)), trial(2, ran(3.73)), trial(3)];
    expect(measuredStanding(trials, planOf(2))).toEqual({
      stepTimeSeconds: 3.73,
      place: 1,
      of: 2,
      verdict: "fastest",
      tied: 1,
      behind: 0,
      fastest: { rank: 2, plan: planOf(2) },
      disturbed: false,
    });
    expect(words(trials, 2)).toBe("Measured: 3.73 s a step, the fastest of 2 plans.");
    expect(words(trials, 1)).toMatch(
      /^Measured: 5\.00 s a step, number 2 of 2 plans, 34\.0% behind the fastest, #2\.$/,
    );
    expect(words(trials, 3), "it was not measured").toBeNull();
    expect(words([trial(1, ran(1))], 1)).toBe("Measured: 1.00 s a step; no other plan was measured.");
  });
  it("says a tie, and that every run was disturbed", () => {
    const trials = [trial(1, ran(1)), trial(2, ran(1.01)), trial(3, ran(2, { disturbed: true }))];
    for (const [rank, place] of [
      [1, 1],
      [2, 2],
    ] as const)
      expect(words(trials, rank)).toMatch(
        new RegExp(
          `number ${place} of 3 plans\\. It is one of 2 that tie: their runs do not tell them apart\\.$`,
        ),
      );
    expect(words(trials, 3)).toMatch(/ Other work ran beside every run of it, so its time says little\.$/);
  });
  it("marks a time of which every run was disturbed", () => {
    expect(formatMeasuredSeconds(ran(2, { disturbed: true }))).toBe("2.00 s *");
    expect(formatMeasuredSeconds(runsTogether([ran(4, { disturbed: true }), ran(2)]))).toBe("2.00 s");
  });
});

describe("trialToRepeat", () => {
  const rank = (trials: readonly Tried[], repeats = 1) => trialToRepeat(trials, repeats)?.candidate.rank;
  it("asks for all that tie, the fewest runs first, as often as it may", () => {
    const near = [
      trial(1, ran(1.04)),
      trial(2, ran(1)),
      trial(3, ran(1.03)),
      trial(4, ran(1.02)),
      trial(5, ran(2)),
      trial(6),
    ];
    expect(rank(near)).toBe(2);
    expect(rank([trial(1, ran(1.04)), trial(2, ran(1), ran(1)), trial(3, ran(1.2))])).toBe(1);
    expect(rank([trial(1, ran(1.02), ran(1.02)), trial(2, ran(1), ran(1))])).toBeUndefined();
    expect(rank([trial(1, ran(1.02), ran(1.02)), trial(2, ran(1), ran(1))], 2)).toBe(2);
    expect(rank([trial(1, ran(1.01)), trial(2, ran(1))], 0)).toBeUndefined();
  });
  it("asks for none that the runs tell apart", () => {
    expect(rank([trial(1, ran(1.06)), trial(2, ran(1))])).toBeUndefined();
    // Two runs each tell what one run each does not.
    expect(rank([trial(1, ran(1.04), ran(1.04)), trial(2, ran(1), ran(1))], 5)).toBeUndefined();
    expect(rank([trial(1, ran(1)), trial(2)])).toBeUndefined();
    expect(rank([])).toBeUndefined();
    expect(rank([trial(1, ran(1, { disturbed: true }))])).toBeUndefined();
  });
  it("asks for what was disturbed, however slow it was", () => {
    expect(rank([trial(1, ran(1)), trial(2, ran(3, { disturbed: true }))])).toBe(2);
    expect(rank([trial(1, ran(1)), trial(2, ran(3, { disturbed: true }), ran(3))])).toBeUndefined();
  });
});
