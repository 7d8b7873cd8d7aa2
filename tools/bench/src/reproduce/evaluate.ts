import { CostModel } from "@internevo/cost-model";
import type { JobSpec, Plan, PlanConstraints, Prediction, Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import {
  LENGTHS_K,
  MODELS,
  paperJob,
  paperRows,
  paperSpaces,
  SYSTEM_SPACES,
  type PaperModel,
  type PaperRow,
  type SystemId,
} from "./paper.ts";

/** A row of InternEvo's is to be among so many best plans, or so close to the best. */
export const TOP = 10;
export const CLOSE = 0.03;

export interface Choice {
  readonly plan: Plan;
  readonly predicted: Prediction;
}

/** The fastest plan of a union of spaces; null when none fits. */
export function bestOf(job: JobSpec, profile: Profile, spaces: readonly PlanConstraints[]): Choice | null {
  const all = spaces.flatMap((plan) => planJob({ ...job, plan }, profile, { top: 1 }).candidates);
  return all.reduce<Choice | null>(
    (best, { plan, predicted }) =>
      best === null || predicted.stepTimeSeconds < best.predicted.stepTimeSeconds
        ? { plan, predicted }
        : best,
    null,
  );
}

/**
 * One model at one length: the best plans of our complete space, of the paper's ten dimensions, and of the
 * other systems.
 */
export interface Case {
  readonly model: PaperModel;
  readonly lengthK: number;
  readonly complete: Choice;
  readonly paper: Choice;
  readonly megatron: Choice | null;
  readonly ulysses: Choice | null;
}

export function evaluateCase(model: PaperModel, lengthK: number, profile: Profile): Case {
  const job = paperJob(model, lengthK);
  const complete = bestOf(job, profile, [{}]);
  const paper = bestOf(job, profile, paperSpaces);
  if (complete === null || paper === null) throw new Error(`${model} at ${lengthK}k: no plan fits`);
  return {
    model,
    lengthK,
    complete,
    paper,
    megatron: bestOf(job, profile, SYSTEM_SPACES.megatron(128)),
    ulysses: bestOf(job, profile, SYSTEM_SPACES.ulysses(128)),
  };
}

export const evaluateCases = (profile: Profile): Case[] =>
  MODELS.flatMap((model) => LENGTHS_K.map((lengthK) => evaluateCase(model, lengthK, profile)));

/** What a system's line of a case is. */
export const choiceOf = (row: Case, system: SystemId): Choice | null =>
  system === "internevo" ? row.paper : row[system];

/** A row of the paper's tables, predicted. */
export interface RowResult extends PaperRow {
  readonly feasible: boolean;
  readonly reason: string | null;
  readonly predicted: Prediction | null;
  /** Place among the families of the paper's ten dimensions, and how many of those plans fit. */
  readonly rank: number | null;
  /** Step time over that of the best plan of the paper's ten dimensions, minus 1. */
  readonly behind: number | null;
  /** The best plan of the paper's ten dimensions. */
  readonly best: Choice;
  /** The same with the paper's arithmetic of memory, 34·bSH a layer. */
  readonly paperMemory: {
    readonly rank: number | null;
    readonly behind: number | null;
    readonly best: Choice;
  };
  /**
   * Behind the best plan that fits where 34·bSH a layer and the logits are kept; of InternEvo's rows that are
   * neither among the ten best nor within 3%.
   */
  readonly footprint: { readonly best: Choice; readonly behind: number } | null;
  /**
   * The best of the plans with the row's own micro-batch, recomputation and sequence ranks: behind it only
   * the shardings differ.
   */
  readonly sharding: { readonly best: Choice; readonly behind: number } | null;
}

/** Place of a plan in a union of spaces: families that are faster, and 1. */
function placeOf(
  job: JobSpec,
  profile: Profile,
  plan: Plan,
  memoryModel: JobSpec["memoryModel"],
): { rank: number | null; behind: number | null; best: Choice } {
  const best = bestOf({ ...job, memoryModel }, profile, paperSpaces);
  if (best === null) throw new Error(`${job.name}: no plan fits`);
  const ranks = paperSpaces.map(
    (space) => planJob({ ...job, plan: space, memoryModel }, profile, { top: 1, locate: plan }).located,
  );
  const located = ranks[0];
  if (located?.feasible !== true || located.predicted === null) return { rank: null, behind: null, best };
  const rank = 1 + ranks.reduce((ahead, each) => ahead + ((each?.rank ?? 1) - 1), 0);
  return { rank, behind: located.predicted.stepTimeSeconds / best.predicted.stepTimeSeconds - 1, best };
}

/**
 * The best plan of the paper's ten dimensions that fits where activations are kept as its table of memory
 * footprints has them: 34·bSH a layer and 2·bSV of logits, with the loss's float32 copy of those (4·bSV),
 * model states at 2, 2 and 6 bytes, and the device's runtime.
 */
function bestInPaperFootprint(job: JobSpec, profile: Profile): Choice | null {
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  const sequences = job.globalBatchTokens / job.sequenceLengthTokens;
  const divisors = (value: number): number[] =>
    Array.from({ length: value }, (_, index) => index + 1).filter((each) => value % each === 0);
  let best: Choice | null = null;
  for (const sequenceParallel of divisors(ranks)) {
    for (const microBatchSize of divisors(sequences)) {
      const logitsBytes =
        (6 * microBatchSize * job.sequenceLengthTokens * job.model.vocabularySize) / sequenceParallel;
      const memoryPerGpuBytes = Math.floor(
        job.cluster.memoryPerGpuBytes - profile.device.runtimeBytes - logitsBytes,
      );
      if (memoryPerGpuBytes <= 0) continue;
      const choice = bestOf(
        { ...job, memoryModel: "paper", cluster: { ...job.cluster, memoryPerGpuBytes } },
        profile,
        paperSpaces.map((space) => ({ ...space, sequenceParallel, microBatchSize })),
      );
      if (
        choice !== null &&
        (best === null || choice.predicted.stepTimeSeconds < best.predicted.stepTimeSeconds)
      )
        best = choice;
    }
  }
  return best;
}

export function evaluateRow(row: PaperRow, profile: Profile): RowResult {
  const job = paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens });
  const { plan } = row;
  const located = planJob(job, profile, { top: 1, locate: plan }).located;
  const { rank, behind, best } = placeOf(job, profile, plan, "executor");
  const sameBatch = {
    microBatchSize: plan.microBatchSize,
    sequenceParallel: plan.sequenceParallel,
    tensorParallel: plan.tensorParallel,
    pipelineParallel: plan.pipelineParallel,
  };
  const alike = bestOf(
    job,
    profile,
    paperSpaces
      .filter((space) => (space.recompute === true) === plan.recompute)
      .map((space) => ({ ...space, ...sameBatch })),
  );
  const predicted = located?.predicted ?? null;
  const isGood = rank !== null && behind !== null && (rank <= TOP || behind <= CLOSE);
  const fitting = row.system !== "internevo" || isGood ? null : bestInPaperFootprint(job, profile);
  return {
    ...row,
    feasible: located?.feasible ?? false,
    reason: located?.reason ?? null,
    predicted,
    rank,
    behind,
    best,
    footprint:
      fitting === null || predicted === null
        ? null
        : { best: fitting, behind: predicted.stepTimeSeconds / fitting.predicted.stepTimeSeconds - 1 },
    paperMemory: placeOf(job, profile, plan, "paper"),
    sharding:
      alike === null || predicted === null
        ? null
        : { best: alike, behind: predicted.stepTimeSeconds / alike.predicted.stepTimeSeconds - 1 },
  };
}

