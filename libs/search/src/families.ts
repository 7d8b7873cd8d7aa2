import {
  leastSecondsOf,
  recomputedBytes,
  secondsOf,
  sharesBeside,
  stageHostBytes,
  stepBreakdown,
  totalSeconds,
  type BatchMemory,
  type CostModel,
  type SliceTime,
  type StepShape,
} from "@internevo/cost-model";
import { countRecomputed, GATE_UP, planOf, type GateUp, type Sharding, type Variant } from "@internevo/plan";
import { openFamily, PLAIN, ROUNDING, type Batch, type Choice, type Family } from "./family.ts";
import type { ShardTable } from "./shard-table.ts";
import type { Scored } from "./top.ts";
import type { Watch } from "./watch.ts";

/** Which of a list of numbers of recomputed layers fit: the first (none), and all from one on. */
interface Fitting {
  readonly none: boolean;
  /** Index of the first number above 0 from which on all fit. */
  readonly from: number;
  readonly count: number;
}

/** Of a batch's memory, in time and in bytes, beside its chunks. */
const WEIGHT_OF_A_STAGE = 16;
/** A hundred megabytes or so. What is forgotten is worked out again where it is asked for. */
const MOST_KEPT = 8_000_000;

/**
 * A number of chunks of a family, what fits of its plans without overlap, and the fewest recomputed layers
 * among these.
 */
interface Promising {
  /** Chunks. */
  readonly count: number;
  readonly memory: BatchMemory;
  readonly plain: Fitting;
  readonly layers: number;
}

const NO_FIT: Fitting = { none: false, from: Infinity, count: 0 };

/** What a look at the plans of one family found out; the numbers are numbers of plans. */
export interface Tally {
  feasible: number;
  tooLarge: number;
  pruned: number;
}

/** Numbers of chunks of plans whose layers do the same with gate and up. */
type MemoriesBy = Readonly<Record<GateUp, (BatchMemory | undefined)[]>>;

/**
 * Looks at the plans that share layout, batch and sharding, and differ in chunks, recomputed layers and
 * overlap.
 */
export class FamilySearch {
  readonly #model: CostModel;
  readonly #limit: number;
  readonly #hostLimit: number;
  readonly #choices: readonly Choice[];
  /** Of the batch whose families were opened last. */
  #slices: { readonly batch: Batch; readonly times: readonly [SliceTime, SliceTime] } | undefined;
  readonly #memories = new Map<Batch, MemoriesBy>();
  /** Weight of all memories that are kept. */
  #kept = 0;
  readonly #watch: Watch;

  /** @param watch told of what is looked at beside batches and families */
  constructor(model: CostModel, choices: readonly Choice[], watch: Watch) {
    this.#watch = watch;
    this.#model = model;
    this.#limit = model.job.cluster.memoryPerGpuBytes;
    this.#hostLimit = model.hostLimitBytes;
    this.#choices = choices;
  }

