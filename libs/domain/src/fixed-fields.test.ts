import { describe, expect, it } from "vitest";
import { readFixed, withFixed } from "./fixed-fields.ts";
import { resolveJob } from "./job-file.ts";
import type { ProblemError } from "./problem.ts";

const job = resolveJob({
  name: "fixed",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 16 * 4096,
  cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
  plan: "tp2 pp2",
});

const refused = (work: () => unknown): ProblemError => {
  try {
    work();
  } catch (error) {
    return error as ProblemError;
  }
  throw new Error("nothing was refused");
};

describe("fixed fields of a plan", () => {
  it.each([
    [["tp=8", "pp=1"], { tensorParallel: 8, pipelineParallel: 1 }],
    [["tp=4,8"], { tensorParallel: [4, 8] }],
    [[" tp = 8, pp=1 , 2"], { tensorParallel: 8, pipelineParallel: [1, 2] }],
    [
      ["tensorParallel=8", "recompute=true", "k=0"],
      { tensorParallel: 8, recompute: true, recomputeLayers: 0 },
    ],
    [["a=0,1"], { recompute: [false, true] }],
    [
      ["gu=again", "ov=inter-layer/intra-layer"],
      { gateUp: "again", forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
    ],
  ])("reads %j", (texts, fixed) => expect(readFixed(texts, "--fix")).toEqual(fixed));

  it.each([
    ["tq=8", /no field tq/, /did you mean (tp|tensorParallel)\?/],
    ["tensor-parallel=8", /no field tensor-parallel/, /did you mean tp\?/],
    ["dataParalel=8", /no field dataParalel/, /did you mean dataParallel\?/],
    ["tp8", /names no value/, /write tp=8/],
    ["", /names no value/, /FIELD=VALUE/],
    ["8", /names no value/, /FIELD=VALUE/],
    ["tp=", /"" is no value of tensorParallel/, /whole number from 1/],
    ["tp=0", /"0" is no value/, /whole number from 1/],
    ["tp=8.5", /"8.5" is no value/, /whole number/],
    ["a=2", /"2" is no value of recompute/, /give 0 or 1/],
    ["gu=off", /no value of gateUp/, /kept, again, host/],
    ["ov=block", /"" is no value of backwardOverlap/, /none, block, intra-layer/],
    ["tp=8,tp=4", /tp is given twice/, /tp=8,4/],
  ])("refuses %j with what is wrong and what to do", (text, message, remedy) => {
    const { code, details } = refused(() => readFixed([text], "--fix"));
    expect(code).toBe("plan-invalid");
    expect(details).toMatchObject([{ field: "--fix", value: text }]);
    expect(details[0]?.message).toMatch(message);
    expect(details[0]?.remedy).toMatch(remedy);
  });

  it("takes the place of what the job says of the same field", () =>
    expect(withFixed(job, ["tp=4"], "--fix").plan).toEqual({ tensorParallel: 4, pipelineParallel: 2 }));

  it("leaves a job alone where nothing is fixed", () => expect(withFixed(job, [], "--fix")).toBe(job));

  it("refuses what no plan of the job has, naming the field", () => {
    const { message, details } = refused(() => withFixed(job, ["tp=3", "pp=64"], "--fix"));
    expect(message).toMatch(/--fix asks for: \w+ does not divide the 8 ranks/);
    expect(details.map(({ field }) => field)).toEqual(
      expect.arrayContaining(["--fix tensorParallel", "--fix pipelineParallel"]),
    );
    expect(details[0]?.remedy).toMatch(/give \d+ or \d+, or leave it out|give \d+, or leave it out/);
  });
});
