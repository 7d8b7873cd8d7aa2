import { aPlan } from "@internevo/test-kit";
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import { PlanningResultSchema, resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import { planFault, planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { Compile } from "typebox/compile";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { a800Profile, PROFILE_PATH, profileText, readMeasurements } from "./a800-profile.ts";
import {
  exampleName,
  EXAMPLES_DIRECTORY,
  exampleText,
  PAPER_MODELS,
  PAPER_SEQUENCES_K,
} from "./paper-examples.ts";
import { SCHEMAS, SCHEMAS_DIRECTORY } from "./schemas.ts";

interface Row {
  readonly system: string;
  readonly sequenceK: number;
  readonly b: number;
  readonly n: number;
  readonly a: 0 | 1;
  readonly pp: number;
  readonly dp: number;
  readonly tp: number;
  readonly sp: number;
  readonly ps: number;
  readonly oss: number;
  readonly tokensMatch: boolean;
}
const configurations = JSON.parse(
  readFileSync(fileURLToPath(new URL("./data/paper-configurations.json", import.meta.url)), "utf8"),
) as { models: Record<string, Row[]> };
const STEP_TOKENS = 4 * 1024 * 1024;

const jobOf = (model: string, row: Row): JobSpec =>
  resolveJob({
    name: "paper",
    model,
    sequenceLengthTokens: row.sequenceK * 1024,
    globalBatchTokens: row.b * row.n * row.dp * row.sequenceK * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
  });

const planOf = (row: Row): Plan =>
  aPlan({
    microBatchSize: row.b,
    microBatches: row.n,
    recompute: row.a === 1,
    pipelineParallel: row.pp,
    dataParallel: row.dp,
    tensorParallel: row.tp,
    sequenceParallel: row.sp,
    parameterSharding: row.ps,
    optimizerStateSharding: row.oss,
    forwardOverlap: "inter-layer",
    backwardOverlap: "intra-layer",
  });

describe("the shipped profile", () => {
  it("is what the generator makes of the raw data", () => {
    expect(readFileSync(PROFILE_PATH, "utf8")).toBe(profileText(a800Profile(readMeasurements())));
  });

  it("has a curve of every measured collective and group", () => {
    const profile = shippedProfile("a800-128");
    expect(profile.collectives).toHaveLength(5 * 7);
    expect(profile.modules).toHaveLength(47 + 2 * 660);
  });
});

describe("the plans of the paper's evaluation", () => {
  const rows = Object.entries(configurations.models).flatMap(([model, list]) =>
    list.map((row) => ({ model, row, name: `${model} ${row.sequenceK}k ${row.system}` })),
  );

  it("are all there: seven lengths, four models, three systems", () => {
    expect(rows).toHaveLength(4 * 7 * 3);
    expect(new Set(rows.map(({ name }) => name)).size).toBe(rows.length);
    for (const { row } of rows)
      expect(row.b * row.n * row.dp * row.sequenceK * 1024 === STEP_TOKENS).toBe(row.tokensMatch);
  });

  it.each(rows)("$name fits in 80 GB", ({ model, row }) => {
    const job = jobOf(model, row);
    const plan = planOf(row);
    expect(planFault(plan, job)).toBeNull();
    const result = planJob(job, shippedProfile("a800-128"), { top: 1, locate: plan });
    expect(result.located).toMatchObject({ feasible: true, reason: null });
    expect(result.located?.rank).toBeGreaterThanOrEqual(1);
    expect(result.located?.predicted?.peakMemoryBytes).toBeLessThanOrEqual(80e9);
    // They train a model of billions: no prediction may be that of an empty machine either.
    expect(result.located?.predicted?.peakMemoryBytes).toBeGreaterThan(15e9);
  });

  it("30B at 8k takes what the paper's arithmetic says", () => {
    const row = configurations.models["llama-30b"]?.find(
      (one) => one.sequenceK === 8 && one.system === "Our Work",
    ) as Row;
    const { lines } = new CostModel(jobOf("llama-30b", row), shippedProfile("a800-128"), {
      memoryModel: "paper",
    }).memory(planOfJob(planOf(row), jobOf("llama-30b", row)));
    expect((lines["parameters"] as number) / 1e9).toBeCloseTo(14.8, 0);
    expect((lines["activations"] as number) / 1e9).toBeCloseTo(25.7, 0);
  });
});

describe("the paper's jobs", () => {
  it("are what the generator writes", () => {
    expect(readdirSync(EXAMPLES_DIRECTORY).sort()).toEqual(
      PAPER_MODELS.flatMap((model) => PAPER_SEQUENCES_K.map((k) => exampleName(model, k))).sort(),
    );
  });

  const jobs = PAPER_MODELS.flatMap((model) =>
    PAPER_SEQUENCES_K.map((sequenceK) => ({ model, sequenceK, file: exampleName(model, sequenceK) })),
  );
  const check = Compile(PlanningResultSchema);
  it.each(jobs)("$file resolves and has plans", ({ model, sequenceK, file }) => {
    const text = readFileSync(EXAMPLES_DIRECTORY + file, "utf8");
    expect(text).toBe(exampleText(model, sequenceK));
    const job = resolveJob(parse(text));
    const result = planJob(job, shippedProfile(job.cluster.profile ?? ""));
    expect(result.candidates).toHaveLength(10);
    expect(result.counts.evaluated).toBe(
      result.counts.feasible +
        (result.counts.pruned ?? 0) +
        Object.values(result.counts.rejected).reduce((sum, count) => sum + count, 0),
    );
    expect(check.Check(result)).toBe(true);
  });
});

describe("the published schemas", () => {
  it.each(SCHEMAS)("%s is current", (file, text) => {
    expect(readFileSync(SCHEMAS_DIRECTORY + file, "utf8")).toBe(text);
  });
});
