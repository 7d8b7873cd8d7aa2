import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { shippedProfile } from "@internevo/cost-model";
import { ProblemError, resolveJob } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chooseAnyPlan, loadPlan } from "./plan-argument.ts";

const profile = shippedProfile("a800-128");
const job = resolveJob({
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const PLAN = "b1 n8 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss8";

let directory: string;
let before: string;
beforeAll(() => {
  before = process.cwd();
  directory = mkdtempSync(join(tmpdir(), "internevo-argument-"));
  process.chdir(directory);
});
afterAll(() => {
  process.chdir(before);
  rmSync(directory, { recursive: true });
});

const faultOf = async (text: string): Promise<string> => {
  try {
    await loadPlan(text, "PLAN", profile);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    expect(error.code).toBe("plan-invalid");
    return [error.message, ...error.details.map((each) => `${each.message} → ${each.remedy}`)].join("\n");
  }
  throw new Error(`${text} was taken`);
};

describe("what is given for a plan", () => {
  it.each(["plan.json", "./tp8", "../plans/best", "~/best", "/tmp/no such plan", "tp8.json", "b1 n8.json"])(
    "is a file that is missing, where it is written as files are: %s",
    async (text) => {
      expect(await faultOf(text)).toMatch(/does not exist/);
    },
  );

  it.each([
    "tp8",
    "tp8 pp2",
    "TP=8,PP=1,DP=16",
    PLAN.replace("tp1", "tq1"),
    PLAN.replace("n8", "n8.5"),
    "a0.5",
    "b1 n4 …",
    "",
    "best",
  ])("is a plan that is mistyped, otherwise: %s", async (text) => {
    const said = await faultOf(text);
    expect(said).not.toMatch(/does not exist/);
    expect(said).toMatch(/plan/);
  });

  it("is a file where there is one, whatever it is called", async () => {
    writeFileSync("tp8", "{}");
    expect(await faultOf("tp8")).toMatch(/microBatchSize/);
    writeFileSync("tp9", "b1 n8");
    expect(await faultOf("tp9")).toMatch(/is not JSON/);
  });

  it("may be a rank, or for why-not a part of a plan, which are no files either", async () => {
    const chosen = (text: string) =>
      chooseAnyPlan(text, "PLAN", job, profile, { computing: (work) => work() });
    expect(await chosen("tp4 pp2")).toEqual({ tensorParallel: 4, pipelineParallel: 2 });
    expect(await chosen("1")).toMatchObject({ microBatchSize: expect.any(Number) as number });
    await expect(chosen("0")).rejects.toThrow(/there is no plan of rank 0/);
    await expect(chosen("tp4.5")).rejects.not.toThrow(/does not exist/);
  });
});
