import { aPlan } from "@internevo/test-kit";
import type { Explanation } from "@internevo/advisor";
import { frontSample, type Candidate } from "@internevo/domain";
import picocolors from "picocolors";
import { expect, it } from "vitest";
import { explanationText, frontText, whyNotText } from "./advice-view.ts";

const colors = picocolors.createColors(false);
const plan = aPlan({ microBatches: 4, dataParallel: 2 });
const candidate = (stepTimeSeconds: number, peakMemoryBytes: number) =>
  ({
    rank: 1,
    plan,
    predicted: { stepTimeSeconds, peakMemoryBytes, tokensPerGpuPerSecond: 100 },
  }) as Candidate;

it("shows a front of hundreds of plans by steps of memory, both ends among them", () => {
  const front = Array.from({ length: 190 }, (_, index) => candidate(1 + index, 2 ** 36 / (1 + index)));
  const sample = frontSample(front, 20);
  expect([sample[0], sample.at(-1)]).toEqual([front[0], front.at(-1)]);
  expect(sample.length).toBeLessThanOrEqual(20);
  for (const [index, one] of sample.entries())
    if (index > 0)
      expect(one.predicted.peakMemoryBytes).toBeLessThan(sample[index - 1]!.predicted.peakMemoryBytes);
  const lines = frontText(front, colors).split("\n");
  expect(lines).toHaveLength(1 + sample.length + 2);
  expect(lines.at(-1)).toBe(
    `${sample.length} of the 190 Pareto-optimal plans, a step of memory apart; all of them: --csv or --json`,
  );
  expect(frontText(front.slice(0, 20), colors).split("\n")).toHaveLength(21);
  expect(frontText([], colors)).toBe("no plan is feasible");
});

it("has rows for what two plans differ in as it is written, in words, and names the rest", () => {
  const term = (name: string, a: number, b: number) => ({ name, a, b, difference: b - a });
  const side = { plan, predicted: candidate(2, 2 ** 30).predicted, fits: true };
  const answer: Explanation = {
    a: side,
    b: side,
    changes: [],
    tie: null,
    measured: null,
    summary: "",
    time: [term("updateSeconds", 0.004, 0.063), term("computeSeconds", 10.7914, 10.791401)],
    memory: [
      term("gatherPool", 2 ** 30, 2 ** 31),
      term("gradients", 911_933_952, 911_967_232),
      term("parameters", 455_966_976, 455_983_616),
      term("optimizerStates", 2 ** 30, 2 ** 30),
    ],
  };
  const text = explanationText(answer, colors);
  expect(text).toMatch(
    /TIME OF A STEP +A +B +B − A\nOptimizer update +4\.00 ms +63\.0 ms +\+59\.0 ms\nnearly the same in both \(\+1 µs together\): compute 10\.79 s\n/,
  );
  expect(text).toMatch(
    /MEMORY OF THE FULLEST RANK +A +B +B − A\nGathered parameters +1\.00 GiB +2\.00 GiB +\+1\.00 GiB\nnearly the same in both \(\+48\.8 KiB together\): optimizer states 1\.00 GiB, gradients 869\.7 MiB, parameters 434\.8 MiB\n/,
  );
  // What is all that differs has a row, however little it is.
  expect(explanationText({ ...answer, memory: answer.memory.slice(1, 2) }, colors)).toMatch(
    /Gradients +869\.7 MiB +869\.7 MiB +\+32\.5 KiB/,
  );
});

it("says of a plan that is not chosen what was predicted, and what was measured", () => {
  const predicted = { ...candidate(2, 2 ** 30).predicted };
  const text = whyNotText(
    {
      plan,
      binding: null,
      notRunnableReason: null,
      predicted,
      excessBytes: -(2 ** 30),
      memory: [],
      smallestChange: null,
      standing: {
        rank: 2,
        of: 5,
        best: { plan, changes: [], predicted: { ...predicted, stepTimeSeconds: 1.9 } },
      },
      measured: {
        stepTimeSeconds: 3.73,
        place: 1,
        of: 2,
        verdict: "fastest",
        tied: 1,
        behind: 0,
        fastest: { rank: 2, plan },
        disturbed: true,
      },
    },
    2 ** 31,
    colors,
  );
  expect(text).toContain("feasible: by prediction rank 2 of 5 families of plans");
  expect(text).toContain(
    "Measured: 3.73 s a step, the fastest of 2 plans. Other work ran beside every run of it, so its time says little.",
  );
  expect(text).toContain("by prediction the best plan is 5.3% faster");
});
