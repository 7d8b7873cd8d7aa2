import type { Prediction, Profile } from "@internevo/domain";
import { exposedAndWhole, type Case, type RowResult } from "./evaluate.ts";
import { frameworkMemory, type ManagedMemory } from "./framework-requests.ts";
import { publishedJob, publishedPrediction, USABLE_BYTES } from "./judgements.ts";
import type { ScalabilityResult } from "./longest.ts";
import { paperJob, type PaperModel, type SystemId } from "./paper.ts";
import { evaluateRanking, RANKED, type Ranking } from "./ranking.ts";

/** The model of the paper's figure of overlap and memory management. */
export const ABLATED: PaperModel = "llama-13b";

/** A plan of the paper's tables with its overlap, and the same plan without any. */
export interface OverlapWorth {
  readonly row: RowResult;
  readonly hidden: Prediction;
  readonly alone: Prediction;
}

/** A plan of the paper's through a framework's allocator, with the paper's memory management and without. */
export interface ManagementWorth {
  readonly row: RowResult;
  readonly managed: ManagedMemory;
  readonly unmanaged: ManagedMemory;
  /** The same where the device has no end. */
  readonly managedEndless: ManagedMemory;
  readonly unmanagedEndless: ManagedMemory;
}

export type Baseline = Exclude<SystemId, "internevo">;

/** One length of a model: InternEvo's row over the row of another system as it may have run, and at its best. */
export interface BaselineRatios {
  readonly model: PaperModel;
  readonly lengthK: number;
  readonly system: Baseline;
  /** The rows of the tables: the other's without any overlap, and with the same overlap as InternEvo's. */
  readonly alone: number;
  readonly hidden: number;
  /** Best plans of both, of one search. */
  readonly best: number | null;
  /** Memory of the other's row by the published planner, whole logits included. */
  readonly publishedBytes: number | null;
}

/** A largest length: MFU over that of the other system. */
export interface LongestRatios {
  readonly result: ScalabilityResult;
  readonly system: Baseline;
  readonly alone: number;
  readonly hidden: number;
  /** What the paper measured; null where the other timed out. */
  readonly measured: number | null;
}

export interface Ablations {
  readonly rankings: readonly Ranking[];
  readonly overlap: readonly OverlapWorth[];
  readonly management: readonly ManagementWorth[];
  readonly baselines: readonly BaselineRatios[];
  readonly longest: readonly LongestRatios[];
}

const ownRows = (rows: readonly RowResult[], model: PaperModel): RowResult[] =>
  rows.filter((row) => row.model === model && row.system === "internevo");

const withAndWithout = (row: RowResult, profile: Profile) =>
  exposedAndWhole(paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens }), row.plan, profile);

const overlapWorth = (row: RowResult, profile: Profile): OverlapWorth => {
  const { exposed, whole } = withAndWithout(row, profile);
  return { row, hidden: exposed, alone: whole };
};

export function managementWorth(row: RowResult): ManagementWorth {
  const job = publishedJob(row);
  const of = (managed: boolean, bytes: number): ManagedMemory =>
    frameworkMemory(job, row.plan, managed, bytes);
  return {
    row,
    managed: of(true, USABLE_BYTES),
    unmanaged: of(false, USABLE_BYTES),
    managedEndless: of(true, Infinity),
    unmanagedEndless: of(false, Infinity),
  };
}

function baselineRatios(
  ours: RowResult,
  rows: readonly RowResult[],
  cases: readonly Case[],
  profile: Profile,
): BaselineRatios[] {
  const { model, lengthK } = ours;
  const speed = withAndWithout(ours, profile).exposed.tokensPerGpuPerSecond;
  const whole = cases.find((one) => one.model === model && one.lengthK === lengthK);
  return (["megatron", "ulysses"] as const).flatMap((system) => {
    const row = rows.find((one) => one.system === system && one.model === model && one.lengthK === lengthK);
    if (!row || !whole) return [];
    const { exposed, whole: alone } = withAndWithout(row, profile);
    const best = whole[system];
    return [
      {
        model,
        lengthK,
        system,
        alone: speed / alone.tokensPerGpuPerSecond,
        hidden: speed / exposed.tokensPerGpuPerSecond,
        best: best && best.predicted.stepTimeSeconds / whole.paper.predicted.stepTimeSeconds,
        publishedBytes: publishedPrediction(publishedJob(row), row.plan, profile)?.peakMemoryBytes ?? null,
      },
    ];
  });
}

function longestRatios(result: ScalabilityResult, profile: Profile): LongestRatios[] {
  const { model, lengthK, nodes, sequenceParallel, measuredMfu, atPaper } = result;
  const ours = atPaper.internevo?.predicted.tokensPerGpuPerSecond;
  const job = paperJob(model, lengthK, {
    nodes,
    batchTokens: (lengthK * 1024 * nodes * 8) / sequenceParallel,
  });
  return (["megatron", "ulysses"] as const).flatMap((system) => {
    const other = atPaper[system];
    if (other === null || ours === undefined) return [];
    const { exposed, whole } = exposedAndWhole(job, other.plan, profile);
    return [
      {
        result,
        system,
        alone: ours / whole.tokensPerGpuPerSecond,
        hidden: ours / exposed.tokensPerGpuPerSecond,
        measured: system === "megatron" ? measuredMfu.internevo / measuredMfu.megatron : null,
      },
    ];
  });
}

/** The paper's ablations, as far as they can be had without a run. */
export const evaluateAblations = (
  cases: readonly Case[],
  rows: readonly RowResult[],
  scalability: readonly ScalabilityResult[],
  profile: Profile,
): Ablations => ({
  rankings: RANKED.lengthsK.map((lengthK) => evaluateRanking(lengthK, profile)),
  overlap: ownRows(rows, ABLATED).map((row) => overlapWorth(row, profile)),
  management: ownRows(rows, ABLATED).map(managementWorth),
  baselines: rows
    .filter(({ system }) => system === "internevo")
    .flatMap((row) => baselineRatios(row, rows, cases, profile)),
  longest: scalability.flatMap((result) => longestRatios(result, profile)),
});
