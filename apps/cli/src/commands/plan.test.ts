import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { fileURLToPath } from "node:url";
import {
  measurementCount,
  requiredMeasurements,
  shippedProfile,
  type CollectiveRequest,
  type RequiredMeasurements,
} from "@internevo/cost-model";
import { ProblemError, resolveJob, type Profile } from "@internevo/domain";
import { exampleQuality } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createOutput } from "../output.ts";
import { connect } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { planCommand as planWith, showPlanning, type PlanCommandOptions } from "./plan.ts";

const example = (name: string): string =>
  fileURLToPath(new URL(`../../../../examples/paper/${name}`, import.meta.url));
let directory = "";
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-plan-"));
});
afterAll(async () => rm(directory, { recursive: true, force: true }));

/** Where no API is given, and no local stack runs. */
const offline = {
  computing: <T>(work: () => T): T => work(),
  client: () => connect({ options: () => ({ dataDirectory: directory }), env: {} }),
  signal: new AbortController().signal,
  output: () => createOutput({ stdout: new PassThrough(), stderr: new PassThrough(), env: {} }, true),
};
const planCommand = (options: PlanCommandOptions) => planWith(options, offline);

const file = async (name: string, content: string): Promise<string> => {
  const path = join(directory, name);
  await writeFile(path, content);
  return path;
};

const jobText = (over: Record<string, unknown> = {}): string =>
  JSON.stringify({
    name: "job",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
    ...over,
  });

const paperPlan = {
  microBatchSize: 2,
  microBatches: 4,
  pipelineParallel: 1,
  dataParallel: 128,
  tensorParallel: 1,
  sequenceParallel: 1,
  parameterSharding: 4,
  optimizerStateSharding: 2,
};

/** The shipped profile with every measurement that a job needs, and the same with one of them noisy. */
function wholeProfile(needed: RequiredMeasurements): { profile: Profile; noisy: Profile } {
  const shipped = shippedProfile("a800-128");
  const curves = Map.groupBy(needed.collectives, ({ op, groups, placement }) =>
    [op, groups[0]?.length, placement].join(" "),
  );
  const profile: Profile = {
    ...shipped,
    modules: needed.modules.map((shape) => ({ shape, medianSeconds: 10 })),
    collectives: [...curves.values()].map((points) => {
      const { op, groups, placement } = points[0] as CollectiveRequest;
      return {
        op,
        groupSize: groups[0]?.length ?? 0,
        placement,
        points: points.map(({ bytes }) => ({ bytes, medianSeconds: 1e-5 + bytes / 1e10 })),
      };
    }),
    overlaps: needed.overlaps.map(({ module, collective: { op, groups, placement, bytes } }) => ({
      shape: module,
      op,
      groupSize: groups[0]?.length ?? 0,
      placement,
      bytes,
      slowdown: 1.1,
    })),
    slices: needed.slices.map((slice) => ({
      ...slice,
      microBatches: 1,
      medianSeconds: 1e-2,
      parts: {
        forward: [1e-3, 1e-3, 1e-3, 1e-3],
        forwardAttention: 1e-3,
        forwardCommunication: 0,
        backward: [1e-3, 1e-3, 1e-3, 1e-3],
        backwardAttention: 1e-3,
        backwardCommunication: 0,
        embedding: 1e-4,
        embeddingCommunication: 0,
        head: 1e-3,
        headCommunication: 0,
      },
    })),
  };
  const quality = exampleQuality({ verdict: "noisy", noisyPoints: 1 });
  const modules = profile.modules.map((one, index) => (index === 0 ? { ...one, noisy: true as const } : one));
  return { profile, noisy: { ...profile, modules, quality } };
}

const problemOf = async (options: PlanCommandOptions): Promise<ProblemError> => {
  const error: unknown = await planCommand(options).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof ProblemError)) throw new Error(`not refused: ${String(error)}`);
  for (const detail of error.details) expect(detail.remedy).not.toBe("");
  return error;
};

function capture(json: boolean) {
  const written = { stdout: "", stderr: "" };
  const stream = (name: "stdout" | "stderr") =>
    ({ write: (text: string) => ((written[name] += text), true) }) as unknown as NodeJS.WritableStream;
  return {
    written,
    output: createOutput({ stdout: stream("stdout"), stderr: stream("stderr"), env: {} }, json),
  };
}

