import { readFileSync } from "node:fs";
import { resolveJob, type JobSpec, type Plan, type PlanConstraints, type Precision } from "@internevo/domain";
import { PAPER_SPACES } from "@internevo/plan";

/**
 * The paper's evaluation: its models, lengths, cluster and tables (arXiv 2401.09149, section "Evaluation" and
 * appendix).
 */
export const MODELS = ["llama-7b", "llama-13b", "llama-30b", "llama-65b"] as const;
export type PaperModel = (typeof MODELS)[number];
export const LENGTHS_K = [4, 8, 16, 32, 64, 128, 256] as const;
/** 4M tokens. */
export const STEP_TOKENS = 4 * 1024 * 1024;
export const PROFILE = "a800-128";

export type SystemId = "internevo" | "megatron" | "ulysses";
export const SYSTEM_NAMES: Readonly<Record<SystemId, string>> = {
  internevo: "InternEvo",
  megatron: "Megatron-LM",
  ulysses: "DeepSpeed-Ulysses",
};
export const SYSTEM_IDS = ["internevo", "megatron", "ulysses"] as const;

/** How its executor overlaps: the next layer's parameters forward, the next module's backward. */
export const PAPER_OVERLAP = { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" } as const;

/** A job of the evaluation; 2-byte gradients, as its runs kept them. */
export function paperJob(
  model: string,
  lengthK: number,
  options: {
    readonly nodes?: number;
    readonly batchTokens?: number;
    readonly plan?: PlanConstraints;
    readonly precision?: Precision;
  } = {},
): JobSpec {
  const { nodes = 16, batchTokens = STEP_TOKENS, plan, precision = "bf16-grad16" } = options;
  return resolveJob({
    name: `${model} ${lengthK}k`,
    model,
    sequenceLengthTokens: lengthK * 1024,
    globalBatchTokens: batchTokens,
    precision,
    cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "80GB", profile: PROFILE },
    ...(plan === undefined ? {} : { plan: plan as Record<string, never> }),
  });
}

/** The paper's ten dimensions: its overlap, no rings, no chunks, and of the layers all recomputed or none. */
export const paperSpaces: readonly PlanConstraints[] = PAPER_SPACES.map((space) => ({
  ...space,
  ...PAPER_OVERLAP,
}));

/** The plans of each system, as the paper's tables have them. */
export const SYSTEM_SPACES: Readonly<
  Record<Exclude<SystemId, "internevo">, (ranks: number) => readonly PlanConstraints[]>
> = {
  // Tensor parallelism with sequence-parallel norms; parameters and gradients whole.
  megatron: (ranks) =>
    factors(ranks).flatMap((size) =>
      paperSpaces.map((space) => ({
        ...space,
        tensorParallel: size,
        sequenceParallel: size,
        parameterSharding: 1,
        gradientSharding: 1,
      })),
    ),
  // All-to-all sequence parallelism and ZeRO-3 over all ranks.
  ulysses: (ranks) =>
    paperSpaces.map((space) => ({
      ...space,
      pipelineParallel: 1,
      tensorParallel: 1,
      parameterSharding: ranks,
    })),
};

const factors = (value: number): number[] =>
  Array.from({ length: value }, (_, index) => index + 1).filter((each) => value % each === 0);

/** A row of the paper's tables of configurations. */
export interface PaperRow {
  readonly model: PaperModel;
  readonly system: SystemId;
  readonly lengthK: number;
  readonly plan: Plan;
  /** 4M, but in five rows, whose factors do not multiply to it. */
  readonly batchTokens: number;
}

interface WrittenRow {
  readonly system: "Our Work" | "Megatron-LM" | "Deepspeed-U";
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
}

const ID_OF = { "Our Work": "internevo", "Megatron-LM": "megatron", "Deepspeed-U": "ulysses" } as const;

/** The 84 rows of the four tables. */
export function paperRows(): PaperRow[] {
  const { models } = JSON.parse(
    readFileSync(new URL("../../../reference/data/paper-configurations.json", import.meta.url), "utf8"),
  ) as { models: Record<PaperModel, WrittenRow[]> };
  return (Object.entries(models) as [PaperModel, WrittenRow[]][]).flatMap(([model, rows]) =>
    rows.map((row) => ({
      model,
      system: ID_OF[row.system],
      lengthK: row.sequenceK,
      batchTokens: row.b * row.n * row.dp * row.sequenceK * 1024,
      plan: {
        microBatchSize: row.b,
        microBatches: row.n,
        recompute: row.a === 1,
        pipelineParallel: row.pp,
        dataParallel: row.dp,
        tensorParallel: row.tp,
        sequenceParallel: row.sp,
        parameterSharding: row.ps,
        gradientSharding: 1,
        optimizerStateSharding: row.oss,
        ...PAPER_OVERLAP,
      },
    })),
  );
}
