import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import { planLabel, ProblemError, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { OVERLAPS, planFault, planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { jobOf, LLAMA3_ROPE as llama3, planAndJob } from "../test/random-plans.ts";
import {
  exportBest,
  exportConfiguration,
  exportPredicted,
  FRAMEWORKS,
  isWrittenExactly,
  writtenPlans,
  type Framework,
} from "./index.ts";

const profile = shippedProfile("a800-128");
const small = (written: Record<string, unknown> = {}): JobSpec =>
  jobOf({
    globalBatchTokens: 1_048_576,
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...written,
  });

/** The fastest plans of the job that fit, whatever can say them. */
function fastPlans(job: JobSpec): Plan[] {
  const overlaps = {
    forwardOverlap: [...new Set(OVERLAPS.map(({ forwardOverlap }) => forwardOverlap))],
    backwardOverlap: [...new Set(OVERLAPS.map(({ backwardOverlap }) => backwardOverlap))],
  };
  const { plans } = planJob({ ...job, plan: overlaps }, profile, { top: 1, plans: 20_000 });
  return (plans ?? []).map(({ plan }) => plan);
}

const best = (job: JobSpec, measured: Profile = profile): Plan =>
  planJob(job, measured, { top: 1 }).candidates[0]?.plan as Plan;
const stepTime = (job: JobSpec, plan: Plan): number =>
  new CostModel(job, profile).predict(planOfJob(plan, job)).stepTimeSeconds;

describe("exportBest", () => {
  const job = small({ model: "llama-7b", sequenceLengthTokens: 131_072, precision: "bf16" });
  const all = fastPlans(job);

  // InternEvo keeps gradients as its parameters: there the job is another.
  it.each(["megatron", "deepspeed", "torchtitan"] as const)(
    "%s: is the fastest of all plans that fit and that the framework can say",
    (framework) => {
      const expected = all.find((plan) => isWrittenExactly(framework, job, planOfJob(plan, job))) as Plan;
      const exported = exportBest(framework, job, profile);
      expect(exported.predicted.fits).toBe(true);
      expect(exported.predicted.stepTimeSeconds).toBeCloseTo(stepTime(job, expected), 9);
      expect(exported.inexpressible.filter(({ field }) => field.startsWith("plan."))).toEqual([]);
      expect(exported.files).toEqual(
        exportConfiguration(framework, job, planOfJob(exported.plan, job)).files,
      );
    },
    60_000,
  );

  it("takes the job as the framework says it: in another precision more or less fits", () => {
    const tight = small({ sequenceLengthTokens: 32_768, precision: "bf16" });
    const exported = exportBest("internevo", tight, profile);
    expect(exported.inexpressible).toMatchObject([
      { field: "precision", value: "bf16", nearest: "bf16-grad16" },
      { field: "checkpointing.keepLast", nearest: "all" },
    ]);
    const written = { ...tight, precision: "bf16-grad16" as const };
    expect(exported.predicted.peakMemoryBytes).toBe(
      new CostModel(written, profile).memory(exported.plan).bytes,
    );
  });

  it("keeps to what the job asks of its plan", () => {
    const asked = small({ sequenceLengthTokens: 32_768, plan: { sequenceParallel: 8 } });
    expect(exportBest("torchtitan", asked, profile).plan.sequenceParallel).toBe(8);
  });
});

describe("exportBest, where nothing can be written", () => {
  const odd = {
    hiddenSize: 3584,
    layers: 28,
    heads: 28,
    kvHeads: 28,
    ffnHiddenSize: 18_944,
    vocabularySize: 152_064,
  };

  function refusal(framework: Framework, written: Record<string, unknown>): ProblemError | null {
    const job = small({ model: odd, sequenceLengthTokens: 32_768, ...written });
    try {
      exportBest(framework, job, profile);
      return null;
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      expect(error.code).toBe("plan-invalid");
      return error;
    }
  }

  it.each([
    ["queryKeyValueBias", true, ["internevo", "deepspeed", "torchtitan"]],
    ["ropeScaling", llama3, ["internevo", "deepspeed"]],
    ["slidingWindowTokens", 4096, ["internevo", "deepspeed", "torchtitan"]],
    ["headSize", 64, ["internevo"]],
  ])("names a model's %s, whatever the plan", (field, value, refusing) => {
    for (const framework of FRAMEWORKS) {
      const error = refusal(framework, { model: { ...odd, [field]: value } });
      expect([framework, error !== null]).toEqual([framework, refusing.includes(framework)]);
      if (error === null) continue;
      expect(error.message).toContain(`cannot say ${field}: `);
      expect(error.details).toMatchObject([
        { field: `model.${field}`, remedy: "export to another framework, or export a model without it" },
      ]);
    }
  });

  it("names a sequence that no plan of torchtitan can have", () => {
    const plan = { sequenceParallel: 1 };
    expect(
      refusal("torchtitan", { sequenceLengthTokens: 4095, globalBatchTokens: 64 * 4095, plan })?.details,
    ).toMatchObject([{ field: "sequenceLengthTokens", value: 4095 }]);
  });

  it.each<[string, unknown, Framework[], RegExp]>([
    ["gateUp", "host", [...FRAMEWORKS], /./],
    ["gateUp", "again", [...FRAMEWORKS], /./],
    ["contextParallel", 2, ["deepspeed"], /has no ring of ranks/],
    ["pipelineChunks", 2, ["deepspeed"], /one chunk a stage/],
    ["recomputeLayers", 3, ["deepspeed"], /all layers are recomputed .*, or none/],
    ["gradientSharding", 2, ["internevo"], /gradients stay whole|gradients are sharded as parameters are/],
  ])("names what the job fixes: %s %s", (field, value, refusing, why) => {
    for (const framework of FRAMEWORKS) {
      const error = refusal(framework, { plan: { [field]: value } });
      expect([framework, error !== null]).toEqual([framework, refusing.includes(framework)]);
      if (error === null) continue;
      expect(error.message).toMatch(/^no plan of the job can be said in .*'s words: plan\./);
      expect(error.details).toMatchObject([{ field: `plan.${field}`, value }]);
      expect(error.details[0]?.message).toMatch(why);
      expect(error.details[0]?.remedy).toBe(`leave plan.${field} free, or export to another framework`);
    }
  });

  it("says which of a plan's dimensions stand in the way where they do so together", () => {
    const error = refusal("internevo", { plan: { tensorParallel: 4, parameterSharding: 2 } });
    expect(error?.details).toMatchObject([
      { field: "plan.parameterSharding", value: 2, message: expect.stringContaining("(mode isp)") },
    ]);
    const window = { model: { ...odd, slidingWindowTokens: 4096 }, plan: { contextParallel: 4 } };
    expect(refusal("megatron", window)?.details).toMatchObject([
      {
        field: "plan.contextParallel",
        value: 4,
        message: expect.stringContaining("takes no window in a ring"),
      },
    ]);
    // Only a ring lets so many ranks share the heads, and every plan of the job has one.
    expect(
      refusal("deepspeed", { plan: { sequenceParallel: 16, tensorParallel: 1 } })?.details,
    ).toMatchObject([{ field: "plan.contextParallel", message: expect.stringContaining("28 heads") }]);
  });

  it("asks for memory only where plans can be said and none fits", () => {
    const cluster = { nodes: 2, gpusPerNode: 8, memoryPerGpu: "12GB" };
    const error = refusal("deepspeed", { cluster, plan: { pipelineParallel: 2 } });
    expect(error?.message).toBe("no plan that fits can be said in deepspeed's words");
    expect(error?.details).toMatchObject([{ field: "cluster.memoryPerGpu", value: "11.2 GiB" }]);
    expect(error?.details[0]?.message).toMatch(/the fastest, b\d.* pp2 .*, needs [\d.]+ GiB$/);
    expect(error?.details[0]?.remedy).toBe(
      "choose more GPUs or more memory, fix less of the job's plan, or export to another framework",
    );
  });

  it("says that no plan has what the job fixes, whatever the framework", () => {
    const error = refusal("megatron", { plan: { tensorParallel: 8, pipelineParallel: 4 } });
    expect(error?.details).toMatchObject([
      { field: "plan", message: expect.stringMatching(/no plan of 16 ranks has tensorParallel 8/) },
    ]);
  });
});

describe("writtenPlans", () => {
  it.each(FRAMEWORKS)("%s: gives up no sharding that some plan of it is said with", (framework) => {
    let said = 0;
    fc.assert(
      fc.property(planAndJob, ({ plan, job: { plan: _plan, ...job } }) => {
        const filter = writtenPlans(framework, job);
        if (planFault(plan, job) !== null || !filter.plan(plan)) return;
        said += 1;
        const { pipelineChunks: _chunks, recomputeLayers: _layers, gateUp: _gateUp, ...rest } = plan;
        const plain: Plan = { ...rest, recompute: false, forwardOverlap: "none", backwardOverlap: "none" };
        expect(filter.like(plain)).toBe(true);
      }),
      { numRuns: 1500, seed: 1 },
    );
    expect(said).toBeGreaterThan(5);
  });
});

describe("exportPredicted", () => {
  /** A job of the paper whose best plan makes gate and up again, which no framework can say. */
  const job = jobOf({ model: "llama-13b", sequenceLengthTokens: 131_072 });

  it.each(FRAMEWORKS.filter((framework) => framework !== "deepspeed"))(
    "%s: offers the best plan that can be said where the one asked for cannot",
    (framework: Framework) => {
      const asked = best(job);
      expect(asked.gateUp).toBe("again");
      const { predicted, best: offered } = exportPredicted(framework, job, planOfJob(asked, job), profile);
      expect(predicted.fits).toBe(false);
      expect(offered).toMatchObject({ fits: true });
      expect(planLabel(offered?.plan as Plan)).toBe(planLabel(exportBest(framework, job, profile).plan));
    },
    60_000,
  );

  it("offers nothing where the plan is said as it is, or where nothing was measured", () => {
    const plan = exportBest("megatron", job, profile).plan;
    expect(exportPredicted("megatron", job, plan, profile)).not.toHaveProperty("best");
    const asked = planOfJob(best(job), job);
    expect(exportPredicted("megatron", job, asked, null)).not.toHaveProperty("best");
  });

  it("says that nothing can be said that fits", () => {
    const asked = best({ ...job, plan: { gateUp: "again" } });
    const bound = { ...job, plan: { gateUp: "again" as const } };
    expect(exportPredicted("megatron", bound, planOfJob(asked, bound), profile).best).toBeNull();
  });

  it("names the best plan where nothing near the one asked for can be said", () => {
    const ringed = jobOf({ sequenceLengthTokens: 32_768 });
    const plan = {
      ...best(ringed),
      sequenceParallel: 64,
      contextParallel: 64,
      dataParallel: 2,
      microBatches: 64,
    } as Plan;
    const refused = (() => {
      try {
        return exportPredicted("deepspeed", ringed, planOfJob(plan, ringed), profile);
      } catch (error) {
        return error;
      }
    })();
    expect(refused).toBeInstanceOf(ProblemError);
    expect((refused as ProblemError).details[0]?.remedy).toContain(
      `the best plan that it can say is ${planLabel(exportBest("deepspeed", ringed, profile).plan)}`,
    );
  });
});
