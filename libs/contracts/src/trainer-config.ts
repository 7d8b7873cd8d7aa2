import {
  heldOutData,
  sourcesOf,
  usesGpus,
  withoutDefaults,
  type Data,
  type SingleData,
  type JobSpec,
  type Mesh,
  type Plan,
} from "@internevo/domain";
import { NATIVE_PROTOCOL, type TrainerConfig } from "./native.ts";

/** What the trainer reads of data: a token file, or a file in a format that it knows. */
interface ReadData {
  readonly path: string;
  /** Of a mixture: what it reads of each source, with its sequences in a cycle. */
  readonly sources?: readonly { readonly path: string; readonly share: number }[];
}

export interface TrainerConfigOptions {
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly mesh: Mesh;
  readonly dataset: ReadData;
  /** The same of the held-out data; without it nothing is evaluated, whatever the job says. */
  readonly heldOut?: { readonly path: string } | undefined;
  /** Optimizer steps to reach, counted from the first one of the job. */
  readonly steps: number;
  /** Null: no checkpoint is written or read. */
  readonly checkpoint: TrainerConfig["checkpoint"];
  readonly threadsPerRank: number;
  /** Where the timeline is written that a job asks for, and which steps it is of. */
  readonly timeline?: TrainerConfig["timeline"];
  /** What checkpoints and the timeline leave free of their disk. */
  readonly leaveFree?: TrainerConfig["leaveFree"];
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

/** The format of what the trainer reads: text has become a token file. */
const trainerFormat = (data: SingleData | undefined): "own" | "megatron" | "internevo" =>
  data?.format === "megatron" || data?.format === "internevo" ? data.format : "own";

/** Where tokens come from, as the trainer reads it. */
function trainerFiles(data: Data | null, { path, sources }: ReadData): TrainerConfig["data"] {
  const named = data === null ? [] : sourcesOf(data);
  return sources === undefined
    ? { path, format: trainerFormat(named[0]?.data) }
    : { sources: sources.map((source, index) => ({ ...source, format: trainerFormat(named[index]?.data) })) };
}

function trainerData(data: Data | null, read: ReadData): TrainerConfig["data"] {
  const files = trainerFiles(data, read);
  if (data?.packing !== "documents") return files;
  const { packing, endOfDocumentToken, maxDocumentsPerSequence } = data;
  return {
    ...files,
    packing,
    ...(endOfDocumentToken === undefined ? {} : { endOfDocumentToken }),
    ...(maxDocumentsPerSequence === undefined ? {} : { maxDocumentsPerSequence }),
  };
}

/** What is evaluated, where held-out data was prepared. */
function trainerValidation(spec: JobSpec, path: string | undefined): Pick<TrainerConfig, "validation"> {
  const held = heldOutData(spec);
  if (spec.validation === undefined || held === null || path === undefined) return {};
  const { packing, endOfDocumentToken } = held;
  const ends = packing === "documents" && endOfDocumentToken !== undefined ? { endOfDocumentToken } : {};
  const data = { path, format: trainerFormat(held), ...ends };
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
    leaveFree,
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
    data: trainerData(spec.data, dataset),
    seed: spec.seed,
    steps,
    ...trainerValidation(spec, heldOut?.path),
    checkpoint,
    memoryLimitBytes: spec.cluster.memoryPerGpuBytes,
    ...(leaveFree ? { leaveFree } : {}),
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
