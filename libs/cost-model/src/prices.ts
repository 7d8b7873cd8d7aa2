import {
  contextOf,
  countedDocuments,
  headRanks,
  PRECISION_BYTES,
  splitKey,
  type Collective,
  type Profile,
  type SequenceSplit,
} from "@internevo/domain";
import { nodesTouched, type Layout, type Sharding } from "@internevo/plan";
import { CollectiveTimes, type GroupPlace } from "./collectives.ts";
import { SliceTimes, tensorMessageBytes, tensorMoves, type SliceTime } from "./layer-time.ts";
import { ringElements, type LayerSlice } from "./layer.ts";
import { ModuleTimes } from "./modules.ts";
import { OverlapTimes } from "./overlap-times.ts";
import { packedAttention, type PackedAttention } from "./packed-attention.ts";
import { ringPlace } from "./ring-time.ts";
import { shardTime, type ShardTime } from "./shard-time.ts";
import { SliceCorrections } from "./slice-corrections.ts";
import { SliceTable } from "./slice-table.ts";
import { besideSeconds, correctedProducts, type TensorBeside } from "./tensor-time.ts";
import type { JobShape } from "./stage.ts";
import { Recorder, type Kept } from "./warnings.ts";

/**
 * With what ranks wait for the slowest of them when they meet in every micro-batch: it has the longest documents
 * in every layer of it, so issuing collectives ahead hides nothing.
 */
function withMeetings(time: SliceTime, { share, meetingShare }: PackedAttention): SliceTime {
  const attention = time.forwardAttentionSeconds + time.backwardAttentionSeconds;
  const wait =
    share > 0 ? ((meetingShare / share - 1) * attention) / (time.forwardSeconds + time.backwardSeconds) : 0;
  return { ...time, unitWaits: time.unitWaits + wait, layerWaits: time.layerWaits + wait };
}

/** Times of slices that differ in their micro-batch only. */
export class SlicePrices {
  readonly #make: (microBatchSize: number, beside: boolean) => Kept<SliceTime>;
  readonly #table: SliceTable;
  /** Places in the table. */
  readonly #plain = new Map<number, number>();
  readonly #beside = new Map<number, number>();

  constructor(make: (microBatchSize: number, beside: boolean) => Kept<SliceTime>, table: SliceTable) {
    this.#make = make;
    this.#table = table;
  }

