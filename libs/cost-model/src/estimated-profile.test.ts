import {
  estimatedPoints,
  formatBytes,
  estimatedProfileWords,
  resolveJob,
  type ModuleShape,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { aPlan } from "@internevo/test-kit";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { ASSUMED, GPUS, SOURCES, usableBytes } from "./estimated-gpus.ts";
import { ESTIMATED_PROFILES } from "./estimated-profile.ts";
import { estimatedWith } from "./missing-measurements.ts";
import { parseProfile } from "./profile-check.ts";
import { findShippedProfile, shippedProfile } from "./shipped-profiles.ts";
import { spreadFactors } from "./spread.ts";
import { ModuleTimes } from "./modules.ts";
import { rooflineSeconds } from "./work.ts";

const job = (profile: string) =>
  resolveJob({
    name: "estimated",
    model: "llama-7b",
    sequenceLengthTokens: 8192,
    globalBatchTokens: 16 * 8192,
    precision: "bf16",
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB", profile },
  });
const plan = aPlan({ microBatches: 2, dataParallel: 8, sequenceParallel: 2, parameterSharding: 8 });

const secondsOf = (name: string): number => {
  const spec = job(name);
  return new CostModel(spec, shippedProfile(name)).predict(planOfJob(plan, spec)).stepTimeSeconds;
};

describe("estimated profiles", () => {
  it.each(ESTIMATED_PROFILES)("%s is a profile without contradictions, and says what it is", (name) => {
    const profile = shippedProfile(name);
    expect(parseProfile(JSON.parse(JSON.stringify(profile)), name)).toEqual(profile);
    const { estimated, all } = estimatedPoints(profile);
    expect(estimated).toBe(all);
    expect(estimatedProfileWords(profile)).toMatch(/\*estimated\* from published figures, not measured/);
    expect(profile.device.name).toMatch(/estimated/);
    // What it holds is no measurement of a job.
    const said = estimatedWith([job(name)], profile);
    expect(said?.needed).toBe(Object.values(said?.missing ?? {}).reduce((sum, count) => sum + count, 0));
  });

  it("say where a job has more memory than their GPUs", () => {
    const profile = shippedProfile("estimated:l40s");
    const has = profile.cluster.memoryPerGpuBytes ?? 0;
    expect(estimatedProfileWords(profile, { memoryPerGpuBytes: 80e9 })).toContain(
      `have ${formatBytes(has)} for a rank, and the job's \`cluster.memoryPerGpu\` is 74.5 GiB: plans may not fit`,
    );
    expect(estimatedProfileWords(profile, { memoryPerGpuBytes: has })).toBe(estimatedProfileWords(profile));
    const measured = shippedProfile("a800-128");
    expect(estimatedProfileWords(measured, { memoryPerGpuBytes: 1e15 })).toBeUndefined();
  });

  it.each(ESTIMATED_PROFILES)("%s has ranges as wide as what is not known", (name) => {
    const spec = job(name);
    const { low, high } = spreadFactors(spec, shippedProfile(name))?.(planOfJob(plan, spec)) ?? {};
    expect(low).toBeLessThan(0.9);
    expect(low).toBeGreaterThan(0.4);
    expect(high).toBeGreaterThan(1.1);
    expect(high).toBeLessThan(2.5);
  });

  it("holds what was measured of the same chip inside its range", () => {
    const spec = job("estimated:a100");
    // The A800 has slower links than the A100, so ranks share little here.
    const own = planOfJob(aPlan({ dataParallel: 16 }), spec);
    const estimated = new CostModel(spec, shippedProfile("estimated:a100"));
    const { low, high } = spreadFactors(spec, shippedProfile("estimated:a100"))?.(own) ?? {};
    const seconds = estimated.predict(own).stepTimeSeconds;
    const measured = new CostModel(spec, shippedProfile("a800-128")).predict(own).stepTimeSeconds;
    expect(measured).toBeGreaterThan(seconds * (low as number));
    expect(measured).toBeLessThan(seconds * (high as number));
  });

  it("puts faster GPUs before slower ones", () => {
    const order = ["b200", "h200", "h100", "a100", "l40s"].map((gpu) => secondsOf(`estimated:${gpu}`));
    expect(order).toEqual([...order].sort((a, b) => a - b));
  });

  it("lacks no kind of module, so that nothing is taken from the peak alone", () => {
    const warned: string[] = [];
    const profile = shippedProfile("estimated:h100");
    const times = new ModuleTimes(profile, (kind) => warned.push(kind));
    const asked: ModuleShape[] = [
      { module: "linear", pass: "backward", precision: "bf16", rows: 3000, inputs: 5120, outputs: 13824 },
      {
        module: "attention",
        pass: "forward",
        precision: "bf16",
        batch: 3,
        sequence: 6000,
        heads: 5,
        kvHeads: 5,
        headSize: 96,
      },
      {
        module: "head-loss",
        pass: "forward-backward",
        precision: "fp32",
        rows: 77,
        width: 512,
        vocabulary: 999,
      },
      { module: "adamw", pass: "update", precision: "bf16", elements: 123_456_789 },
    ];
    for (const shape of asked)
      expect(times.seconds(shape)).toBeGreaterThan(rooflineSeconds(shape, profile.device));
    expect(warned).toEqual([]);
  });

  it("is found whatever the case of the GPU's name, and not under others", () => {
    expect(findShippedProfile("estimated:H100")).toBe(findShippedProfile("estimated:h100"));
    for (const name of ["estimated:", "estimated:h1000", "h100", "estimated:toString"])
      expect(findShippedProfile(name)).toBeUndefined();
  });

  it("names a source that is listed, or a reason, for every figure", () => {
    for (const gpu of Object.values(GPUS)) {
      expect(usableBytes(gpu)).toBeLessThan(gpu.figures.memoryBytes.value);
      for (const figure of Object.values(gpu.figures))
        if ("source" in figure) expect(SOURCES[figure.source]?.url).toMatch(/^https:/);
        else expect(figure.assumed.length).toBeGreaterThan(20);
    }
    for (const figure of Object.values(ASSUMED)) expect("assumed" in figure).toBe(true);
  });
});
