import { CostModel, isPublishedPlan } from "@internevo/cost-model";
import { resolveJob, type JobSpec, type Plan, type Prediction, type Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { PAPER_OVERLAP, paperJob, type PaperRow } from "./paper.ts";

/** A row of InternEvo's is to be among so many best plans, or so close to the best. */
export const TOP = 10;
export const CLOSE = 0.03;

export interface Choice {
  readonly plan: Plan;
  readonly predicted: Prediction;
}

/** Where an arithmetic puts a plan among all plans of its space. */
export interface Place {
  /** Families ahead, and 1; null where it does not fit. */
  readonly rank: number | null;
  /** Step time over that of the best, minus 1. */
  readonly behind: number | null;
  readonly best: Choice;
}

export const isGood = ({ rank, behind }: Pick<Place, "rank" | "behind">): boolean =>
  rank !== null && behind !== null && (rank <= TOP || behind <= CLOSE);

const GIBIBYTE = 2 ** 30;
/** What the published planner itself takes a GPU to have (`mem_threshold` of its later version). */
export const NOMINAL_BYTES = 80 * GIBIBYTE;
/** What was probably usable of it: the paper's rows need up to about as much. */
export const USABLE_BYTES = 72 * GIBIBYTE;
/** The vocabulary of the published planner's models (`get_model_config`); the paper's table says 100k. */
const PUBLISHED_VOCABULARY = 103_168;

/** A job of the evaluation for the published planner. */
export function publishedJob(
  { model, lengthK, batchTokens }: Pick<PaperRow, "model" | "lengthK" | "batchTokens">,
  memoryPerGpuBytes = USABLE_BYTES,
): JobSpec {
  const job = paperJob(model, lengthK, { batchTokens, plan: PAPER_OVERLAP });
  return {
    ...job,
    model: resolveJob({
      name: "published",
      model: { base: model, vocabularySize: PUBLISHED_VOCABULARY },
      sequenceLengthTokens: job.sequenceLengthTokens,
      globalBatchTokens: job.globalBatchTokens,
      cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    }).model,
    cluster: { ...job.cluster, memoryPerGpuBytes },
    memoryModel: "published",
    timeModel: "published",
  };
}

function placeOf(job: JobSpec, profile: Profile, plan: Plan): Place {
  const { candidates, located } = planJob(job, profile, { top: 1, locate: plan });
  const [best] = candidates;
  if (best === undefined) throw new Error(`${job.name}: no plan fits`);
  if (located?.feasible !== true || located.predicted === null) return { rank: null, behind: null, best };
  const behind = located.predicted.stepTimeSeconds / best.predicted.stepTimeSeconds - 1;
  return { rank: located.rank, behind, best };
}

/**
 * What the published planner makes of a plan, whether it would look at it or not; null where it has no time.
 */
export function publishedPrediction(job: JobSpec, plan: Plan, profile: Profile): Prediction | null {
  const model = new CostModel(job, profile);
  const own = planOfJob(plan, job);
  return model.timeIfKnown(own) === null ? null : model.predict(own);
}

/** Where the paper's text and the published planner put a row of InternEvo's. */
export interface Judgements {
  readonly text: Place;
  readonly published: Place;
  /** With all 80 GiB usable. */
  readonly nominal: Place;
  /** With the published planner's memory, and our time. */
  readonly ourTime: Place;
  /** The row by the published planner. */
  readonly predicted: Prediction | null;
  /** Our best plan by the published planner: bytes, whether it would look at it, and its time. */
  readonly ours: {
    readonly bytes: number;
    readonly isOfItsSpace: boolean;
    readonly predicted: Prediction | null;
  };
}

export function judge(row: PaperRow, ourBest: Plan, profile: Profile): Judgements {
  const job = publishedJob(row);
  const text = paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens, plan: PAPER_OVERLAP });
  return {
    text: placeOf({ ...text, memoryModel: "paper", timeModel: "paper" }, profile, row.plan),
    published: placeOf(job, profile, row.plan),
    nominal: placeOf(publishedJob(row, NOMINAL_BYTES), profile, row.plan),
    ourTime: placeOf({ ...job, timeModel: "executor" }, profile, row.plan),
    predicted: publishedPrediction(job, row.plan, profile),
    ours: {
      bytes: new CostModel(job, profile).memory(planOfJob(ourBest, job)).bytes,
      isOfItsSpace: isPublishedPlan(ourBest, 128),
      predicted: publishedPrediction(job, ourBest, profile),
    },
  };
}
