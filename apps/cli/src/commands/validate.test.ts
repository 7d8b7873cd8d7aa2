import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ProblemError, resolveJob, type JobSpec } from "@internevo/domain";
import { aJob, WIDE_HEADS_ON_GPUS } from "@internevo/test-kit";
import { expect, it } from "vitest";
import { parse } from "yaml";
import { createOutput } from "../output.ts";
import { unknownProfileWarnings } from "../profile-file.ts";
import { absentHere, assertDivides, showJob, validateCommand } from "./validate.ts";

const example = (name: string): string =>
  fileURLToPath(new URL(`../../../../examples/${name}`, import.meta.url));

function shown(spec: JobSpec, json: boolean): { stdout: string; stderr: string } {
  const written = { stdout: "", stderr: "" };
  const stream = (name: "stdout" | "stderr") =>
    ({ write: (text: string) => ((written[name] += text), true) }) as unknown as NodeJS.WritableStream;
  showJob(spec, createOutput({ stdout: stream("stdout"), stderr: stream("stderr"), env: {} }, json));
  return written;
}

it("shows the job that a file stands for, with absolute paths and defaults", async () => {
  const spec = await validateCommand(example("packed-megatron.yaml"));
  expect(spec).toMatchObject({
    data: { format: "megatron", path: example("packed/licences.bin"), packing: "documents" },
    timeline: { firstStep: 20, steps: 2 },
    watchdog: { silenceSeconds: 10 },
    seed: 0,
  });
  const { stdout } = shown(spec, false);
  expect(resolveJob(parse(stdout))).toEqual(spec);
  expect(resolveJob(JSON.parse(shown(spec, true).stdout))).toEqual(spec);
});

it("shows a job that is a job file again, and stays the same", async () => {
  const directory = await mkdtemp(join(tmpdir(), "internevo-validate-"));
  try {
    const full = join(directory, "full.yaml");
    const { stdout } = shown(await validateCommand(example("packed-megatron.yaml")), false);
    await writeFile(full, stdout);
    expect(shown(await validateCommand(full), false).stdout).toBe(stdout);
  } finally {
    await rm(directory, { recursive: true });
  }
});

it.each(["quickstart.yaml", "testbed.yaml", "packed-megatron.yaml"])("takes the example %s", async (name) => {
  expect((await validateCommand(example(name))).name).toBeTruthy();
});

it("names everything that is wrong, with its remedy, and takes weights relative to the file", async () => {
  const directory = await mkdtemp(join(tmpdir(), "internevo-validate-"));
  try {
    const path = join(directory, "job.json");
    const job = aJob();
    await writeFile(
      path,
      JSON.stringify({
        ...job,
        data: { format: "tokens", path: "a", endOfDocumentToken: 300 },
        watchdog: { silenceSeconds: 1 },
      }),
    );
    const error: unknown = await validateCommand(path).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect((error as ProblemError).details.map(({ field }) => field)).toEqual([
      "data.endOfDocumentToken",
      "data.endOfDocumentToken",
      "watchdog.silenceSeconds",
    ]);
    for (const detail of (error as ProblemError).details) expect(detail.remedy).toBeTruthy();
    await writeFile(path, JSON.stringify({ ...job, initialWeights: "weights" }));
    expect((await validateCommand(path)).initialWeights).toBe(join(directory, "weights"));
  } finally {
    await rm(directory, { recursive: true });
  }
});

it("warns of data and weights that are not on this machine", async () => {
  const directory = await mkdtemp(join(tmpdir(), "internevo-validate-"));
  try {
    const path = join(directory, "job.json");
    const job = aJob();
    const absentOf = async (data: object, more: object = {}): Promise<(string | undefined)[]> => {
      await writeFile(path, JSON.stringify({ ...job, ...data, ...more }));
      return absentHere(await validateCommand(path)).map((note) => note.split(":")[0]);
    };
    await writeFile(join(directory, "set.idx"), "x");
    expect(await absentOf({ data: { format: "text", paths: ["job.json"] } })).toEqual([]);
    expect(await absentOf({})).toEqual(["data is missing"]);
    expect(
      await absentOf(
        { data: { format: "text", paths: ["job.json", "gone.txt"] } },
        { initialWeights: "weights" },
      ),
    ).toEqual([
      `data.paths.1 (is "${join(directory, "gone.txt")}")`,
      `initialWeights (is "${join(directory, "weights")}")`,
    ]);
    expect(await absentOf({ data: { format: "megatron", path: "set" } })).toEqual([
      `data.path (is "${join(directory, "set.bin")}")`,
    ]);
    expect(await absentOf({ data: { format: "internevo", path: "job.json" } })).toEqual([
      `data.path (is "${join(directory, "job.json.meta")}")`,
    ]);
    const many = await absentOf({
      data: { format: "text", paths: Array.from({ length: 12 }, (_, index) => `gone ${index}`) },
    });
    expect([many.length, many.at(-1)]).toEqual([11, "2 more files of its data do not exist on this machine"]);
    expect(await absentOf({ data: { format: "text", paths: ["job.json"] } }, WIDE_HEADS_ON_GPUS)).toEqual([
      "model.heads (is 2)",
    ]);
  } finally {
    await rm(directory, { recursive: true });
  }
});

it("refuses what no plan divides, whatever is measured", () => {
  const cluster = { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB", device: "cuda" };
  const sizes = { model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 4_194_304 };
  const refused = (over: Record<string, unknown>): unknown => {
    try {
      assertDivides(resolveJob(aJob({ ...sizes, cluster, ...over })));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      return [error.code, ...error.details];
    }
    return undefined;
  };
  expect(refused({})).toBeUndefined();
  expect(refused({ plan: "tp2 sp2" })).toBeUndefined();
  expect(refused({ plan: "tp2 sp4" })).toEqual([
    "no-feasible-plan",
    {
      field: "plan",
      value: { tensorParallel: 2, sequenceParallel: 4 },
      message: expect.stringMatching(/no plan of 128 ranks has .* together/) as string,
      remedy: "give other values, or leave one of them free",
    },
  ]);
  expect(refused({ sequenceLengthTokens: 8191, globalBatchTokens: 8191 })).toEqual([
    "no-feasible-plan",
    {
      field: "cluster.gpusPerNode",
      value: 8,
      message: expect.stringMatching(/^no plan divides the job over its 128 ranks: /) as string,
      remedy: expect.stringMatching(/^change globalBatchTokens, /) as string,
    },
  ]);
});

it("warns of a profile that is neither shipped nor a file", () => {
  const of = (profile: string | null) => unknownProfileWarnings({ profile });
  for (const profile of [null, "a800-128", "estimated:h100", "/mine/own.json"])
    expect(of(profile)).toEqual([]);
  expect(of("a800")).toEqual([
    {
      field: "cluster.profile",
      value: "a800",
      message: expect.stringMatching(/^is neither a shipped profile nor a file/) as string,
      remedy: expect.stringMatching(
        /^did you mean a800-128\? .*, or one that the stack has stored$/,
      ) as string,
    },
  ]);
});
