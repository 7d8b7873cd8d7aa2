import { layerWaits, leastSecondsOf, leastWaits, recomputedBytes, secondsOf, stepBreakdown, stepCosts, totalSeconds, updateSeconds, type LayerWaits, type BatchMemory, type CostModel, type Layout, type OverlapChoice, type Sharding, type ShardTime, type SliceTime, type StageBytes, type StepShape } from "@internevo/cost-model";
import { OVERLAPS, planOf, type LayoutSpace } from "./enumerate.ts";
import type { Scored } from "./top.ts";

/** Sums of bounds and of times round differently: far more than their error is given away. */
export const ROUNDING = 1 - 1e-9;

const NOT_HIDING: OverlapChoice = { forwardOverlap: "none", backwardOverlap: "none" };
const HIDING: OverlapChoice = { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" };

/** The shardings of a (s_pp, s_tp), their times and bytes computed when they are asked for. */
export class ShardTable {
  readonly list: readonly Sharding[];
  readonly #model: CostModel;
  readonly #layout: Layout;
  readonly #times: (ShardTime | undefined)[];
  readonly #bytes: (StageBytes | undefined)[] = [];

  constructor(model: CostModel, layout: Layout, list: readonly Sharding[]) {
    this.#model = model;
    this.#layout = layout;
    this.list = list;
    this.#times = new Array<ShardTime | undefined>(list.length);
  }

  time(index: number): ShardTime {
    return (this.#times[index] ??= this.#model.shardTime(this.#layout, this.list[index] as Sharding));
  }

  /** @param kind 0: no layer of the stage is recomputed; 1: some; 2: all */
  bytes(index: number, overlapIndex: number, overlap: OverlapChoice, kind: 0 | 1 | 2): StageBytes {
    const at = (index * OVERLAPS.length + overlapIndex) * 3 + kind;
    return (this.#bytes[at] ??= this.#model.shardBytes(this.#layout, this.list[index] as Sharding, { ...overlap, recompute: kind === 2, ...(kind === 1 ? { recomputeLayers: 1 } : {}) }));
  }
}

/** All plans of one layout and micro-batch size. */
export interface Batch {
  readonly space: LayoutSpace;
  readonly microBatchSize: number;
  readonly microBatches: number;
  /** Chunks that go with the micro-batches. */
  readonly chunks: readonly number[];
  readonly shards: ShardTable;
  /** Without and with a thread that communicates beside computation. */
  readonly slices: readonly [SliceTime, SliceTime];
  readonly boundarySeconds: number;
  /** No plan of the batch is faster. */
  readonly bound: number;
}

export interface Choice {
  readonly overlap: OverlapChoice;
  /** Place among all choices of overlap. */
  readonly index: number;
}

/** Which of a list of numbers of recomputed layers fit: the first (none), and all from one on. */
interface Fitting {
  readonly none: boolean;
  /** Index of the first number above 0 from which on all fit. */
  readonly from: number;
  readonly count: number;
}

const NO_FIT: Fitting = { none: false, from: Infinity, count: 0 };

/** What a look at the plans of one family found out; the numbers are numbers of plans. */
export interface Tally {
  feasible: number;
  tooLarge: number;
  pruned: number;
}

/** Looks at the plans that share layout, batch and sharding, and differ in chunks, recomputed layers and overlap. */
export class FamilySearch {
  readonly #model: CostModel;
  readonly #limit: number;
  readonly #choices: readonly Choice[];
  readonly #memories = new Map<Batch, (BatchMemory | undefined)[]>();

  constructor(model: CostModel, choices: readonly Choice[]) {
    this.#model = model;
    this.#limit = model.job.cluster.memoryPerGpuBytes;
    this.#choices = choices;
  }

  /** Of the batch with one of its numbers of chunks. */
  #memory(batch: Batch, at: number): BatchMemory {
    let memory = this.#memories.get(batch);
    if (!memory) this.#memories.set(batch, (memory = new Array<BatchMemory | undefined>(batch.chunks.length)));
    return (memory[at] ??= this.#model.batchMemory({ ...batch.space.layout, pipelineChunks: batch.chunks[at] as number }, batch.microBatchSize, batch.microBatches));
  }

  /** Bytes of the fullest stage. */
  #bytes(memory: BatchMemory, shards: ShardTable, index: number, choice: Choice, k: number): number {
    let most = 0;
    for (let at = 0; at < memory.stages.length; at += 1) {
      const stage = memory.stages[at] as BatchMemory["stages"][number];
      const kind = k === 0 ? 0 : k >= stage.stage.layers ? 2 : 1;
      most = Math.max(most, (shards.bytes(index, choice.index, choice.overlap, kind)[at] as number) + recomputedBytes(memory, stage, k));
    }
    return most;
  }

  /** From one recomputed layer on, every further one needs no more memory; the first needs room for what it makes again. */
  #fitting(memory: BatchMemory, shards: ShardTable, index: number, choice: Choice, ks: readonly number[]): Fitting {
    const fits = (at: number): boolean => this.#bytes(memory, shards, index, choice, ks[at] as number) <= this.#limit;
    const hasNone = ks[0] === 0;
    const none = hasNone && fits(0);
    const first = hasNone ? 1 : 0;
    const last = ks.length - 1;
    // The ends first: in most families all fit or none.
    if (first <= last && fits(first)) return { none, from: first, count: ks.length - first + (none ? 1 : 0) };
    if (first > last || !fits(last)) return none ? { none, from: Infinity, count: 1 } : NO_FIT;
    let low = first;
    let high = last;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (fits(middle)) high = middle;
      else low = middle + 1;
    }
    return { none, from: low, count: ks.length - low + (none ? 1 : 0) };
  }

  /** The least memory of the family with one number of chunks, and how many recomputed layers it takes. */
  leastBytes(batch: Batch, index: number): number {
    const { recomputed } = batch.space;
    let least = Infinity;
    for (const choice of this.#leanest()) for (const at of batch.chunks.keys()) {
      const one = this.#memory(batch, at);
      least = Math.min(least, this.#bytes(one, batch.shards, index, choice, recomputed[0] as number), this.#bytes(one, batch.shards, index, choice, recomputed.at(-1) as number));
    }
    return least;
  }

  /** No overlap needs the least memory, where it is a choice. */
  #leanest(): readonly Choice[] {
    const [first] = this.#choices;
    return first?.index === 0 ? [first] : this.#choices;
  }

  /** No plan of the family is faster, whatever its overlap, chunks and recomputed layers. */
  #bound(batch: Batch, shard: ShardTime, waits: readonly (LayerWaits | null)[], every: boolean, shape: Parameters<typeof leastSecondsOf>[1]): number {
    let bound = Infinity;
    const spared = Math.max(0, updateSeconds(shard, HIDING) - updateSeconds(shard, NOT_HIDING));
    for (const [side, wait] of waits.entries()) {
      if (wait === null) continue;
      const least = leastWaits(wait);
      for (const overlap of [NOT_HIDING, HIDING]) {
        const seconds = leastSecondsOf(stepCosts(batch.slices[side] as SliceTime, shard, least, { ...HIDING, backwardOverlap: overlap.backwardOverlap }, every), shape, batch.chunks);
        bound = Math.min(bound, seconds - spared);
      }
    }
    return bound;
  }

  /** What the sharding alone takes at least, whatever the batch. */
  #shardsAlone(shards: ShardTable, index: number): number {
    let least = Infinity;
    for (const choice of this.#leanest()) {
      const none = shards.bytes(index, choice.index, choice.overlap, 0);
      const all = shards.bytes(index, choice.index, choice.overlap, 2);
      least = Math.min(least, none.reduce((most, bytes, at) => Math.max(most, Math.min(bytes, all[at] as number)), 0));
    }
    return least;
  }

  /** Every plan of the family, whether it fits or not. */
  *all(batch: Batch, index: number): Generator<{ chunks: number; recomputed: number; overlap: OverlapChoice; bytes: number }> {
    for (const [at, chunks] of batch.chunks.entries()) for (const recomputed of batch.space.recomputed) for (const choice of this.#choices) {
      yield { chunks, recomputed, overlap: choice.overlap, bytes: this.#bytes(this.#memory(batch, at), batch.shards, index, choice, recomputed) };
    }
  }

  /**
   * Offers the feasible plans of a family that are not slower than what is of interest.
   * @param interest seconds; asked again after every offer, because it may shrink.
   * @param offer returns whether to go on.
   */
  visit(batch: Batch, index: number, interest: () => number, tally: Tally, offer: (scored: Scored) => boolean): void {
    const { shards, chunks, space } = batch;
    let most = interest();
    const ks = space.recomputed;
    if (this.#shardsAlone(shards, index) > this.#limit) {
      tally.tooLarge += ks.length * chunks.length * this.#choices.length;
      return;
    }
    const sharding = shards.list[index] as Sharding;
    const shard = shards.time(index);
    const every = sharding.gradientSharding > 1;
    const [plain, beside] = batch.slices;
    const waits = [layerWaits(plain, shard), beside === plain ? null : layerWaits(beside, shard)] as const;
    const shape = { microBatches: batch.microBatches, pipelineParallel: space.layout.pipelineParallel, layers: this.#model.job.model.layers, boundarySeconds: batch.boundarySeconds };
    if (this.#bound(batch, shard, waits, every, shape) * ROUNDING > most) {
      tally.pruned += ks.length * chunks.length * this.#choices.length;
      return;
    }
    for (const choice of this.#choices) {
      const side = choice.index === 0 ? 0 : 1;
      const slice = batch.slices[side];
      const wait = waits[side] ?? waits[0];
      const costs = stepCosts(slice, shard, wait, choice.overlap, every);
      if (leastSecondsOf(costs, shape, chunks) * ROUNDING > most) {
        tally.pruned += ks.length * chunks.length;
        continue;
      }
      const rising = costs.recomputed >= costs.kept && costs.recomputedOnce >= costs.keptOnce;
      for (let at = 0; at < chunks.length; at += 1) {
        const step: StepShape = { ...shape, chunks: chunks[at] as number, recompute: false, reduceEveryMicroBatch: every, overlap: choice.overlap };
        if (leastSecondsOf(costs, shape, [step.chunks]) * ROUNDING > most) {
          tally.pruned += ks.length;
          continue;
        }
        const one = this.#memory(batch, at);
        const fitting = this.#fitting(one, shards, index, choice, ks);
        tally.feasible += fitting.count;
        tally.tooLarge += ks.length - fitting.count;
        for (let k = 0; k < ks.length; k += 1) {
          if (!(k >= fitting.from || (k === 0 && fitting.none))) continue;
          const recomputed = ks[k] as number;
          if (secondsOf(costs, recomputed, step) * ROUNDING > most) {
            if (rising) break;
            continue;
          }
          const exact = totalSeconds(stepBreakdown(slice, shard, { ...step, recomputeLayers: recomputed }, wait));
          if (exact > most) continue;
          const plan = planOf(space.layout, batch.microBatchSize, batch.microBatches, sharding, { chunks: step.chunks, recomputed, overlap: choice.overlap }, step.layers);
          if (!offer({ plan, seconds: exact, bytes: this.#bytes(one, shards, index, choice, recomputed) })) return;
          most = interest();
        }
      }
    }
  }
}