describe("plan by another arithmetic", () => {
  it("asks the planner that the paper's authors published, which takes the paper's plan with 72 GiB", async () => {
    const job = await file(
      "published.json",
      jobText({
        model: { base: "llama-7b", vocabularySize: 103_168 },
        cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "72GiB", profile: "a800-128" },
      }),
    );
    const result = await planCommand({ job, top: 1, memoryModel: "published", timeModel: "published" });
    expect(result).toMatchObject({ memoryModel: "published", timeModel: "published" });
    expect(result.candidates[0]?.plan).toMatchObject(paperPlan);
    expect(result.estimates).toBeUndefined();
    const { written, output } = capture(false);
    showPlanning(result, output, false);
    expect(written.stdout).toMatch(/memory model published, time model published, 72\.0 GiB a GPU/);
  });

  it("takes what the job says, and the option before it", async () => {
    const job = await file("text.json", jobText({ memoryModel: "paper", timeModel: "paper" }));
    expect(await planCommand({ job, top: 1 })).toMatchObject({ memoryModel: "paper", timeModel: "paper" });
    const own = await planCommand({ job, top: 1, memoryModel: "executor", timeModel: "executor" });
    expect(own.memoryModel).toBe("executor");
    expect(own.timeModel).toBeUndefined();
  });
});

