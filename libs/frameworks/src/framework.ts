import {
  planValue,
  withoutDefaults,
  type Data,
  type FigureErrors,
  type Model,
  type Optimizer,
  type Plan,
  type PlanExtension,
  type Precision,
  type JobSpec,
  type Validation,
} from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import type { ExportedField } from "./exported-fields.ts";

/** Projects whose configurations are written and read. */
export const FRAMEWORKS = ["internevo", "megatron", "deepspeed", "torchtitan"] as const;
export type Framework = (typeof FRAMEWORKS)[number];

/** The versions whose option names and defaults were read. */
export const FRAMEWORK_VERSIONS: Readonly<Record<Framework, string>> = {
  internevo:
    "InternEvo 0.5.2; parallel.sequence_2D and weight.forward_overlap_per as of InternLM/InternEvo 0067f27",
  megatron: "Megatron-LM core 0.20.0, NVIDIA/Megatron-LM d98e8a6",
  deepspeed: "DeepSpeed 0.19.8, with deepspeedai/Megatron-DeepSpeed 4efb479",
  torchtitan: "torchtitan v0.2.2, the last release that reads TOML",
};

export interface FrameworkFile {
  readonly name: string;
  readonly text: string;
}

/** Something of a job or plan that a framework has no option for. */
export interface Inexpressible {
  /** `plan.…`, or a field of the job. */
  readonly field: string;
  readonly value: unknown;
  /** What the configuration says instead. */
  readonly nearest: unknown;
  readonly reason: string;
}

export interface ExportedConfiguration {
  readonly framework: Framework;
  readonly version: string;
  /** The first is the one that is imported again; it names the others. */
  readonly files: readonly FrameworkFile[];
  /** What the files say: the plan that was asked for, where nothing of it is inexpressible. */
  readonly plan: PlanOfJob;
  readonly inexpressible: readonly Inexpressible[];
}

/**
 * Something of a configuration that has no exact counterpart, or that was left open, and what it was taken
 * as.
 */
export interface TakenAs {
  readonly option: string;
  readonly value: unknown;
  readonly as: string;
  /** How the predicted figures err for it. */
  readonly errs?: FigureErrors;
}

/** Ranks that a configuration is launched on. */
export interface Launch {
  readonly nodes: number;
  readonly gpusPerNode: number;
}

/** Who says the ranks. */
export interface LaunchOrigin {
  /** Whoever asks gave them, whatever the configuration says. */
  readonly isAsked: boolean;
  /** What the configuration says; null: nothing. */
  readonly said: Launch | null;
}

/** What the framework itself refuses, or does not do, though a plan stands for it. */
export interface FrameworkWarning {
  readonly field: string;
  readonly value: unknown;
  /** The framework's rule. */
  readonly message: string;
  readonly remedy: string;
}

type Checkpointing = NonNullable<JobSpec["checkpointing"]>;

export interface ImportedConfiguration {
  readonly framework: Framework;
  readonly version: string;
  readonly launch: Launch;
  readonly launchOrigin: LaunchOrigin;
  readonly model: Model;
  readonly sequenceLengthTokens: number;
  readonly globalBatchTokens: number;
  readonly precision: Precision;
  readonly optimizer: Partial<Optimizer>;
  readonly steps?: number;
  readonly seed?: number;
  /** Data, evaluation, checkpoints and weights, where the file says them as a job does. */
  readonly data?: Data;
  readonly validation?: Validation;
  readonly checkpointing?: Checkpointing;
  readonly initialWeights?: string;
  readonly plan: Plan;
  readonly takenAs: readonly TakenAs[];
  readonly warnings: readonly FrameworkWarning[];
  /** Options that say nothing about time or memory. */
  readonly ignored: readonly string[];
}

/** What of a job is exported; its plan is given beside it. */
export type ExportedJob = Pick<JobSpec, ExportedField>;

/** What a plan becomes in a framework: the nearest that it can say, and why each field is another. */
export interface Expression {
  readonly plan: Plan;
  readonly reasons: Readonly<Partial<Record<keyof Plan, string>>>;
  /** Of the job, where it depends on the plan too. */
  readonly beyond?: readonly Inexpressible[];
}

/** Fields of a plan that a framework has no word for, each with what it does instead. */
export type NeverSaid = Readonly<Partial<Record<PlanExtension, string>>>;

/** A plan with what a framework has no word for at its default. */
export function withoutFields<Never extends NeverSaid>(plan: Plan, never: Never): Omit<Plan, keyof Never> {
  const without: Record<string, unknown> = { ...plan };
  for (const field of Object.keys(never)) delete without[field];
  return without as unknown as Omit<Plan, keyof Never>;
}

/** Layers of the longest pipeline stage. */
export const stageLayers = (model: Pick<Model, "layers">, plan: Pick<Plan, "pipelineParallel">): number =>
  Math.ceil(model.layers / plan.pipelineParallel);

/** One way of writing a plan: nothing that is its default, and all layers recomputed as `recompute`. */
export function normalPlan(plan: Plan, model: Pick<Model, "layers">): Plan {
  const recompute = plan.recompute || planValue(plan, "recomputeLayers") >= stageLayers(model, plan);
  return withoutDefaults({ ...plan, recompute, ...(recompute ? { recomputeLayers: 0 } : {}) });
}

/** Every field in which the expressed plan is another, with its reason. */
export function inexpressibleFields(
  asked: Plan,
  { plan, reasons, beyond = [] }: Expression,
): Inexpressible[] {
  const fields = [...new Set([...Object.keys(asked), ...Object.keys(plan)])] as (keyof Plan)[];
  const value = (of: Plan, field: keyof Plan): unknown => planValue(of, field);
  return [
    ...fields
      .filter((field) => value(asked, field) !== value(plan, field))
      .map((field) => ({
        field: `plan.${field}`,
        value: value(asked, field),
        nearest: value(plan, field),
        reason: reasons[field] ?? "follows from the other fields",
      })),
    ...beyond,
  ];
}
