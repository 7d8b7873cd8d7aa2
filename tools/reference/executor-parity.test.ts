import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { buildMesh, CostModel, divisors, planFault, shippedProfile } from "@internevo/cost-model";
import { resolveJob, worldSize, type JobSpec, type Plan } from "@internevo/domain";
import { assertProgram, encodeHeader, trainerConfig, trainerIn } from "@internevo/launcher";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

/** The executor says what it allocates; the cost model must say the same, line by line. */

const trainer = trainerIn(process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? fileURLToPath(new URL("../../native/dist", import.meta.url)));
const run = promisify(execFile);
let directory = "";

beforeAll(async () => {
  await assertProgram(trainer);
  directory = await mkdtemp(join(tmpdir(), "internevo-parity-"));
});
afterAll(async () => rm(directory, { recursive: true, force: true }));

interface Case {
  readonly job: JobSpec;
  readonly plan: Plan;
}

const jobOf = (model: Record<string, unknown>, sequenceLengthTokens: number, precision: string, ranks: number): JobSpec =>
  resolveJob({ name: "parity", model, sequenceLengthTokens, globalBatchTokens: sequenceLengthTokens * 16, precision, cluster: { nodes: 1, gpusPerNode: ranks, memoryPerGpu: "1TB" } });

/** Odd widths, grouped heads fewer than sequence ranks, tied and untied heads, batches on both sides of a loss chunk. */
function* cases(): Generator<Case> {
  const models = [
    { hiddenSize: 256, layers: 4, heads: 8, vocabularySize: 256 },
    { hiddenSize: 96, layers: 3, heads: 8, kvHeads: 2, ffnHiddenSize: 250, vocabularySize: 1013, tiedEmbeddings: true },
    { hiddenSize: 24, layers: 1, heads: 4, kvHeads: 1, ffnHiddenSize: 31, vocabularySize: 300 },
  ];
  let index = 0;
  for (const ranks of [1, 2, 4, 6, 8]) for (const precision of ["fp32", "bf16"]) for (const [m, model] of models.entries()) for (const sequence of [72, 1024]) {
    const job = jobOf(model, sequence, precision, ranks);
    for (const sequenceParallel of divisors(ranks)) for (const parameterSharding of divisors(ranks)) for (const optimizerStateSharding of divisors(ranks / parameterSharding)) {
      index += 1;
      const dataParallel = ranks / sequenceParallel;
      if (16 % dataParallel !== 0) continue;
      const sizes = divisors(16 / dataParallel);
      const microBatchSize = sizes[index % sizes.length] as number;
      const plan: Plan = {
        microBatchSize, microBatches: 16 / dataParallel / microBatchSize, recompute: index % 2 === 0,
        pipelineParallel: 1, dataParallel, tensorParallel: 1, sequenceParallel,
        parameterSharding, gradientSharding: (index + m) % 3 === 0 ? 1 : optimizerStateSharding, optimizerStateSharding,
        forwardOverlap: "none", backwardOverlap: "none",
      };
      // A spread over the lattice: every third point.
      if (index % 3 === 0 && planFault(plan, job) === null) yield { job, plan };
    }
  }
}

async function dryRun({ job, plan }: Case, threadsPerRank: number): Promise<Record<string, number>> {
  const tokenCount = job.globalBatchTokens + 1;
  const dataPath = join(directory, `${tokenCount}.tokens`);
  await writeFile(dataPath, Buffer.concat([encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize: 2 }), Buffer.alloc(2 * tokenCount)]));
  const dataset = { path: dataPath } as Parameters<typeof trainerConfig>[0]["dataset"];
  const config = trainerConfig({ spec: job, plan, mesh: buildMesh(plan), dataset, steps: 1, checkpoint: null, threadsPerRank });
  const path = join(directory, "config.json");
  await writeFile(path, JSON.stringify(config));
  const { stdout } = await run(trainer.path, ["--config", path, "--dry-run"]);
  const event = JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}") as { event: string; memory: Record<string, number> };
  expect(event.event).toBe("plan");
  return event.memory;
}

describe("the memory model of the executor", () => {
  const spread = [...cases()];

  it("is compared over a wide spread of plans", () => {
    expect(spread.length).toBeGreaterThan(100);
    for (const fieldOf of [(plan: Plan) => plan.recompute, (plan: Plan) => plan.gradientSharding > 1, (plan: Plan) => plan.parameterSharding > 1, (plan: Plan) => plan.sequenceParallel > 1]) {
      expect(new Set(spread.map(({ plan }) => fieldOf(plan))).size).toBe(2);
    }
  });

  it("equals what the executor plans, byte for byte", async () => {
    const profile = shippedProfile("a800-128");
    for (const [index, one] of spread.entries()) {
      const threadsPerRank = 1 + (index % 2);
      const { runtime: _measured, ...planned } = await dryRun(one, threadsPerRank);
      const { runtime: _assumed, ...predicted } = new CostModel(one.job, profile, { threadsPerRank }).memory(one.plan).lines;
      expect(predicted, `${worldSize(one.plan)} ranks, ${JSON.stringify(one.plan)}`).toEqual(planned);
    }
  });
});
