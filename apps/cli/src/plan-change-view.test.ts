import { planOfChange, type PlanChange } from "@internevo/domain";
import { exampleCandidate } from "@internevo/test-kit/fixtures";
import picocolors from "picocolors";
import { expect, it } from "vitest";
import { planChangesTable } from "./plan-change-view.ts";

const colors = picocolors.createColors(false);
const from = planOfChange(exampleCandidate());
const change: PlanChange = {
  id: "a",
  jobId: "j",
  state: "dismissed",
  origin: "drift",
  askedBy: "executor-supervisor",
  isTrial: false,
  proposalId: null,
  from,
  to: from,
  predictedGain: null,
  gainThreshold: 0,
  compareSteps: 10,
  appliedAtStep: null,
  firstAttempt: null,
  secondsBefore: null,
  secondsAfter: null,
  measuredGain: null,
  reason: "the plan in use is still the best",
  createdAt: "2026-11-28T10:00:00.000Z",
  appliedAt: null,
  endedAt: null,
};

it("names a plan and a gain of a search only where it has found one", () => {
  const nothing = planChangesTable([change], colors);
  expect(nothing).not.toContain("%");
  expect(nothing).not.toContain("pp1");
  const to = { ...from, plan: { ...from.plan, microBatches: from.plan.microBatches * 2 } };
  const found = planChangesTable([{ ...change, to, predictedGain: 0.25 }], colors);
  expect(found).toContain("+25.0%");
  expect(found).toContain(`n${to.plan.microBatches} `);
});
