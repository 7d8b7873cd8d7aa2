import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { shippedProfile } from "@internevo/cost-model";
import {
  planLabel,
  NAMED_MODELS,
  ProblemError,
  resolveJob,
  type JobSpec,
  type PlanningResult,
} from "@internevo/domain";
import { feasibleFamilies, planJob } from "@internevo/search";
import fc from "fast-check";
import { parse } from "yaml";
import { keep, type Entry, type Section } from "./records.ts";

const EXAMPLES = join(import.meta.dirname, "../../../../examples/paper");
const PROFILE = shippedProfile("a800-128");
const RANDOM_JOBS = 400;
const SEED = 20_261_123;

const powers = (from: number, to: number) =>
  fc.integer({ min: from, max: to }).map((exponent) => 2 ** exponent);

/**
 * Job files over the models, lengths, clusters, precisions and constraints that people ask for. Some have no
 * plan.
 */
const jobFile = fc
  .record({
    model: fc.oneof(
      fc.constantFrom(...Object.keys(NAMED_MODELS)),
      fc
        .record({
          heads: fc.constantFrom(8, 12, 32, 40),
          layers: fc.integer({ min: 2, max: 48 }),
          kvFactor: fc.constantFrom(1, 2, 4),
          headSize: fc.constantFrom(32, 64, 128),
          vocabularySize: fc.constantFrom(1013, 32_000, 128_256),
          tiedEmbeddings: fc.boolean(),
        })
        .map(({ kvFactor, headSize, ...model }) => ({
          ...model,
          kvHeads: model.heads / kvFactor,
          hiddenSize: model.heads * headSize,
        })),
    ),
    sequenceLengthTokens: powers(10, 19),
    sequences: fc.constantFrom(1, 2, 3, 8, 16, 96, 128, 1024),
    precision: fc.constantFrom("fp32", "bf16", "bf16-grad16"),
    nodes: fc.constantFrom(1, 2, 3, 4, 8, 16, 32),
    gpusPerNode: fc.constantFrom(1, 2, 4, 6, 8),
    memoryPerGpu: fc.constantFrom("24GB", "40GB", "80GB", "141GB"),
    device: fc.constantFrom("cpu", "cuda"),
    memoryModel: fc.constantFrom("executor", "paper"),
    plan: fc.constantFrom(
      undefined,
      undefined,
      undefined,
      { tensorParallel: 8 },
      { pipelineParallel: [1, 2, 4] },
      { contextParallel: [1, 2] },
      { recompute: true, forwardOverlap: "none" as const, backwardOverlap: "none" as const },
      { sequenceParallel: [2, 4], microBatchSize: 1 },
    ),
  })
  .map(({ sequences, nodes, gpusPerNode, memoryPerGpu, device, plan, ...file }) => ({
    name: "random",
    ...file,
    globalBatchTokens: file.sequenceLengthTokens * sequences,
    cluster: { nodes, gpusPerNode, memoryPerGpu, device },
    ...(plan === undefined ? {} : { plan }),
  }));

function answerTo(job: JobSpec): unknown {
  const result = planJob(job, PROFILE, { plans: 5 });
  const second = result.candidates[1]?.plan;
  const located = second && planJob(job, PROFILE, { top: 1, locate: second }).located;
  return { result, located, feasibleFamilies: feasibleFamilies(job, PROFILE) };
}

function* answers(): Generator<Entry> {
  for (const file of readdirSync(EXAMPLES).sort()) {
    yield {
      key: `paper ${file}`,
      answer: answerTo(resolveJob(parse(readFileSync(join(EXAMPLES, file), "utf8")))),
    };
  }
  for (const [index, file] of fc.sample(jobFile, { numRuns: RANDOM_JOBS, seed: SEED }).entries()) {
    const key = `random ${index} ${JSON.stringify(file)}`;
    try {
      yield { key, answer: answerTo(resolveJob(file)) };
    } catch (error) {
      // A refusal is an answer as well; anything else is a defect.
      if (!(error instanceof ProblemError)) throw error;
      yield { key, answer: { refused: error.details } };
    }
  }
}

function summaryOf(answer: { readonly result?: PlanningResult; readonly refused?: unknown }): unknown {
  if (answer.result === undefined) return answer;
  const {
    candidates: [best],
    counts,
  } = answer.result;
  return {
    best: best && planLabel(best.plan),
    stepTimeSeconds: best?.predicted.stepTimeSeconds,
    peakMemoryBytes: best?.predicted.peakMemoryBytes,
    ...counts,
  };
}

/** The planner's whole answers to the paper's jobs and to random ones. */
export const recordPlans = (): Section => keep(answers(), summaryOf);