describe("internevo plan", () => {
  it("plans a job of the paper from its file and the shipped profile", async () => {
    const result = await planCommand({ job: example("7b-4k.yaml"), top: 3 });
    expect(result.candidates.map(({ rank }) => rank)).toEqual([1, 2, 3]);
    const { written, output } = capture(true);
    expect(showPlanning(result, output, false)).toBe(0);
    expect(JSON.parse(written.stdout)).toEqual(JSON.parse(JSON.stringify(result)));
    expect(written.stderr).toBe("");
  });

  it("writes a table for people, and what it had to assume apart from it", async () => {
    const { written, output } = capture(false);
    const result = await planCommand({ job: example("7b-4k.yaml"), top: 2 });
    showPlanning(result, output, true);
    expect(written.stdout).toMatch(/RANK +PLAN +STEP TIME/);
    expect(written.stdout).toMatch(/rejected: .*does not fit in memory [\d,]+/);
    expect(written.stderr.split("\n").filter((line) => line.startsWith("note: "))).toHaveLength(
      result.warnings.length,
    );
    const short = capture(false);
    showPlanning(result, short.output, false);
    expect(short.written).toEqual({
      stdout: written.stdout,
      stderr: `${result.warnings.length} notes on what these figures rest on: read them with --notes\n`,
    });
    const one = capture(false);
    showPlanning({ ...result, warnings: ["only this"] }, one.output, false);
    expect(one.written.stderr).toBe("note: only this\n");
  });

  it("says which figures are estimates, and what measures them", async () => {
    const result = await planCommand({ job: example("7b-4k.yaml"), top: 1 });
    const { estimates } = result;
    const all = measurementCount(requiredMeasurements(resolveJob(await readJobFile(example("7b-4k.yaml")))));
    expect(estimates).toMatchObject({
      needed: all,
      noisy: 0,
      measuredBy: `internevo profile measure ${example("7b-4k.yaml")}`,
      planWith: "a100-128",
    });
    const { modules = 0, collectives = 0, overlaps = 0, slices = 0 } = estimates?.missing ?? {};
    expect(collectives).toBeGreaterThan(0);
    expect(modules + collectives + overlaps + slices).toBeLessThan(all);
    const { written, output } = capture(false);
    showPlanning(result, output, false);
    const lacking = (modules + collectives + overlaps + slices).toLocaleString("en-US");
    expect(written.stdout).toContain(
      "Step times, token rates and MFU are partly estimated: profile a800-128 " +
        `lacks ${lacking} of the ${all.toLocaleString("en-US")} measurements`,
    );
    expect(written.stdout).toMatch(
      /^`internevo profile measure .*7b-4k\.yaml` measures them on the cluster itself\. Then plan with `--profile a100-128`\.$/m,
    );
  });

  it("says nothing of estimates where all is measured, and what is noisy where that is all", async () => {
    const job = example("7b-4k.yaml");
    const needed = requiredMeasurements(resolveJob(await readJobFile(job)));
    const { profile: whole, noisy } = wholeProfile(needed);
    const path = await file("whole.json", JSON.stringify(whole));
    expect(await planCommand({ job, top: 1, profile: path })).not.toHaveProperty("estimates");
    const other = await file("noisy.json", JSON.stringify(noisy));
    const result = await planCommand({ job, top: 1, profile: other });
    expect(result.estimates).toMatchObject({
      missing: { modules: 0, collectives: 0, overlaps: 0, slices: 0 },
      noisy: 1,
    });
    const { written, output } = capture(false);
    showPlanning(result, output, false);
    expect(written.stdout).toMatch(
      /^Step times, token rates and MFU are uncertain: of the [\d,]+ measurements that they rest on, 1 is noisy in profile a800-128\.$/m,
    );
  });

  it.each([
    ["as a number", 0],
    ["as a word", false],
  ])("locates a plan with recomputation %s and without overlap fields", async (_how, recompute) => {
    const locate = await file("plan.json", JSON.stringify({ ...paperPlan, recompute }));
    const { located } = await planCommand({ job: example("7b-4k.yaml"), top: 1, locate });
    expect(located).toMatchObject({ feasible: true, reason: null });
    expect(located?.rank).toBeGreaterThan(0);
  });

  it("locates the plan of a rank", async () => {
    const { candidates, located } = await planCommand({ job: example("7b-4k.yaml"), top: 3, locate: "3" });
    expect(located).toMatchObject({ rank: 3, predicted: candidates[2]?.predicted });
    expect((await problemOf({ job: example("7b-4k.yaml"), top: 1, locate: "0" })).details).toMatchObject([
      { field: "--locate", value: "0" },
    ]);
  });

  it("says what would fit when nothing does, and ends with status 3", async () => {
    const job = await file(
      "job.json",
      jobText({ cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "4GB", profile: "a800-128" } }),
    );
    const result = await planCommand({ job, top: 10 });
    expect(result.closest?.peakMemoryBytes).toBeGreaterThan(4e9);
    const { written, output } = capture(false);
    expect(showPlanning(result, output, false)).toBe(3);
    expect(written.stdout).toMatch(/no plan fits.*needs the least memory/);
    expect(showPlanning(result, capture(true).output, false)).toBe(3);
  });

  it("says why when no plan divides the batch", async () => {
    const job = await file(
      "job.json",
      jobText({
        globalBatchTokens: 4096,
        cluster: { nodes: 1, gpusPerNode: 37, memoryPerGpu: "80GB", profile: "a800-128" },
      }),
    );
    const result = await planCommand({ job, top: 10 });
    expect(result).toMatchObject({ candidates: [], closest: null });
    expect(result.counts.rejected["batch-not-divisible"]).toBeGreaterThan(0);
    const { written, output } = capture(false);
    expect(showPlanning(result, output, false)).toBe(3);
    expect(written.stdout).toMatch(
      /no plan divides the job over the cluster, for the reasons above\n +→ change globalBatchTokens, /,
    );
  });

  it("reads a profile file", async () => {
    const profile = await file("mine.json", JSON.stringify({ ...shippedProfile("a800-128"), name: "mine" }));
    expect((await planCommand({ job: example("7b-4k.yaml"), top: 1, profile })).profile).toBe("mine");
  });

  it("says of an empty file that it is empty, and what belongs there", async () => {
    const empty = await file("empty.json", "\n");
    expect((await problemOf({ job: example("7b-4k.yaml"), top: 1, profile: empty })).details).toEqual([
      {
        field: "--profile",
        value: empty,
        message: "is empty",
        remedy: "give a profile in JSON, as `internevo profile show NAME --json` writes it",
      },
    ]);
    expect((await problemOf({ job: empty, top: 1 })).details).toEqual([
      { field: "job", value: empty, message: "is empty", remedy: "give a job file, in YAML or JSON" },
    ]);
  });

  it.each([
    ["a job that is not there", async () => ({ job: join(directory, "none.yaml") }), "job-invalid", "job"],
    ["broken JSON", async () => ({ job: await file("broken.json", "{") }), "job-invalid", undefined],
    [
      "an unknown field",
      async () => ({ job: await file("job.json", jobText({ sequenceLenght: 1 })) }),
      "job-invalid",
      "sequenceLenght",
    ],
    [
      "no profile",
      async () => ({
        job: await file("job.json", jobText({ cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" } })),
      }),
      "profile-missing",
      "cluster.profile",
    ],
    [
      "an unknown profile",
      async () => ({ job: example("7b-4k.yaml"), profile: "h100" }),
      "profile-missing",
      "--profile",
    ],
    [
      "a profile file that is not there",
      async () => ({ job: example("7b-4k.yaml"), profile: "/absent.json" }),
      "profile-missing",
      "--profile",
    ],
    [
      "a profile that is no JSON",
      async () => ({ job: example("7b-4k.yaml"), profile: await file("bad-profile.json", "a: 1") }),
      "profile-invalid",
      "--profile",
    ],
    [
      "a profile that is a directory",
      async () => ({ job: example("7b-4k.yaml"), profile: "/tmp/" }),
      "profile-invalid",
      "--profile",
    ],
    [
      "a profile that is not one",
      async () => ({ job: example("7b-4k.yaml"), profile: await file("bad.json", "{}") }),
      "profile-invalid",
      "schemaVersion",
    ],
    [
      "a plan with a field missing",
      async () => ({
        job: example("7b-4k.yaml"),
        locate: await file(
          "plan.json",
          JSON.stringify({ ...paperPlan, dataParallel: undefined, recompute: 0 }),
        ),
      }),
      "plan-invalid",
      "dataParallel",
    ],
    [
      "a plan with recomputation 2",
      async () => ({
        job: example("7b-4k.yaml"),
        locate: await file("plan.json", JSON.stringify({ ...paperPlan, recompute: 2 })),
      }),
      "plan-invalid",
      "recompute",
    ],
  ] as const)("refuses %s", async (_what, options, code, field) => {
    const problem = await problemOf({ top: 1, ...(await options()) });
    expect(problem.code).toBe(code);
    if (field !== undefined) expect(problem.details.map((detail) => detail.field)).toContain(field);
  });
});
