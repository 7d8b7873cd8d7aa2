import { REPLANNING_DEFAULTS } from "@internevo/domain";
import { expect, it } from "vitest";
import { replanningWarnings } from "./replanning-warnings.ts";

it("warns of a run that is over before it may change its plan", () => {
  const replanning = { ...REPLANNING_DEFAULTS, notInLastSteps: 100 };
  expect(replanningWarnings({ replanning, steps: 100 })).toMatchObject([
    {
      field: "replanning.notInLastSteps",
      value: 100,
      message: "is no less than the job's 100 steps: its plan is never changed",
    },
  ]);
  expect(replanningWarnings({ replanning, steps: 101 })).toEqual([]);
  expect(replanningWarnings({ steps: 1 })).toEqual([]);
});
