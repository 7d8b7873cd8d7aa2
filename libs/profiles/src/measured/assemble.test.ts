import { readFileSync } from "node:fs";
import { join } from "node:path";
import { countMissing, requiredMeasurements } from "@internevo/cost-model";
import { resolveJob, type MeasuredTrace } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { readCheckResults } from "../check-results.ts";
import { assembleKit, timelineMap, timelinesOf } from "./assemble.ts";
import { KitSchema, measurementKit, type Kit } from "./kit.ts";
import { validate } from "@internevo/domain";

// What gpu-check wrote on the model of a GPU with native/tests/cuda/check/kit-small.json.
const data = join(import.meta.dirname, "../../test-data");
const NAME = "gpu-check-with-a-kit.jsonl";
const TEXT = readFileSync(join(data, NAME), "utf8");
const check = join(import.meta.dirname, "../../../../native/tests/cuda/check");
const job = resolveJob(parse(readFileSync(join(check, "kit-small.yaml"), "utf8")));
const needed = requiredMeasurements(job);

function assembled(text: string, ...more: string[]) {
  const results = readCheckResults([text, ...more].map((each) => ({ name: NAME, text: each })));
  const timelines = timelinesOf(results).map((each) => ({
    ...each,
    trace: JSON.parse(readFileSync(join(data, `${NAME}.d`, each.name), "utf8")) as MeasuredTrace,
  }));
  return assembleKit(results, timelineMap(timelines));
}
/** The text with the line of a case changed. */
const changed = (name: string, change: (line: string) => string): string =>
  TEXT.split("\n")
    .map((line) =>
      line.includes(`"case":"${name}"`) && line.includes('"event":"case"') ? change(line) : line,
    )
    .join("\n");
const failed = (line: string): string =>
  line.replace('"outcome":"passed"', '"message":"ended after 9 s","outcome":"timed-out"');

describe("a profile that is assembled from files", () => {
  it("has all that the job needs, as if the cluster's own probe and trainer had been asked", () => {
    const profile = assembled(TEXT);
    expect(countMissing(profile, needed)).toBe(0);
    expect(profile.slices).toHaveLength(needed.slices.length);
    expect(profile.cluster).toEqual({ nodes: 1, gpusPerNode: 1, memoryPerGpuBytes: 8 * 2 ** 30 });
    expect(profile.device.name).toMatch(/cuda-model/);
    expect(profile.device.runtimeBytes).toBeGreaterThan(2 ** 20);
    expect(profile.name).toMatch(/^one-gpu 20\d\d-\d\d-\d\d \d\d:\d\d UTC, assembled$/);
    expect(profile.provenance.source).toBe("measured by internevo-probe, assembled from files");
    expect(profile.provenance.notes.join("\n")).toContain(`assembled from ${NAME}`);
    expect(profile.quality?.points).toBe(
      profile.modules.length + profile.overlaps.length + (profile.slices?.length ?? 0),
    );
  });

  it("says which pieces have no answer, and does without them", () => {
    const profile = assembled(changed("profile.slice.2", failed));
    expect(profile.slices).toHaveLength(needed.slices.length - 1);
    expect(profile.provenance.notes.join("\n")).toContain(
      "1 piece of 5 without an answer: profile.slice.2 (timed-out)",
    );
    const fewer = assembled(changed("profile.probe.2", failed));
    expect(countMissing(fewer, needed)).toBeGreaterThan(0);
    expect(fewer.modules.length).toBeGreaterThan(0);
  });

  it("takes a later answer over an earlier one, over files too", () => {
    const again = TEXT.split("\n").filter((line) => line.includes('"event":"run"') || /slice\.2/.test(line));
    expect(assembled(changed("profile.slice.2", failed), again.join("\n")).slices).toHaveLength(
      needed.slices.length,
    );
  });

  it("is refused without the device or its memory, naming the case and what to do", () => {
    for (const [name, why] of [
      [
        "profile.runtime",
        "says how much memory a rank takes beside its plan; it ended with: ended after 9 s",
      ],
      ["profile.probe.1", "describes the device; it ended with: ended after 9 s"],
    ] as const)
      expect(() => assembled(changed(name, failed)), name).toThrow(
        expect.objectContaining({
          message: `${name} has no answer`,
          details: [
            expect.objectContaining({
              field: name,
              value: "timed-out",
              message: why,
              remedy: expect.stringContaining("gpu-check --only profile. --resume"),
            }),
          ],
        }),
      );
  });

  it("is refused of two kits, and of none", () => {
    const other = changed("profile.probe.2", (line) => line.replace('"madeAt":"20', '"madeAt":"19'));
    expect(() => assembled(other)).toThrow(/answers of two kits/);
    const none = TEXT.split("\n").filter((line) => !line.includes('"profile.'));
    expect(() => assembled(none.join("\n"))).toThrow(/no measurements of a kit/);
  });
});

