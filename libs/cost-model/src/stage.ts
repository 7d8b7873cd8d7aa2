import { commonProgram, programElements, type ByUnit, type JobSpec, type Model } from "@internevo/domain";
import { sumOfUnits } from "./layer-units.ts";

/** The next multiple. */
export const up = (value: number, multiple: number): number => Math.ceil(value / multiple) * multiple;

/**
 * Parameters of the units that are gathered, reduced and updated together, on one tensor rank, before
 * padding.
 */
export interface UnitParameters {
  readonly embedding: number;
  readonly layer: number;
  readonly units: ByUnit;
  /** 0 with tied embeddings: the final norm is then part of the embedding's unit. */
  readonly head: number;
}

/** A search asks for each of its shardings, of one model and few numbers of ranks. */
const knownParameters = new WeakMap<Model, Map<number, UnitParameters>>();

/** P of every unit, as the layer program has it. */
export function unitParameters(model: Model, tensorParallel: number): UnitParameters {
  let ofModel = knownParameters.get(model);
  if (!ofModel) knownParameters.set(model, (ofModel = new Map<number, UnitParameters>()));
  const known = ofModel.get(tensorParallel);
  if (known) return known;
  const { units, ends } = programElements(commonProgram(model), model, tensorParallel);
  const made = {
    embedding: ends["embedding"] ?? 0,
    layer: sumOfUnits(units),
    units,
    head: ends["head"] ?? 0,
  };
  ofModel.set(tensorParallel, made);
  return made;
}

/** One pipeline stage as memory sees it. */
export interface Stage {
  readonly layers: number;
  /** Layers of each chunk of the stage, in order of the model; one chunk without interleaving. */
  readonly chunkLayers: readonly number[];
  readonly isFirst: boolean;
  readonly isLast: boolean;
  /** The embedding's unit: on the first stage, and with tied embeddings on the last too. */
  readonly hasEmbedding: boolean;
  readonly hasHead: boolean;
  /** Micro-batches of a chunk whose activations the stage holds at once. */
  inFlight(microBatches: number, chunk: number): number;
  /** Of the first so many layers of the stage, all their micro-batches in flight. */
  layersHeld(microBatches: number, layers: number): number;
}

/**
 * Layers of every stage, or virtual stage: dealt as evenly as they go, the first (layers mod stages) have one
 * more.
 */
const layersOfStage = (layers: number, stages: number, stage: number): number =>
  Math.floor(layers / stages) + (stage < layers % stages ? 1 : 0);

/**
 * Micro-batches of a chunk in flight on a stage (native/MEMORY.md, f_c). 1F1B holds min(s_pp − stage, n);
 * interleaved, the most that were begun and not ended at any turn of the schedule.
 */
function inFlight(
  stage: number,
  stages: number,
  chunks: number,
  microBatches: number,
  chunk: number,
): number {
  if (chunks === 1) return Math.min(stages - stage, microBatches);
  const round = stages * chunks;
  const turns = microBatches * chunks;
  const warmUp = Math.min(turns, warmUpTurns(stage, stages, chunks));
  /** Of the first x turns of a pass, those of the chunk at a place of the order. */
  const of = (place: number, x: number): number =>
    Math.floor(x / round) * stages + Math.min(Math.max((x % round) - place * stages, 0), stages);
  // What was begun and what was ended grow by one a turn, or not at all: the most is in flight where one of
  // the two begins or ends to grow.
  const ends = (chunks - 1 - chunk) * stages;
  const begins = (((chunk * stages - warmUp - 1) % round) + round) % round;
  const corners = [0, round - 1, ends, ends + stages, begins, (begins + stages) % round, turns - warmUp - 1];
  let most = 0;
  for (const turn of corners)
    if (turn >= 0 && turn < round)
      most = Math.max(most, of(chunk, Math.min(turns, warmUp + 1 + turn)) - of(chunks - 1 - chunk, turn));
  return most;
}

/** Turns of an interleaved stage before its first backward pass, when there are as many. */
const warmUpTurns = (stage: number, stages: number, chunks: number): number =>
  2 * (stages - stage - 1) + (chunks - 1) * stages;