  /** @param beside whether a ring or tensor ranks communicate on a lane of their own while the others compute */
  of(microBatchSize: number, beside: boolean): Kept<SliceTime> {
    const known = this.known(microBatchSize, beside);
    if (known) return known;
    const made = this.#make(microBatchSize, beside);
    (beside ? this.#beside : this.#plain).set(microBatchSize, this.#table.add(made));
    return made;
  }

  /** What {@link of} has returned before. */
  known(microBatchSize: number, beside: boolean): Kept<SliceTime> | undefined {
    const place = (beside ? this.#beside : this.#plain).get(microBatchSize);
    return place === undefined ? undefined : this.#table.at(place);
  }
}

/**
 * Times of the slices (b, s_sp, s_tp, ring) and shardings of a model at a sequence length on a profile. They
 * depend neither on the batch nor on how many nodes there are: jobs that differ in these share them, each
 * with what it was warned of. With packed documents a slice depends on the batch and on s_dp too: the slowest
 * of the ranks that share the batch is waited for.
 */
export class Prices {
  readonly #job: JobShape;
  readonly #profile: Profile;
  readonly #recorder = new Recorder(() => undefined);
  readonly #collectives: CollectiveTimes;
  readonly #modules: ModuleTimes;
  readonly #overlaps: OverlapTimes;
  readonly #sliceTimes: SliceTimes;
  readonly #packed: ReturnType<typeof packedAttention>;
  readonly #corrections: SliceCorrections;
  readonly #slices = new Map<string, SlicePrices>();
  readonly #table = new SliceTable();
  readonly #shards = new Map<string, Kept<ShardTime>>();
  readonly #messages = new Map<number, Map<number, Kept<number>>>();
  #former: Prices | undefined;
  /** What the profile alone is warned of. */
  readonly ofProfile: Kept<null>;

  /**
   * @param former prices of the same kind of job on the same profile: what is asked for again is taken over,
   * the rest forgotten with them.
   * @param timesEstimates how many times longer things take that nothing was measured for.
   */
  constructor(job: JobShape, profile: Profile, former?: Prices, timesEstimates = 1) {
    if (former) former.#former = undefined;
    this.#former = former;
    this.#job = job;
    this.#profile = profile;
    this.#packed = packedAttention(job);
    const { warn } = this.#recorder;
    const made = this.#recorder.keep(() => ({
      modules: new ModuleTimes(profile, warn, timesEstimates),
      collectives: new CollectiveTimes(profile, job.cluster.gpusPerNode, warn, timesEstimates),
      overlaps: new OverlapTimes(profile, warn),
      corrections: new SliceCorrections(
        job,
        profile.slices ?? [],
        (slice) => this.#composed(slice, false),
        this.#recorder,
      ),
    }));
    this.#modules = made.value.modules;
    this.#collectives = made.value.collectives;
    this.#overlaps = made.value.overlaps;
    this.#corrections = made.value.corrections;
    this.#sliceTimes = new SliceTimes(job, this.#modules, this.#collectives, this.#recorder, profile.device);
    this.ofProfile = { value: null, warned: made.warned };
  }

  /** How many times it holds. */
  get size(): number {
    return this.#table.size + this.#shards.size;
  }

  /** What {@link slices} and {@link shard} have returned before, by their keys. */
  knownSlices(key: string): SlicePrices | undefined {
    return this.#slices.get(key);
  }

  knownShard(key: string): Kept<ShardTime> | undefined {
    return this.#shards.get(key);
  }

  #place(size: number, stride: number): GroupPlace {
    return { size, nodes: nodesTouched({ size, stride }, this.#job.cluster.gpusPerNode) };
  }

  /** The slices of ranks that share a sequence in one way; packed documents depend on the replicas too. */
  slices({ dataParallel, ...split }: SequenceSplit & { readonly dataParallel: number }): SlicePrices {
    const key = `${splitKey(split)}${this.#packed ? ` ${dataParallel}` : ""}`;
    let prices = this.#slices.get(key);
    if (!prices) {
      const shared = { sequenceLengthTokens: this.#job.sequenceLengthTokens, ...split };
      const ring = contextOf(split);
      prices = new SlicePrices((microBatchSize, beside) => {
        const known = this.#former?.knownSlices(key)?.known(microBatchSize, beside);
        if (known) return known;
        const slice: LayerSlice = { microBatchSize, ...shared };
        const packed = this.#packed?.({ ring, microBatchSize, dataParallel });
        return this.#recorder.keep(() => {
          const plain = this.#corrections.apply(slice, this.#composed(slice, beside && ring > 1, packed));
          const time = beside && this.hidesTensor(slice) ? this.#withoutHidden(slice, plain) : plain;
          return packed ? withMeetings(time, packed) : time;
        });
      }, this.#table);
      this.#slices.set(key, prices);
    }
    return prices;
  }

  /**
   * What tensor ranks move beside products in the backward pass.
   * @param corrected the time of the slice, corrected by slices that a trainer ran
   */
  #tensorBeside(slice: LayerSlice, corrected: SliceTime): TensorBeside {
    const place = this.#place(slice.tensorParallel, 1);
    const composed = this.#composed(slice, false);
    const { gather, scatter } = tensorMoves(this.#job, slice, place, this.#collectives);
    const { backwardCommunicationSeconds: alone } = composed;
    const ratio = alone > 0 ? corrected.backwardCommunicationSeconds / alone : 1;
    const slowdown = (op: "all-gather" | "reduce-scatter"): number =>
      this.#overlaps.slowdown(op, "backward", place, [tensorMessageBytes(this.#job, slice)]).product;
    return {
      products: correctedProducts(
        this.#sliceTimes.backwardProducts(slice),
        composed.backwardModules,
        corrected.backwardModules,
      ),
      gatherSeconds: ratio * gather,
      scatterSeconds: ratio * scatter,
      slowdowns: { gather: slowdown("all-gather"), scatter: slowdown("reduce-scatter") },
    };
  }

  /** A slice of tensor ranks whose backward pass overlaps. */
  #withoutHidden(slice: LayerSlice, time: SliceTime): SliceTime {
    const { alone, waited } = besideSeconds(this.#tensorBeside(slice, time));
    return {
      ...time,
      backwardCommunicationSeconds: Math.max(0, time.backwardCommunicationSeconds - alone) + waited,
    };
  }

  /** Whether tensor ranks of a slice communicate beside its backward pass, where a plan overlaps that. */
  hidesTensor({ tensorParallel }: Pick<LayerSlice, "tensorParallel">): boolean {
    return tensorParallel > 1 && this.#profile.executor.tensorActivations !== "waited-for";
  }

  /** What tensor ranks move beside products in the backward pass of a slice, where it overlaps. */
  tensorBeside(slice: LayerSlice): Kept<TensorBeside> {
    return this.#recorder.keep(() =>
      this.#tensorBeside(slice, this.#corrections.apply(slice, this.#composed(slice, false))),
    );
  }

  /** A slice by its modules and collectives. */
  #composed(slice: LayerSlice, beside: boolean, packed?: PackedAttention): SliceTime {
    const { gpusPerNode } = this.#job.cluster;
    const ring = contextOf(slice);
    const stride = headRanks(slice);
    const places = {
      heads: this.#place(stride, 1),
      ring: ringPlace(stride, nodesTouched({ size: ring, stride }, gpusPerNode), gpusPerNode),
    };
    const hop = { size: 2, nodes: places.ring.nodes > 1 ? 2 : 1 };
    const message = [
      ringElements(this.#job.model, slice) * PRECISION_BYTES[this.#job.precision].activationBytes,
    ];
    const slowdown = beside
      ? {
          forward: this.#overlaps.slowdown("point-to-point", "forward", hop, message).attention,
          backward: this.#overlaps.slowdown("point-to-point", "backward", hop, message).attention,
        }
      : null;
    return this.#sliceTimes.of(slice, places, slowdown, packed);
  }

  /**
   * Depends on the layout only through s_pp, s_tp and all ranks together: the groups are laid over the R
   * ranks of a slice.
   */
  shard(
    layout: Layout,
    sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">,
  ): Kept<ShardTime> {
    const { pipelineParallel, dataParallel, tensorParallel, sequenceParallel } = layout;
    const key = `${pipelineParallel * dataParallel * sequenceParallel} ${pipelineParallel} ${tensorParallel} ${sharding.parameterSharding} ${sharding.optimizerStateSharding}`;
    let kept = this.#shards.get(key);
    if (!kept) {
      kept =
        this.#former?.knownShard(key) ??
        this.#recorder.keep(() =>
          shardTime(
            this.#job,
            layout,
            sharding,
            this.#modules,
            this.#collectives,
            this.#overlaps,
            this.#profile,
          ),
        );
      this.#shards.set(key, kept);
    }
    return kept;
  }

  /** One collective over ranks that are `stride` apart. */
  collective(op: Collective, bytes: number, size: number, stride: number): Kept<number> {
    return this.#recorder.keep(() => this.#collectives.seconds(op, bytes, this.#place(size, stride)));
  }

  /** One message of so many bytes to the rank that is `stride` further. */
  message(bytes: number, stride: number): Kept<number> {
    let ofStride = this.#messages.get(stride);
    if (!ofStride) this.#messages.set(stride, (ofStride = new Map<number, Kept<number>>()));
    let kept = ofStride.get(bytes);
    if (!kept)
      ofStride.set(
        bytes,
        (kept = this.#recorder.keep(() =>
          this.#collectives.seconds("point-to-point", bytes, this.#place(2, stride)),
        )),
      );
    return kept;
  }
}

