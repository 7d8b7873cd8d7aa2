import {
  heldOutData,
  usesGpus,
  withoutDefaults,
  type Data,
  type JobSpec,
  type Mesh,
  type Plan,
} from "@internevo/domain";
import { NATIVE_PROTOCOL, type TrainerConfig } from "./native.ts";

export interface TrainerConfigOptions {
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly mesh: Mesh;
  /** What the trainer reads: a token file, or data in a format that it knows. */
  readonly dataset: { readonly path: string };
  /** The same of the held-out data; without it nothing is evaluated, whatever the job says. */
  readonly heldOut?: { readonly path: string } | undefined;
  /** Optimizer steps to reach, counted from the first one of the job. */
  readonly steps: number;
  /** Null: no checkpoint is written or read. */
  readonly checkpoint: TrainerConfig["checkpoint"];
  readonly threadsPerRank: number;
  /** Where the timeline is written that a job asks for, and which steps it is of. */
  readonly timeline?: TrainerConfig["timeline"];
  /** Whether training begins with the job's initial weights; a trial's times do not depend on them. */
  readonly loadWeights?: boolean;
  readonly deterministic?: boolean;
}

/**
 * A plan as the trainer reads it: what is the paper's plan is left out, as in the documents of a trainer that
 * knew nothing else.
 */
function trainerPlan(plan: Plan): TrainerConfig["plan"] {
  const { forwardOverlap, backwardOverlap, ...rest } = withoutDefaults(plan);
  return {
    ...rest,
    ...(forwardOverlap === "none" ? {} : { forwardOverlap }),
    ...(backwardOverlap === "none" ? {} : { backwardOverlap }),
  };
}

/** Where tokens come from, as the trainer reads it: text has become a token file. */
function trainerData(data: Data | null, path: string): TrainerConfig["data"] {
  const format = data?.format === "megatron" || data?.format === "internevo" ? data.format : "own";
  if (data?.packing !== "documents") return { path, format };
  const { packing, endOfDocumentToken, maxDocumentsPerSequence } = data;
  return {
    path,
    format,
    packing,
    ...(endOfDocumentToken === undefined ? {} : { endOfDocumentToken }),
    ...(maxDocumentsPerSequence === undefined ? {} : { maxDocumentsPerSequence }),
  };
}

/** What is evaluated, where held-out data was prepared. */
function trainerValidation(spec: JobSpec, path: string | undefined): Pick<TrainerConfig, "validation"> {
  if (spec.validation === undefined || path === undefined) return {};
  const { packing: _, maxDocumentsPerSequence: __, ...data } = trainerData(heldOutData(spec), path);
  const { everySteps, batches } = spec.validation;
  return { validation: { data, everySteps, batches } };
}

/** The trainer's configuration for a plan of a job. */
export function trainerConfig(options: TrainerConfigOptions): TrainerConfig {
  const {
    spec,
    plan,
    mesh,
    dataset,
    heldOut,
    steps,
    checkpoint,
    threadsPerRank,
    timeline,
    loadWeights = false,
    deterministic = true,
  } = options;
  const { name: _name, ...model } = spec.model;
  return {
    protocol: NATIVE_PROTOCOL,
    model,
    sequenceLengthTokens: spec.sequenceLengthTokens,
    precision: spec.precision,
    plan: trainerPlan(plan),
    mesh,
    optimizer: spec.optimizer,
    data: trainerData(spec.data, dataset.path),
    seed: spec.seed,
    steps,
    ...trainerValidation(spec, heldOut?.path),
    checkpoint,
    memoryLimitBytes: spec.cluster.memoryPerGpuBytes,
    ...(usesGpus(spec.cluster) ? { device: "cuda" as const } : {}),
    threadsPerRank,
    deterministic,
    gradientDumpPath: null,
    ...(loadWeights && spec.initialWeights !== undefined
      ? { initialWeights: { path: spec.initialWeights } }
      : {}),
    ...(timeline ? { timeline } : {}),
    ...(spec.watchdog === undefined ? {} : { watchdog: spec.watchdog === false ? null : spec.watchdog }),
  };
}