describe("a kit", () => {
  const options = {
    jobs: [job],
    threadsPerRank: 1,
    effort: { minimumSamples: 2, maximumSecondsPerPoint: 0.01, targetRelativeSpread: 0.03 },
    device: {
      peakFlopsPerSecondFp32: 1e12,
      peakFlopsPerSecondBf16: 1e12,
      memoryBandwidthBytesPerSecond: 1e11,
    },
    sliceSeconds: 0.05,
    sliceRounds: 1,
    probeDigest: null,
    plans: [],
    profileName: "none",
    madeAt: new Date(0),
  };
  const points = (kit: Kit): unknown[] =>
    kit.pieces.flatMap((piece) =>
      piece.kind === "probe"
        ? [...piece.config.modules, ...piece.config.collectives, ...piece.config.overlaps]
        : [],
    );

  it("asks for every measurement once, in cases of a few seconds, and describes the device once", () => {
    const kit = validate(KitSchema, measurementKit(options), "profile-invalid", "the kit");
    expect(points(kit)).toEqual(needed.modules);
    const probes = kit.pieces.flatMap((piece) => (piece.kind === "probe" ? [piece] : []));
    expect(probes.map(({ config }) => config.device)).toEqual([true, ...probes.slice(1).map(() => false)]);
    expect(probes.length).toBeGreaterThan(1);
    expect(kit.about.pieces).toEqual(kit.pieces.map(({ id }) => id));
    for (const piece of kit.pieces)
      if (piece.kind === "probe") expect(piece.config.deviceKind).toBe("cuda");
      else expect(piece.config.device).toBe("cuda");
  });

  it("measures several jobs together, each point once", () => {
    const longer = { ...job, name: "longer", sequenceLengthTokens: 64 };
    const both = measurementKit({ ...options, jobs: [job, longer] });
    expect(both.about.jobs).toEqual([job.name, "longer"]);
    const all = points(both).map((each) => JSON.stringify(each));
    expect(new Set(all).size).toBe(all.length);
    expect(all.length).toBeGreaterThan(needed.modules.length);
  });

  it("is refused for several nodes, and for jobs of two clusters, naming field, value and remedy", () => {
    const nodes = { ...job, cluster: { ...job.cluster, nodes: 2 } };
    expect(() => measurementKit({ ...options, jobs: [nodes] })).toThrow(
      expect.objectContaining({ details: [expect.objectContaining({ field: "cluster.nodes", value: 2 })] }),
    );
    const larger = { ...job, name: "larger", cluster: { ...job.cluster, memoryPerGpuBytes: 2 ** 34 } };
    expect(() => measurementKit({ ...options, jobs: [job, larger] })).toThrow(
      expect.objectContaining({
        details: [
          expect.objectContaining({
            field: "cluster.memoryPerGpuBytes",
            value: 2 ** 34,
            remedy: "give jobs of one cluster, and make a kit for each cluster",
          }),
        ],
      }),
    );
  });
});
