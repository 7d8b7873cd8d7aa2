import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { NATIVE_PROTOCOL, type TrainerConfig } from "@internevo/contracts";
import { buildMesh } from "@internevo/cost-model";
import { usesGpus, type Cluster, type Failure, type Plan } from "@internevo/domain";
import { encodeHeader } from "../dataset/token-file.ts";
import type { LaunchOptions } from "../launch-options.ts";
import { launchRanks } from "../launchers.ts";
import type { Trainer } from "../programs.ts";

const MODEL: TrainerConfig["model"] = {
  hiddenSize: 16,
  layers: 1,
  heads: 2,
  kvHeads: 2,
  ffnHiddenSize: 16,
  vocabularySize: 256,
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  initStandardDeviation: 0.02,
};
const OPTIMIZER: TrainerConfig["optimizer"] = {
  peakLearningRate: 1e-3,
  minLearningRate: 1e-4,
  warmupSteps: 0,
  decaySteps: 1,
  weightDecay: 0,
  beta1: 0.9,
  beta2: 0.95,
  epsilon: 1e-8,
  clipGlobalNorm: 1,
};
const SEQUENCE_LENGTH_TOKENS = 16;
const SECONDS = 300;

export type RuntimeOutcome =
  | { readonly status: "measured"; readonly bytes: number }
  | { readonly status: "stopped" }
  | { readonly status: "failed"; readonly failure: Failure };

/**
 * What a rank of the trainer takes beside its arena (program, libraries, communicators, lanes), as the trainer says it of a step of a tiny model:
 * the probe is another program, and differs. It hardly depends on the plan; one with all kinds of threads and groups is taken.
 */
export async function measureRuntime(
  options: { readonly trainer: Trainer; readonly cluster: Pick<Cluster, "device"> } & Omit<
    LaunchOptions<Trainer>,
    "program" | "config" | "onEvent"
  >,
): Promise<RuntimeOutcome> {
  const { trainer, cluster, ranks, runDirectory, threadsPerRank } = options;
  await mkdir(runDirectory, { recursive: true });
  const path = join(runDirectory, "runtime.tokens");
  const tokenCount = SEQUENCE_LENGTH_TOKENS * ranks + 1;
  await writeFile(
    path,
    Buffer.concat([
      encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize: MODEL.vocabularySize }),
      Buffer.alloc(2 * tokenCount),
    ]),
  );
  const plan: Plan = {
    microBatchSize: 1,
    microBatches: 1,
    recompute: false,
    pipelineParallel: 1,
    dataParallel: ranks,
    tensorParallel: 1,
    sequenceParallel: 1,
    parameterSharding: ranks,
    gradientSharding: 1,
    optimizerStateSharding: 1,
    forwardOverlap: "inter-layer",
    backwardOverlap: "intra-layer",
  };
  const config: TrainerConfig = {
    protocol: NATIVE_PROTOCOL,
    model: MODEL,
    sequenceLengthTokens: SEQUENCE_LENGTH_TOKENS,
    precision: "fp32",
    plan,
    mesh: buildMesh(plan),
    optimizer: OPTIMIZER,
    data: { path, format: "own" },
    seed: 0,
    steps: 1,
    checkpoint: null,
    memoryLimitBytes: null,
    threadsPerRank,
    deterministic: true,
    gradientDumpPath: null,
    ...(usesGpus(cluster) ? { device: "cuda" as const } : {}),
  };
  let bytes: number | undefined;
  const outcome = await launchRanks({
    ...options,
    program: trainer,
    config,
    timeoutSeconds: SECONDS,
    onEvent: (event) => {
      if (event.event === "started") bytes = event.memory["runtime"];
    },
  });
  if (outcome.status === "stopped") return { status: "stopped" };
  if (outcome.status === "failed") return { status: "failed", failure: outcome.failure };
  return bytes === undefined
    ? {
        status: "failed",
        failure: { code: "internal", message: "the trainer did not say what it takes beside its arena" },
      }
    : { status: "measured", bytes };
}
