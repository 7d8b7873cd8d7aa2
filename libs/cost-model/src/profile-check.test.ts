import { ProblemError, resolveJob, type Profile } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { parseProfile, peakFraction } from "./profile-check.ts";
import { shippedProfile } from "./shipped-profiles.ts";

const shipped = shippedProfile("a800-128");
const JOB = resolveJob({
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- profiles that no type would allow
type Loose = any;
const changed = (change: (profile: Loose) => unknown): unknown => {
  const profile = structuredClone(shipped) as Loose;
  change(profile);
  return profile;
};
function detailsOf(value: unknown): ProblemError["details"] {
  try {
    parseProfile(value, "the profile");
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    expect(error.code).toBe("profile-invalid");
    return error.details;
  }
  throw new Error("the profile was accepted");
}
const fractions = shipped.modules.map(({ shape, medianSeconds }) =>
  shape.module === "linear" && shape.precision === "bf16"
    ? (peakFraction(shape, medianSeconds, shipped.device) ?? 0)
    : 0,
);
const linear = fractions.indexOf(Math.max(...fractions));
const seconds = shipped.modules[linear]?.medianSeconds ?? 0;

describe("parseProfile", () => {
  it("takes what ships", () => {
    expect(parseProfile(structuredClone(shipped), "the profile")).toEqual(shipped);
  });

  it.each([
    ["no time at all", (p: Loose) => (p.modules[0].medianSeconds = 1e-320), "modules.0.medianSeconds"],
    [
      "a module of three hundred zeros",
      (p: Loose) => (p.modules[0].medianSeconds = 9.6e302),
      "modules.0.medianSeconds",
    ],
    [
      "a message that takes years",
      (p: Loose) => (p.collectives[0].points[0].medianSeconds = 1e9),
      "collectives.0.points.0.medianSeconds",
    ],
    [
      "a device of no speed",
      (p: Loose) => (p.device.peakFlopsPerSecondBf16 = 1e-300),
      "device.peakFlopsPerSecondBf16",
    ],
    [
      "a device beyond physics",
      (p: Loose) => (p.device.peakFlopsPerSecondBf16 = 1e200),
      "device.peakFlopsPerSecondBf16",
    ],
    [
      "memory beyond physics",
      (p: Loose) => (p.device.memoryBandwidthBytesPerSecond = 1e100),
      "device.memoryBandwidthBytesPerSecond",
    ],
    [
      "a slow-down of nothing",
      (p: Loose) => p.overlaps.push({ op: "all-gather", groupSize: 8, slowdown: 1e-9 }),
      `overlaps.${shipped.overlaps.length}.slowdown`,
    ],
    [
      "a median below the tenth percentile",
      (p: Loose) => (p.modules[0].p10Seconds = p.modules[0].medianSeconds * 2),
      "modules.0.p10Seconds",
    ],
    [
      "a median above the ninetieth",
      (p: Loose) => (p.collectives[0].points[0].p90Seconds = p.collectives[0].points[0].medianSeconds / 2),
      "collectives.0.points.0.p90Seconds",
    ],
    [
      "a group larger than the cluster",
      (p: Loose) => (p.collectives[0].groupSize = 4096),
      "collectives.0.groupSize",
    ],
    [
      "a group inside a node that is larger than a node",
      (p: Loose) =>
        p.collectives.push({
          op: "all-gather",
          groupSize: 16,
          placement: "intra-node",
          points: [{ bytes: 1024, medianSeconds: 1e-3 }],
        }),
      `collectives.${shipped.collectives.length}.groupSize`,
    ],
    [
      "more heads of keys than divide",
      (p: Loose) =>
        p.modules.push({
          shape: {
            module: "attention",
            pass: "forward",
            precision: "bf16",
            batch: 1,
            sequence: 8,
            heads: 4,
            kvHeads: 3,
            headSize: 8,
          },
          medianSeconds: 1,
        }),
      `modules.${shipped.modules.length}.shape.kvHeads`,
    ],
    [
      "one module with two times",
      (p: Loose) => p.modules.push({ ...p.modules[0], medianSeconds: p.modules[0].medianSeconds * 2 }),
      `modules.${shipped.modules.length}.medianSeconds`,
    ],
    [
      "one message with two times",
      (p: Loose) => p.collectives[0].points.push({ ...p.collectives[0].points[0], medianSeconds: 1 }),
      `collectives.0.points.${shipped.collectives[0]?.points.length}.medianSeconds`,
    ],
    [
      "products far above the peak",
      (p: Loose) => (p.modules[linear].medianSeconds = seconds / 20),
      `modules.${linear}.medianSeconds`,
    ],
    [
      "traffic a thousand times faster than memory",
      (p: Loose) =>
        p.modules.push({
          shape: { module: "residual-add", pass: "forward", precision: "bf16", rows: 1e6, width: 8192 },
          medianSeconds: 1e-9,
        }),
      `modules.${shipped.modules.length}.medianSeconds`,
    ],
    [
      "messages a thousand times faster than memory",
      (p: Loose) => (p.collectives[0].points.at(-1).medianSeconds = 1e-10),
      `collectives.0.points.${(shipped.collectives[0]?.points.length ?? 0) - 1}.medianSeconds`,
    ],
  ])("refuses %s with its field", (_what, change, field) => {
    const details = detailsOf(changed(change));
    expect(details.map((detail) => detail.field)).toContain(field);
    const detail = details.find((one) => one.field === field);
    expect(detail?.value).toBeDefined();
    expect(detail?.remedy).not.toBe("");
  });

  it("says by how much a product is above the peak", () => {
    const [detail] = detailsOf(changed((p) => (p.modules[linear].medianSeconds = seconds / 20)));
    expect(detail?.message).toMatch(/\d+% of device\.peakFlopsPerSecondBf16/);
  });
});

describe("a profile whose products are a little above the stated peak", () => {
  it("is planned with, and that is said", () => {
    const profile = parseProfile(
      changed((p) => {
        const { rows, inputs, outputs } = p.modules[linear].shape;
        const work = 2 * rows * inputs * outputs * (p.modules[linear].shape.pass === "forward" ? 1 : 2);
        p.modules[linear].medianSeconds = work / (1.1 * p.device.peakFlopsPerSecondBf16);
      }),
      "the profile",
    );
    const warnings = (of: Profile): string[] => new CostModel(JOB, of).warnings;
    expect(warnings(profile).join("\n")).toMatch(
      /above the stated peak.*linear (forward|backward) bf16 at 11[01]%/,
    );
    expect(warnings(shipped).join("\n")).not.toContain("above the stated peak");
  });
});
