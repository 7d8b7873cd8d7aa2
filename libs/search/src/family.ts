import {
  costsRow,
  layerWaits,
  leastSecondsOf,
  leastWaits,
  NO_WAITS,
  sharesBeside,
  stepCosting,
  type CostsOf,
  type LayerWaits,
  type ShardTime,
  type SliceTime,
  type StepSize,
} from "@internevo/cost-model";
import { OVERLAPS, type GateUp, type LayoutSpace, type OverlapChoice, type Sharding } from "@internevo/plan";
import type { ShardTable } from "./shard-table.ts";

/** Sums of bounds and of times round differently: far more than their error is given away. */
export const ROUNDING = 1 - 1e-9;

/** With the least waits of all granularities, every plan that overlaps anything is one of these. */
const HIDING: readonly OverlapChoice[] = [
  { forwardOverlap: "inter-layer", backwardOverlap: "none" },
  { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
];

/** All plans of one layout and micro-batch size. */
export interface Batch {
  readonly space: LayoutSpace;
  readonly microBatchSize: number;
  readonly microBatches: number;
  /** Chunks that go with the micro-batches. */
  readonly chunks: readonly number[];
  readonly shards: ShardTable;
  /**
   * Times of a micro-batch in its layout, without and with a thread that communicates beside computation.
   * Thousands of batches are never looked at: they keep none.
   */
  readonly slicesOf: (microBatchSize: number) => readonly [SliceTime, SliceTime];
  readonly size: StepSize;
  /** No plan of the batch is faster. */
  readonly bound: number;
}

export interface Choice {
  readonly overlap: OverlapChoice;
  /** Place among all choices of overlap. */
  readonly index: number;
}

/** No overlap: no choice needs less memory. */
export const PLAIN: Choice = { overlap: OVERLAPS[0] as OverlapChoice, index: 0 };

/** What depends on whether a thread communicates beside computation. */
export interface Side {
  readonly slice: SliceTime;
  readonly waits: LayerWaits;
  readonly costsOf: CostsOf;
}

/** The plans of a batch with one sharding. */
export interface Family {
  readonly batch: Batch;
  /** Of the sharding in the batch's table. */
  readonly index: number;
  readonly shard: ShardTime;
  readonly sides: readonly [plain: Side, beside: Side];
  /** No plan of the family is faster, whatever its overlap, chunks and what it makes again. */
  readonly bound: number;
  /**
   * The same of those that do so with gate and up, have from so many to so many chunks, and recompute so many
   * layers at least.
   */
  readonly boundOf: (gateUp: GateUp, fewestChunks: number, mostChunks: number, recomputed: number) => number;
}

/** Costs of which only a bound is asked for. */
const ROW = costsRow();

/**
 * The family of a batch with one of its shardings; undefined where all its plans are slower than what is of
 * interest.
 * @param slices times of a micro-batch, without and with a thread that communicates beside computation
 * @param interest seconds
 */
export function openFamily(
  batch: Batch,
  index: number,
  shard: ShardTime,
  [plain, beside]: readonly [SliceTime, SliceTime],
  interest: number,
): Family | undefined {
  const { shards, size, chunks } = batch;
  const { gradientSharding } = shards.list[index] as Sharding;
  const every = gradientSharding > 1;
  const [fewest, most] = [chunks[0] as number, chunks.at(-1) as number];
  const stageLayers = Math.ceil(size.layers / size.pipelineParallel);
  const costsOf = stepCosting(plain, shard, every, stageLayers);
  const costsBeside = beside === plain ? costsOf : stepCosting(beside, shard, every, stageLayers);
  const { layout, recomputed } = batch.space;
  const boundWith = (
    waits: LayerWaits,
    waitsBeside: LayerWaits,
    gateUp: GateUp,
    from: number,
    to: number,
    layers: number,
  ): number => {
    let bound = leastSecondsOf(costsOf(waits, PLAIN.overlap, gateUp, ROW), size, from, to, layers);
    for (const overlap of HIDING) {
      const costs = sharesBeside(layout, overlap)
        ? costsBeside(waitsBeside, overlap, gateUp, ROW)
        : costsOf(waits, overlap, gateUp, ROW);
      bound = Math.min(bound, leastSecondsOf(costs, size, from, to, layers));
    }
    return bound * ROUNDING;
  };
  // A bound that costs little: most families are never visited.
  const withoutWaits = (gateUp: GateUp): number =>
    recomputed[gateUp].length > 0 ? boundWith(NO_WAITS, NO_WAITS, gateUp, fewest, most, 0) : Infinity;
  // To keep gate and up costs least. What waits cost need not be known of families that are too slow without.
  const hasKept = recomputed.kept.length > 0;
  if (hasKept && withoutWaits("kept") > interest) return undefined;
  const own: Side = { slice: plain, waits: layerWaits(plain, shard), costsOf };
  const other: Side =
    beside === plain ? own : { slice: beside, waits: layerWaits(beside, shard), costsOf: costsBeside };
  const least = leastWaits(own.waits);
  const leastBeside = other === own ? least : leastWaits(other.waits);
  const boundOf = (gateUp: GateUp, from: number, to: number, layers: number): number =>
    boundWith(least, leastBeside, gateUp, from, to, layers);
  const bound = Math.min(
    hasKept ? boundOf("kept", fewest, most, 0) : Infinity,
    withoutWaits("again"),
    withoutWaits("host"),
  );
  if (bound > interest) return undefined;
  return { batch, index, shard, sides: [own, other], bound, boundOf };
}