  /** Of the batch with one of its numbers of chunks. */
  #memory(batch: Batch, at: number, gateUp: GateUp): BatchMemory {
    const known = this.#memories.get(batch)?.[gateUp][at];
    if (known) return known;
    const made = this.#model.batchMemory(
      { ...batch.space.layout, pipelineChunks: batch.chunks[at] as number },
      batch.microBatchSize,
      batch.microBatches,
      gateUp,
    );
    const weight = made.stages.reduce(
      (sum, { stage }) => sum + WEIGHT_OF_A_STAGE + stage.chunkLayers.length,
      0,
    );
    this.#watch.look(weight);
    this.#kept += weight;
    if (this.#kept > MOST_KEPT) {
      this.#memories.clear();
      this.#kept = weight;
    }
    let memories = this.#memories.get(batch);
    if (!memories) this.#memories.set(batch, (memories = { kept: [], again: [], host: [] }));
    memories[gateUp][at] = made;
    return made;
  }

  /** Bytes of the fullest stage. */
  #bytes(
    memory: BatchMemory,
    shards: ShardTable,
    index: number,
    choice: Choice,
    gateUp: GateUp,
    k: number,
  ): number {
    let most = 0;
    const beside = choice.overlap.backwardOverlap === "none" ? 0 : memory.backwardOverlapBytes;
    for (let at = 0; at < memory.stages.length; at += 1) {
      const stage = memory.stages[at] as BatchMemory["stages"][number];
      const some = k >= stage.stage.layers ? 2 : 1;
      const kind = k === 0 ? 0 : some;
      most = Math.max(
        most,
        (shards.bytes(this.#model, index, choice.index, choice.overlap, kind, gateUp)[at] as number) +
          recomputedBytes(memory, stage, k) +
          beside,
      );
    }
    return most;
  }

  /** Whether the ranks of every stage have what they keep in their host's memory. */
  #fitsHost(memory: BatchMemory, k: number): boolean {
    return (
      memory.layerHostBytes === 0 ||
      memory.stages.every((stage) => stageHostBytes(memory, stage, k) <= this.#hostLimit)
    );
  }

  /**
   * From one recomputed layer on, every further one needs no more memory; the first needs room for what it
   * makes again.
   */
  #fitting(
    memory: BatchMemory,
    shards: ShardTable,
    index: number,
    choice: Choice,
    gateUp: GateUp,
    ks: readonly number[],
  ): Fitting {
    // The more layers are recomputed, the less is on the host.
    const fits = (at: number): boolean =>
      this.#bytes(memory, shards, index, choice, gateUp, ks[at] as number) <= this.#limit &&
      this.#fitsHost(memory, ks[at] as number);
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

  /**
   * The numbers of chunks with which a family may have plans that fit and are of interest; the plans of the
   * others are counted.
   */
  #promising({ batch, index, boundOf }: Family, gateUp: GateUp, most: number, tally: Tally): Promising[] {
    const { chunks, shards } = batch;
    const recomputed = batch.space.recomputed[gateUp];
    const plans = recomputed.length * this.#choices.length;
    const promising: Promising[] = [];
    this.#watch.look(chunks.length);
    if (chunks.length > 1 && boundOf(gateUp, chunks[0] as number, chunks.at(-1) as number, 0) > most) {
      tally.pruned += plans * chunks.length;
      return promising;
    }
    for (const [at, count] of chunks.entries()) {
      if (boundOf(gateUp, count, count, 0) > most) {
        tally.pruned += plans;
        continue;
      }
      const memory = this.#memory(batch, at, gateUp);
      const plain = this.#fitting(memory, shards, index, PLAIN, gateUp, recomputed);
      const layers = recomputed[plain.none ? 0 : plain.from] ?? Infinity;
      if (layers === Infinity) tally.tooLarge += plans;
      else if (layers > 0 && boundOf(gateUp, count, count, layers) > most) tally.pruned += plans;
      else promising.push({ count, memory, plain, layers });
    }
    return promising;
  }

  /** Whether some plan of the family fits. */
  fitsAtAll(batch: Batch, index: number): boolean {
    return this.leastBytes(batch, index, this.#limit) <= this.#limit;
  }

  /**
   * The least memory of the family: that of as few or as many recomputed layers as it may have.
   * @param enough no less than this is looked for
   */
  leastBytes(batch: Batch, index: number, enough = 0): number {
    let least = Infinity;
    for (const choice of this.#leanest())
      for (const gateUp of GATE_UP) {
        const recomputed = batch.space.recomputed[gateUp];
        for (const k of new Set([...recomputed.slice(0, 1), ...recomputed.slice(-1)])) {
          this.#watch.look(batch.chunks.length);
          for (const at of batch.chunks.keys()) {
            const one = this.#memory(batch, at, gateUp);
            if (!this.#fitsHost(one, k)) continue;
            least = Math.min(least, this.#bytes(one, batch.shards, index, choice, gateUp, k));
            if (least <= enough) return least;
          }
        }
      }
    return least;
  }

  /** No overlap needs the least memory, where it is a choice. */
  #leanest(): readonly Choice[] {
    const [first] = this.#choices;
    return first?.index === 0 ? [first] : this.#choices;
  }

  /** How many plans a family of the batch has. */
  size(batch: Batch): number {
    return countRecomputed(batch.space.recomputed) * batch.chunks.length * this.#choices.length;
  }

  /**
   * The family of a batch with one of its shardings; or what its plans count as, where the sharding alone takes
   * more than a GPU has, or none of them is of interest.
   * @param interest seconds; slower plans are of none
   */
  open(batch: Batch, index: number, interest = Infinity): Family | "tooLarge" | "pruned" {
    const { shards } = batch;
    if (this.#shardsAlone(shards, index) > this.#limit) return "tooLarge";
    if (this.#slices?.batch !== batch) this.#slices = { batch, times: batch.slicesOf(batch.microBatchSize) };
    return (
      openFamily(batch, index, shards.time(this.#model, index), this.#slices.times, interest) ?? "pruned"
    );
  }

  /** What the sharding alone takes at least, whatever the batch. */
  #shardsAlone(shards: ShardTable, index: number): number {
    let least = Infinity;
    for (const choice of this.#leanest()) {
      // To make gate and up again, or to keep them on the host, takes no less.
      const none = shards.bytes(this.#model, index, choice.index, choice.overlap, 0, "kept");
      const all = shards.bytes(this.#model, index, choice.index, choice.overlap, 2, "kept");
      least = Math.min(
        least,
        none.reduce((most, bytes, at) => Math.max(most, Math.min(bytes, all[at] as number)), 0),
      );
    }
    return least;
  }

  /** Every plan of the family, whether it fits or not. */
  *all(batch: Batch, index: number): Generator<Variant & { readonly bytes: number }> {
    for (const [at, chunks] of batch.chunks.entries())
      for (const gateUp of GATE_UP)
        for (const recomputed of batch.space.recomputed[gateUp])
          for (const choice of this.#choices) {
            const memory = this.#memory(batch, at, gateUp);
            this.#watch.look(1);
            if (!this.#fitsHost(memory, recomputed)) continue;
            const bytes = this.#bytes(memory, batch.shards, index, choice, gateUp, recomputed);
            yield { chunks, recomputed, gateUp, overlap: choice.overlap, bytes };
          }
  }

  /** The most promising choice first: what it offers spares looking at most of the others. */
  #ordered(
    { batch: { space, size }, sides }: Family,
    gateUp: GateUp,
    fewestChunks: number,
    mostChunks: number,
    fewestLayers: number,
  ) {
    return this.#choices
      .map((choice) => {
        const side = sides[sharesBeside(space.layout, choice.overlap) ? 1 : 0];
        const costs = side.costsOf(side.waits, choice.overlap, gateUp);
        const least = leastSecondsOf(costs, size, fewestChunks, mostChunks, fewestLayers) * ROUNDING;
        return { choice, side, costs, least };
      })
      .sort((a, b) => a.least - b.least);
  }

  /**
   * Offers the feasible plans of a family that are not slower than what is of interest.
   * @param interest seconds; asked again after every offer, because it may shrink.
   * @param offer returns whether to go on.
   */
  visit(family: Family, interest: () => number, tally: Tally, offer: (scored: Scored) => boolean): void {
    if (family.bound > interest()) {
      tally.pruned += this.size(family.batch);
      return;
    }
    for (const gateUp of GATE_UP) if (!this.#visit(family, gateUp, interest, tally, offer)) return;
  }

  /** The same of plans whose layers do the same with gate and up. @returns whether to go on. */
  #visit(
    family: Family,
    gateUp: GateUp,
    interest: () => number,
    tally: Tally,
    offer: (scored: Scored) => boolean,
  ): boolean {
    const { batch, index, shard } = family;
    const { shards, space, size } = batch;
    const ks = space.recomputed[gateUp];
    let most = interest();
    if (ks.length === 0) return true;
    const promising = this.#promising(family, gateUp, most, tally);
    if (promising.length === 0) return true;
    const [first, last] = [promising[0] as Promising, promising.at(-1) as Promising];
    const fewestLayers = promising.reduce((least, { layers }) => Math.min(least, layers), Infinity);
    const sharding = shards.list[index] as Sharding;
    const ordered = this.#ordered(family, gateUp, first.count, last.count, fewestLayers);
    for (const {
      choice,
      side: { slice, waits },
      costs,
      least,
    } of ordered) {
      if (least > most) {
        tally.pruned += ks.length * promising.length;
        continue;
      }
      const rising = costs.recomputed >= costs.kept && costs.recomputedOnce >= costs.keptOnce;
      for (const { count, memory: one, plain, layers } of promising) {
        if (
          (promising.length === 1 ? least : leastSecondsOf(costs, size, count, count, layers) * ROUNDING) >
          most
        ) {
          tally.pruned += ks.length;
          continue;
        }
        const fitting =
          choice.index === PLAIN.index ? plain : this.#fitting(one, shards, index, choice, gateUp, ks);
        tally.feasible += fitting.count;
        tally.tooLarge += ks.length - fitting.count;
        this.#watch.look(1);
        for (let k = fitting.none ? 0 : fitting.from; k < ks.length; k = Math.max(k + 1, fitting.from)) {
          this.#watch.look(1);
          const recomputed = ks[k] as number;
          if (secondsOf(costs, recomputed, size, count) * ROUNDING > most) {
            if (rising) break;
            continue;
          }
          const step: StepShape = {
            ...size,
            chunks: count,
            recompute: false,
            recomputeLayers: recomputed,
            gateUp,
            reduceEveryMicroBatch: sharding.gradientSharding > 1,
            overlap: choice.overlap,
          };
          const exact = totalSeconds(stepBreakdown(slice, shard, step, waits));
          if (exact > most) continue;
          const plan = planOf(
            space.layout,
            batch.microBatchSize,
            batch.microBatches,
            sharding,
            { chunks: count, recomputed, gateUp, overlap: choice.overlap },
            size.layers,
          );
          const bytes = this.#bytes(one, shards, index, choice, gateUp, recomputed);
          if (!offer({ plan, seconds: exact, bytes })) return false;
          most = interest();
        }
      }
    }
    return true;
  }
}