/** From so many micro-batches on, no more are in flight. */
const mostInFlight = (stage: number, stages: number, chunks: number): number =>
  chunks === 1 ? stages - stage : Math.ceil((warmUpTurns(stage, stages, chunks) + 1) / chunks) + stages;

/** Of each chunk of a stage the micro-batches in flight, and of the chunks before it all layers' of them. */
interface HeldByChunks {
  readonly each: readonly number[];
  readonly sums: readonly number[];
}
/**
 * Stages of more chunks keep what they counted last alone: models of thousands of layers have thousands of such
 * stages.
 */
const MANY_CHUNKS = 256;

/** A stage of a pipeline. */
export function pipelineStage(model: Model, stages: number, stage: number, chunks = 1): Stage {
  const isFirst = stage === 0;
  const isLast = stage === stages - 1;
  const chunkLayers = Array.from({ length: chunks }, (_, chunk) =>
    layersOfStage(model.layers, stages * chunks, chunk * stages + stage),
  );
  const layers = chunkLayers.reduce((sum, each) => sum + each, 0);
  const most = mostInFlight(stage, stages, chunks);
  // The first chunks have a layer more than the last, or as many.
  const longest = chunkLayers[0] as number;
  const long = chunkLayers.lastIndexOf(longest) + 1;
  const shorter = Math.max(1, longest - 1);
  const known = new Map<number, HeldByChunks>();
  const held = (microBatches: number): HeldByChunks => {
    const n = Math.min(microBatches, most);
    const found = known.get(n);
    if (found) return found;
    const each = chunkLayers.map((_, chunk) => inFlight(stage, stages, chunks, n, chunk));
    const sums = [0];
    for (const [chunk, of] of chunkLayers.entries())
      sums.push((sums[chunk] as number) + of * (each[chunk] as number));
    const made = { sums, each };
    if (chunks > MANY_CHUNKS) known.clear();
    known.set(n, made);
    return made;
  };
  const layersHeld = (microBatches: number, first: number): number => {
    const { sums, each } = held(microBatches);
    if (first >= layers) return sums[chunks] as number;
    const ofLong = long * longest;
    const chunk =
      first < ofLong ? Math.floor(first / longest) : long + Math.floor((first - ofLong) / shorter);
    const before = chunk <= long ? chunk * longest : ofLong + (chunk - long) * shorter;
    return (sums[chunk] as number) + (first - before) * (each[chunk] as number);
  };
  return {
    layers,
    chunkLayers,
    isFirst,
    isLast,
    hasEmbedding: isFirst || (isLast && model.tiedEmbeddings),
    hasHead: isLast,
    inFlight: (microBatches, chunk) => inFlight(stage, stages, chunks, microBatches, chunk),
    layersHeld,
  };
}

/**
 * Layers of a stage times their micro-batches in flight: all, and those that are not recomputed (the first
 * `recomputed` are).
 */
export function layersInFlight(
  stage: Stage,
  microBatches: number,
  recomputed: number,
): { all: number; kept: number } {
  const all = stage.layersHeld(microBatches, stage.layers);
  return { all, kept: all - stage.layersHeld(microBatches, recomputed) };
}

/** All stages of a pipeline. */
export const pipelineStages = (model: Model, stages: number, chunks = 1): Stage[] =>
  Array.from({ length: stages }, (_, stage) => pipelineStage(model, stages, stage, chunks));

/**
 * The stages that can be the fullest. Layers are dealt as evenly as they go, the longer stages first, and
 * earlier stages have no fewer micro-batches in flight: of the stages between the first and the last, which
 * differ in nothing else, the second needs the most memory. The first has the embedding, the last head and
 * logits, those between buffers to both sides.
 */
export function fullestStages(model: Model, pipelineParallel: number, chunks = 1): Stage[] {
  return [...new Set([0, Math.min(1, pipelineParallel - 1), pipelineParallel - 1])].map((stage) =>
    pipelineStage(model, pipelineParallel, stage, chunks),
  );
}

/** Everything of a job that the formulas need. */
export type JobShape = Pick<
  JobSpec,
  | "model"
  | "sequenceLengthTokens"
  | "globalBatchTokens"
  | "precision"
  | "cluster"
  | "data"
  | "documents"
  | "timeline"
>;
