import { choiceOf, type Candidate, type Measurement, type Trial } from "@internevo/domain";
import { aPlan } from "@internevo/test-kit";
import { expect, it } from "vitest";
import { planRows, reasonOfChoice } from "./plan-rows.ts";

it("says of the chosen plan that its rank counts families", () => {
  const candidate = {
    rank: 5,
    plan: aPlan(),
    predicted: { stepTimeSeconds: 2, peakMemoryBytes: 100 },
  } as Candidate;
  const measured = {
    stepTimeSeconds: 2,
    stepTimeSecondsP10: 2,
    stepTimeSecondsP90: 2,
    steps: 5,
    communicationSeconds: 0,
    peakMemoryBytes: 100,
  } as Measurement;
  const trials = [{ candidate, measured } as Trial];
  const rows = planRows(null, trials, candidate);
  expect(reasonOfChoice(rows, choiceOf(trials))).toBe(
    "#5 was the only measured plan. By prediction it is rank 5: the best plans of 4 families are ahead of it.",
  );
});
