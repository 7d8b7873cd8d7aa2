import { MODEL_DEFAULTS, sourcesOf, type Optimizer, type Plan, type Precision } from "@internevo/domain";
import type { TrainingField } from "./exported-fields.ts";
import type { ExportedJob, Inexpressible } from "./framework.ts";

/** What of a field a framework does not say as it is, in the plan that is written; null: nothing. */
export type Unsaid = (job: ExportedJob, plan: Plan) => Inexpressible | null;

/**
 * What becomes of a field: the configuration says it, or the export is refused; the decision of another field
 * names it; or a part of it is not said.
 */
type Decision = "said" | `with ${TrainingField}` | Unsaid;

/** A field that is new in a job has to be decided here for every framework, or said to be none of training (exported-fields.ts). */
export type FieldDecisions = Readonly<Record<TrainingField, Decision>>;

/** What a framework does not say of a job as it is, beside the plan. */
export function unsaidFields(decisions: FieldDecisions, job: ExportedJob, plan: Plan): Inexpressible[] {
  return Object.values(decisions).flatMap((decision) => {
    const unsaid = typeof decision === "function" ? decision(job, plan) : null;
    return unsaid === null ? [] : [unsaid];
  });
}

/** Schedules of the learning rate that a framework lacks: it follows a cosine. */
export const schedulesLacking =
  (...lacking: readonly NonNullable<Optimizer["schedule"]>[]): Unsaid =>
  ({ optimizer: { schedule = "cosine" } }) =>
    lacking.includes(schedule)
      ? {
          field: "optimizer.schedule",
          value: schedule,
          nearest: "cosine",
          reason: "it has no such schedule of the learning rate",
        }
      : null;

/** A schedule that ends before the job, for a program that does not stay at the least rate: it ends with the job. */
export const decayWithJob =
  (behindDecay: string): Unsaid =>
  ({ optimizer: { decaySteps, minLearningRate, peakLearningRate }, steps }) =>
    decaySteps < steps && minLearningRate < peakLearningRate
      ? { field: "optimizer.decaySteps", value: decaySteps, nearest: steps, reason: behindDecay }
      : null;

/** The steps of decay that such a program is given. */
export const decayStepsWithJob = ({ optimizer, steps }: ExportedJob): number =>
  Math.max(optimizer.decaySteps, steps);

/** A model whose head shares the embedding's weights, where the program's has its own. */
export const headOfItsOwn =
  (isSo: (job: ExportedJob) => boolean, reason: string): Unsaid =>
  (job) =>
    job.model.tiedEmbeddings && isSo(job)
      ? { field: "model.tiedEmbeddings", value: true, nearest: false, reason }
      : null;

/**
 * The spread of a model's initial weights, for a program that begins with its own; nothing where that of the
 * job is nobody's choice.
 */
export const ownDeviation: Unsaid = ({ model: { initStandardDeviation } }) =>
  initStandardDeviation === MODEL_DEFAULTS.initStandardDeviation
    ? null
    : {
        field: "model.initStandardDeviation",
        value: initStandardDeviation,
        nearest: null,
        reason: "initial weights have the framework's own spread",
      };

/** A precision that a program lacks, and what it has instead. */
export const otherPrecision =
  (lacking: Precision, nearest: Precision, reason: string): Unsaid =>
  ({ precision }) =>
    precision === lacking ? { field: "precision", value: precision, nearest, reason } : null;

/** Data in another format than the framework's own, also as a source of a mixture. */
export const otherFormat =
  (own: string | null, nearest: string, reason: string): Unsaid =>
  ({ data }) =>
    data === null || sourcesOf(data).every((source) => source.data.format === own)
      ? null
      : { field: "data", value: data.format, nearest, reason };

/** Held-out data that is not read: the program evaluates nothing. */
export const notEvaluated =
  (isRead: (job: ExportedJob) => boolean, reason: string): Unsaid =>
  (job) =>
    job.validation === undefined || isRead(job)
      ? null
      : { field: "validation", value: job.validation.data.format, nearest: "no evaluation", reason };

/** Evaluations that the program makes on other batches than the job's. */
export const otherBatches =
  (isRead: (job: ExportedJob) => boolean, nearest: "all" | null, reason: string): Unsaid =>
  (job) =>
    job.validation === undefined || !isRead(job)
      ? null
      : {
          field: "validation.batches",
          value: job.validation.batches,
          nearest: nearest ?? job.validation.batches,
          reason,
        };

/** Checkpoints that a program never removes. */
export const keepsAll: Unsaid = ({ checkpointing }) =>
  checkpointing === null
    ? null
    : {
        field: "checkpointing.keepLast",
        value: checkpointing.keepLast,
        nearest: "all",
        reason: "it has no option that removes older checkpoints and keeps so many",
      };

/** Weights whose folder is written, and which the program takes in one form only. */
export const weightsIn =
  (reason: string): Unsaid =>
  ({ initialWeights }) =>
    initialWeights === undefined
      ? null
      : { field: "initialWeights", value: initialWeights, nearest: initialWeights, reason };

/** Where checkpoints are written, seen from where the program is started. A job says no place. */
export const CHECKPOINT_FOLDER = "checkpoints";

/** Whether documents of a sequence are kept apart. */
export const isPacked = ({ data }: Pick<ExportedJob, "data">): boolean => data?.packing === "documents";
