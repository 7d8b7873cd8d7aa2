import { NATIVE_PROTOCOL, type TrainerConfig } from "@internevo/contracts";
import { ProblemError, type JobSpec, type Mesh, type Plan } from "@internevo/domain";
import type { Dataset } from "./dataset/prepare.ts";

export interface TrainerConfigOptions {
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly mesh: Mesh;
  readonly dataset: Dataset;
  /** Optimizer steps to reach, counted from the first one of the job. */
  readonly steps: number;
  /** Null: no checkpoint is written or read. */
  readonly checkpoint: TrainerConfig["checkpoint"];
  readonly threadsPerRank: number;
  readonly deterministic?: boolean;
}

/**
 * The trainer's configuration for a plan of a job.
 * @throws ProblemError `plan-invalid` for a precision that the executor does not run.
 */
export function trainerConfig(options: TrainerConfigOptions): TrainerConfig {
  const { spec, plan, mesh, dataset, steps, checkpoint, threadsPerRank, deterministic = true } = options;
  const { name: _name, ...model } = spec.model;
  const { forwardOverlap: _forward, backwardOverlap: _backward, ...trainerPlan } = plan;
  if (spec.precision === "bf16-grad16") {
    throw new ProblemError("plan-invalid", "the executor does not run precision bf16-grad16", [{ field: "precision", value: spec.precision, message: "is planned for, not run", remedy: "use bf16 or fp32" }]);
  }
  return {
    protocol: NATIVE_PROTOCOL,
    model,
    sequenceLengthTokens: spec.sequenceLengthTokens,
    precision: spec.precision,
    plan: trainerPlan,
    mesh,
    optimizer: spec.optimizer,
    data: { path: dataset.path },
    seed: spec.seed,
    steps,
    checkpoint,
    memoryLimitBytes: spec.cluster.memoryPerGpuBytes,
    threadsPerRank,
    deterministic,
    gradientDumpPath: null,
  };
}