export const evaluateRows = (profile: Profile): RowResult[] =>
  paperRows().map((row) => evaluateRow(row, profile));

/**
 * Seconds of a step that are communication of parameters and gradients which nothing hides, and the update.
 */
export const shardingSeconds = ({ time }: Prediction): number =>
  time.parameterCommunicationSeconds + time.gradientCommunicationSeconds + time.updateSeconds;

/** Bytes that a layer keeps of one micro-batch, over b·S·H / s_sp: 34 in the paper's arithmetic. */
export function keptPerLayer(row: PaperRow, profile: Profile): number {
  const { plan } = row;
  // Without stages their ranks are data ranks, which take more sequences at the same micro-batches.
  const batchTokens = row.batchTokens * plan.pipelineParallel;
  const job = paperJob(row.model, row.lengthK, { batchTokens });
  const activations = (layers: number): number => {
    const { lines } = new CostModel({ ...job, model: { ...job.model, layers } }, profile).memory(
      planOfJob(
        {
          ...plan,
          recompute: false,
          pipelineParallel: 1,
          dataParallel: plan.dataParallel * plan.pipelineParallel,
        },
        { ...job, model: { ...job.model, layers } },
      ),
    );
    return lines["activations"] ?? 0;
  };
  const slice =
    (plan.microBatchSize * job.sequenceLengthTokens * job.model.hiddenSize) / plan.sequenceParallel;
  return (activations(job.model.layers) - activations(job.model.layers - 1)) / slice;
}

/** The plan's communication if nothing of it were hidden, and what is hidden. */
export function exposedAndWhole(
  job: JobSpec,
  plan: Plan,
  profile: Profile,
): { exposed: Prediction; whole: Prediction } {
  const model = new CostModel(job, profile);
  return {
    exposed: model.predict(planOfJob(plan, model.job)),
    whole: model.predict(planOfJob({ ...plan, forwardOverlap: "none", backwardOverlap: "none" }, model.job)),
  };
}
