import type { JobDetail } from "@internevo/contracts";
import { exampleCandidate, examplePlanning, exampleSpec } from "@internevo/test-kit/fixtures";
import { expect, it } from "vitest";
import { rankedPlan, type NamedJob } from "./named-job.ts";

const planning = examplePlanning(3);
const named = (submitted: object | null): NamedJob => ({
  spec: exampleSpec(),
  profile: undefined,
  submitted: submitted as JobDetail | null,
});

it("takes a rank of a submitted job from its tables, where nothing else is searched", () => {
  const tried = { ...exampleCandidate(2), plan: exampleCandidate(7).plan };
  const job = named({ trials: [{ candidate: tried }], planning });
  expect(rankedPlan("2", job, {})).toEqual(tried.plan);
  expect(rankedPlan("3", job, {})).toEqual(planning.candidates[2]?.plan);
  expect(rankedPlan("4", job, {})).toBeUndefined();
  expect(rankedPlan("tp2", job, {})).toBeUndefined();
  for (const asked of [{ profile: "a800-128" }, { fix: ["tp=1"] }, { headroom: "5%" as never }])
    expect(rankedPlan("2", job, asked)).toBeUndefined();
  expect(rankedPlan("2", named(null), {})).toBeUndefined();
});