/**
 * Of one profile so many models and lengths are kept, and of each twice so many times, those that were used
 * last and those before them: some tens of megabytes.
 */
const MOST_PRICES = 8;
const MOST_TIMES = 25_000;
const ofProfiles = new WeakMap<Profile, Map<string, Prices>>();

/**
 * The prices of a job on a profile, those of former jobs where there were any like it. A profile is not
 * changed after it was used.
 */
export function pricesOf(job: JobShape, profile: Profile, timesEstimates = 1): Prices {
  let known = ofProfiles.get(profile);
  if (!known) ofProfiles.set(profile, (known = new Map<string, Prices>()));
  const { model, sequenceLengthTokens, precision, cluster } = job;
  const documents = countedDocuments(job);
  const packed = documents && [documents, job.globalBatchTokens];
  const key = JSON.stringify([
    model,
    sequenceLengthTokens,
    precision,
    cluster.gpusPerNode,
    timesEstimates,
    packed,
  ]);
  let prices = known.get(key);
  if (!prices || prices.size > MOST_TIMES) prices = new Prices(job, profile, prices, timesEstimates);
  // What was used now is last, and what was used longest ago is forgotten first.
  known.delete(key);
  known.set(key, prices);
  for (const oldest of known.keys()) {
    if (known.size <= MOST_PRICES) break;
    known.delete(oldest);
  }
  return prices;
}
