import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import { planLabel, ProblemError, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { OVERLAPS, planFault, planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { jobOf, planAndJob } from "../test/random-plans.ts";
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
    ]);
    const written = { ...tight, precision: "bf16-grad16" as const };
    expect(exported.predicted.peakMemoryBytes).toBe(
      new CostModel(written, profile).memory(exported.plan).bytes,
    );
  });

  it("keeps to what the job asks of its plan", () => {
    const asked = small({ sequenceLengthTokens: 32_768, plan: { sequenceParallel: 8 } });
    expect(exportBest("torchtitan", asked, profile).plan.sequenceParallel).toBe(8);
    const impossible = small({ sequenceLengthTokens: 32_768, plan: { gateUp: "again" } });
    const failure = (() => {
      try {
        return exportBest("torchtitan", impossible, profile);
      } catch (error) {
        return error as ProblemError;
      }
    })() as ProblemError;
    expect(failure.code).toBe("plan-invalid");
    expect(failure.details).toMatchObject([{ field: "framework", value: "torchtitan" }]);
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
