import { appendFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { measurementCount, requiredMeasurements } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { DEFAULT_SLICE_ROUNDS } from "@internevo/profiles";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MeasuredSoFar, type KeepingOptions } from "../src/measured-so-far.ts";

const EFFORT = {
  minimumSamples: 1,
  maximumSecondsPerPoint: 0.25,
  targetRelativeSpread: 1,
  sliceRounds: DEFAULT_SLICE_ROUNDS,
};

let directory: string;
let failures: unknown[];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-measured-"));
  failures = [];
});
afterEach(() => rm(directory, { recursive: true }));

const needed = requiredMeasurements(
  resolveJob({
    name: "small",
    model: { name: "tiny", hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 },
    sequenceLengthTokens: 64,
    globalBatchTokens: 512,
    precision: "fp32",
    steps: 3,
    cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
  }),
);
const spread = { medianSeconds: 2, p10Seconds: 1, p90Seconds: 3, samples: 5 };
const file = (): string => join(directory, "jobs", "one", "measured-so-far.jsonl");
const open = (over: Partial<KeepingOptions> = {}): Promise<MeasuredSoFar> =>
  MeasuredSoFar.open({
    path: file(),
    cluster: "local:here:1x2",
    programs: ["probe", "trainer"],
    threadsPerRank: 1,
    effort: EFFORT,
    freshForSeconds: 60,
    onFailure: (error) => failures.push(error),
    ...over,
  });

/** Measures the runtime, and of each kind that the probe has the first point. */
function measureSome(soFar: MeasuredSoFar): void {
  const [module, collective, overlap] = [needed.modules[0], needed.collectives[0], needed.overlaps[0]];
  if (!module || !collective || !overlap) throw new Error("the job needs a point of each kind");
  soFar.keepRuntime(1000);
  const groupSize = collective.groups[0]?.length ?? 0;
  const { op, bytes, placement } = collective;
  soFar.keepEvent({ event: "collective", op, bytes, groupSize, placement, ...spread }, undefined);
  soFar.keepEvent({ event: "module", shape: module, flops: 10, ...spread }, undefined);
  soFar.keepEvent(
    {
      event: "overlap",
      shape: overlap.module,
      op: overlap.collective.op,
      bytes: overlap.collective.bytes,
      groupSize: overlap.collective.groups[0]?.length ?? 0,
      aloneComputeSeconds: 1,
      aloneCommunicationSeconds: 1,
      togetherSeconds: 1,
      slowdown: 1,
    },
    overlap.collective.placement,
  );
  const [slice] = needed.slices;
  if (slice) soFar.keepNoRoom(slice);
}
const missingOf = (soFar: MeasuredSoFar): number => measurementCount(soFar.missing(needed));
const whole = measurementCount(needed);

it("gives the next attempt what was measured, and has it measure only what is missing", async () => {
  const first = await open();
  expect([first.count, missingOf(first)]).toEqual([0, whole]);
  measureSome(first);
  const left = missingOf(first);
  expect(left).toBe(whole - (needed.slices.length > 0 ? 4 : 3));
  // The process was killed while it wrote.
  await appendFile(file(), '{"kind":"probe","event":{"event":"mod');
  const second = await open();
  expect([second.runtimeBytes, second.count, missingOf(second)]).toEqual([1000, first.count, left]);
  expect(second.measuredAt).toEqual(first.measuredAt);
  expect(second.overlapPlacements).toEqual([needed.overlaps[0]?.collective.placement]);
  second.keepRuntime(1);
  expect((await open()).count).toBe(first.count + 1);
  expect(failures).toEqual([]);
});

it.each([
  ["another build of a program", { programs: ["probe", "newer"] }],
  ["another cluster", { cluster: "local:here:1x4" }],
  ["other threads", { threadsPerRank: 2 }],
  ["another effort", { effort: { ...EFFORT, minimumSamples: 5 } }],
  ["a measurement that is not fresh any more", { freshForSeconds: 0 }],
  ["no file", { path: undefined }],
])("begins anew for %s", async (_what, over) => {
  measureSome(await open());
  const other = await open(over);
  expect([other.count, missingOf(other), other.runtimeBytes]).toEqual([0, whole, undefined]);
});

it("begins anew for a file that is none, and when the measurement was complete", async () => {
  const first = await open();
  await writeFile(file(), "no JSON\n");
  expect((await open()).count).toBe(0);
  measureSome(first);
  await first.forget();
  await expect(readFile(file())).rejects.toThrow("ENOENT");
  expect((await open()).count).toBe(0);
});

it("goes on in memory, and says so once, when the points cannot be written", async () => {
  const first = await open();
  await rm(directory, { recursive: true });
  measureSome(first);
  expect(first.count).toBeGreaterThan(3);
  expect(failures).toMatchObject([{ code: "ENOENT" }]);
  directory = await mkdtemp(join(tmpdir(), "internevo-measured-"));
});
