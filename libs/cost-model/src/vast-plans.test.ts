import { parsePlanLabel, resolveJob } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { shippedProfile } from "./shipped-profiles.ts";

describe("a plan of a vast job", () => {
  it.each([
    "b1 n2000 a0 pp2000 dp500 tp1 sp1 ps1 gs1 oss500",
    "b1 n10000 a0 pp100 dp100 tp1 sp100 ps1 gs1 oss1 cp100 v20",
    "b1 n10 a0 pp10 dp100000 tp1 sp1 ps1 gs1 oss1 v200",
  ])(
    "has memory for each of its stages, also of as many layers and ranks as there may be: %s",
    (label) => {
      const vast = resolveJob({
        name: "vast",
        model: { hiddenSize: 128, layers: 2000, heads: 4, vocabularySize: 256 },
        sequenceLengthTokens: 4000,
        globalBatchTokens: 4000 * 1_000_000,
        cluster: { nodes: 125_000, gpusPerNode: 8, memoryPerGpu: "80GB" },
      });
      const plan = planOfJob(parsePlanLabel(label), vast);
      expect(new CostModel(vast, shippedProfile("a800-128")).stageMemory(plan)).toHaveLength(
        plan.pipelineParallel,
      );
    },
    2000,
  );
});
