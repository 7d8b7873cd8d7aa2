import { CostModel } from "@internevo/cost-model";
import type { JobSpec, Plan, PlanConstraints, Prediction, Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { judge, type Choice, type Judgements } from "./judgements.ts";
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

/** The fastest plan of a union of spaces; null when none fits. */
export function bestOf(job: JobSpec, profile: Profile, spaces: readonly PlanConstraints[]): Choice | null {
  return fastest(spaces.flatMap((plan) => planJob({ ...job, plan }, profile, { top: 1 }).candidates));
}

function fastest(plans: readonly Choice[]): Choice | null {
  return plans.reduce<Choice | null>(
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
  /** Where the paper's text and the published planner put it; of InternEvo's rows. */
  readonly judgements: Judgements | null;
}

export function evaluateRow(row: PaperRow, profile: Profile): RowResult {
  const job = paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens });
  // A union of spaces: the families ahead in each of them count.
  const answers = paperSpaces.map((plan) => planJob({ ...job, plan }, profile, { top: 1, locate: row.plan }));
  const best = fastest(answers.flatMap(({ candidates }) => candidates));
  if (best === null) throw new Error(`${job.name}: no plan fits`);
  const { feasible = false, reason = null, predicted = null } = answers[0]?.located ?? {};
  const fits = feasible && predicted !== null;
  return {
    ...row,
    feasible,
    reason,
    predicted,
    rank: fits ? 1 + answers.reduce((ahead, { located }) => ahead + (located?.rank ?? 1) - 1, 0) : null,
    behind: fits ? predicted.stepTimeSeconds / best.predicted.stepTimeSeconds - 1 : null,
    best,
    judgements: row.system === "internevo" ? judge(row, best.plan, profile) : null,
  };
}

export const evaluateRows = (profile: Profile): RowResult[] =>
  paperRows().map((row) => evaluateRow(row, profile));

/** Seconds of a step that are communication of parameters and gradients which nothing hides, and the update. */
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
