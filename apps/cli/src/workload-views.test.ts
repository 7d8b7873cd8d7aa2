import { aPlan } from "@internevo/test-kit";
import { formatMoment, type Candidate, type Plan, type Proposal, type Workload } from "@internevo/domain";
import picocolors from "picocolors";
import { describe, expect, it } from "vitest";
import { noProposalsText, proposalsText, workloadsTable } from "./workload-views.ts";

const colors = picocolors.createColors(false);
const plan = aPlan({ microBatches: 4, dataParallel: 2 });
const candidate = (rank: number, over: Partial<Plan> = {}): Candidate =>
  ({
    rank,
    plan: { ...plan, ...over },
    predicted: { stepTimeSeconds: rank, tokensPerGpuPerSecond: 100, peakMemoryBytes: 1 << 20 },
  }) as Candidate;

describe("proposals", () => {
  const proposal = (
    current: Candidate | null,
    predictedGain: number,
    over: Partial<Proposal> = {},
  ): Proposal => ({
    id: "p",
    workloadId: "w",
    state: "proposed",
    measuredGain: null,
    jobId: null,
    reason: null,
    current,
    proposed: candidate(1, { microBatchSize: 2, microBatches: 2 }),
    predictedGain,
    differences: [],
    createdAt: "2026-01-31T03:00:00.000Z",
    changedAt: "2026-01-31T03:00:00.000Z",
    ...over,
  });
  it("say what changes, and against what", () => {
    expect(proposalsText([proposal(candidate(2), 0.125)], colors)).toMatch(
      /proposed .*\+12\.5% +– +micro-batch size \(b\) 1 → 2, micro-batches \(n\) 4 → 2$/m,
    );
    const first = proposalsText([proposal(null, 0)], colors);
    expect(first).toMatch(/– +– +first plan: none was in use$/m);
    expect(first).not.toMatch(/null|0\.0%/);
    expect(proposalsText([proposal(candidate(2), 0)], colors)).toMatch(
      /– +– +the one in use does not fit any more; micro-batch size \(b\) 1 → 2/,
    );
  });
  it("say what a run measured, and why they are in their state", () => {
    const reason = "gains too little";
    expect(
      proposalsText(
        [proposal(candidate(2), 0.125, { state: "returned", measuredGain: -0.01, reason })],
        colors,
      ),
    ).toMatch(/taken back .*\+12\.5% +−1\.0%/);
  });
  const workload = (lastRunAt: string | null, lastOutcome: string | null): Workload =>
    ({
      id: "11112222-0000-4000-8000-000000000000",
      name: "nightly",
      cron: "0 3 * * *",
      timeZone: "UTC",
      policy: "apply",
      changeWindow: { from: "22:00", to: "06:00" },
      nextRunAt: "2026-02-01T03:00:00.000Z",
      lastRunAt,
      lastOutcome,
    }) as Workload;
  it("that are none say why", () => {
    expect(noProposalsText(workload(null, null))).toContain(
      `has not been planned yet, next ${formatMoment("2026-02-01T03:00:00.000Z")}`,
    );
    expect(noProposalsText(workload("2026-01-31T03:00:00.000Z", null))).toContain("queued or running");
    expect(noProposalsText(workload("2026-01-31T03:00:00.000Z", "kept the plan in use"))).toContain(
      "kept the plan in use",
    );
    expect(workloadsTable([workload("2026-01-31T03:00:00.000Z", null)], colors)).toMatch(
      /^11112222 +nightly .* apply 22:00-06:00 .* queued or running$/m,
    );
  });
});
