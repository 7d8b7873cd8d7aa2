import { aPlan } from "@internevo/test-kit";
import { resolveJob, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { totalSeconds } from "./step-time.ts";

const plain = shippedProfile("a800-128");
const withRates = (toHost: number, toDevice: number): Profile => ({
  ...plain,
  device: { ...plain.device, toHostBytesPerSecond: toHost, toDeviceBytesPerSecond: toDevice },
});

const jobOf = (cluster: Record<string, unknown> = {}, over: Record<string, unknown> = {}): JobSpec =>
  resolveJob({
    name: "host",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 8 * 2 * 4096,
    precision: "bf16",
    cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", device: "cuda", ...cluster },
    ...over,
  });
const planWith = (over: Partial<Plan>): Plan =>
  aPlan({ dataParallel: 8, microBatches: 2, optimizerStateSharding: 8, ...over });
const [kept, host] = [planWith({}), planWith({ gateUp: "host" })];
/** b·S·2F in 2 bytes. */
const place = 4096 * 2 * 11_008 * 2;

describe("gate and up in the host's memory", () => {
  it("leave two places of one layer on the GPU, and the host has those of all layers in flight", () => {
    const model = new CostModel(jobOf(), plain);
    const of = (plan: Plan) => planOfJob(plan, model.job);
    const [all, some] = [model.memory(of(kept)).lines, model.memory(of(host)).lines];
    expect(some["offloadStaging"]).toBe(2 * place);
    expect((all["activations"] as number) - (some["activations"] as number)).toBe(32 * place);
    expect(model.hostBytes(of(host))).toBe(32 * place);
    expect(model.hostBytes(of(kept))).toBe(0);
    expect(all).not.toHaveProperty("offloadStaging");
    const stages = planWith({ gateUp: "host", pipelineParallel: 4, dataParallel: 2, microBatches: 8 });
    expect(model.hostBytes(of({ ...stages, optimizerStateSharding: 2, recomputeLayers: 3 }))).toBe(
      4 * (8 - 3) * place,
    );
  });

  it("take what the copies are longer than the passes that hide them", () => {
    const slice = new CostModel(jobOf(), plain).sliceTime(1, kept);
    // One copy out takes three forward passes; the copy back two backward passes.
    const slow = withRates(place / (3 * slice.forwardSeconds), place / (2 * slice.backwardSeconds));
    const time = (profile: Profile, plan: Plan) => {
      const model = new CostModel(jobOf(), profile);
      return model.time(planOfJob(plan, model.job));
    };
    const exposed = 2 * 32 * (2 * slice.forwardSeconds + slice.backwardSeconds);
    expect(time(slow, host).hostCopySeconds).toBeCloseTo(exposed, 9);
    expect(totalSeconds(time(slow, host)) - totalSeconds(time(slow, kept))).toBeCloseTo(exposed, 9);
    expect(time(withRates(1e15, 1e15), host)).toEqual({ ...time(plain, kept), hostCopySeconds: 0 });
    expect(time(plain, kept)).not.toHaveProperty("hostCopySeconds");
  });

  it("have no time on a profile that does not say how fast copies are", () => {
    const model = new CostModel(jobOf(), plain);
    expect(() => model.time(planOfJob(host, model.job))).toThrow(/how fast copies/);
  });

  it("are searched where copies have a rate and the host's memory is known, or they are asked for", () => {
    const rates = withRates(2e10, 2e10);
    const open = (job: JobSpec, profile: Profile) => new CostModel(job, profile).hostFault === null;
    expect(open(jobOf({ hostMemory: "1TB" }), plain)).toBe(false);
    expect(open(jobOf({ hostMemory: "1TB" }), rates)).toBe(true);
    expect(open(jobOf(), rates)).toBe(false);
    expect(open(jobOf({}, { plan: { gateUp: "host" } }), rates)).toBe(true);
    expect(open(jobOf({}, { plan: { gateUp: ["kept", "again"] } }), rates)).toBe(false);
    expect(open(jobOf({ hostMemory: "1TB" }, { memoryModel: "paper" }), rates)).toBe(false);
  });

  it("are searched on processors where they are asked for, since the host's memory is the ranks' own", () => {
    const rates = withRates(2e10, 2e10);
    const fault = (over: Record<string, unknown> = {}) =>
      new CostModel(jobOf({ hostMemory: "1TB", device: "cpu" }, over), rates).hostFault;
    expect(fault()).toBe(
      "ranks on processors have no memory but their host's: ask for it with plan.gateUp, or give cluster.device: cuda",
    );
    expect(fault({ plan: { gateUp: ["kept", "host"] } })).toBeNull();
  });

  it("fit where every GPU's part of its node's memory is enough", () => {
    const fault = (hostMemory: number) => {
      const model = new CostModel(jobOf({ hostMemory: `${hostMemory}B` }), withRates(2e10, 2e10));
      return model.memoryFault(planOfJob(host, model.job));
    };
    expect(fault(8 * 32 * place)).toBeNull();
    expect(fault(8 * 32 * place - 1)).toMatch(/of its host's memory/);
  });
});
