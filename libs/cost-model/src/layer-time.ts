import {
  commonProgram,
  contextOf,
  dimensionSize,
  headRanks,
  PRECISION_BYTES,
  splitOf,
  usesGpus,
  type ByUnit,
  type Model,
  type ModuleShape,
  type Precision,
  type Profile,
} from "@internevo/domain";
import type { CollectiveTimes, GroupPlace } from "./collectives.ts";
import {
  attentionTurn,
  backwardOf,
  layerModules,
  ringElements,
  sliceOuterModules,
  sliceRows,
  layerTraffic,
  type CountedModule,
  type LayerTraffic,
  type LayerModule,
  type LayerSlice,
} from "./layer.ts";
import { hostBytes, layerRows, layerValues } from "./layer-memory.ts";
import { sumOfUnits, UNIT_COUNT, withAttention } from "./layer-units.ts";
import { LOSS_STATISTICS_BYTES, lossChunkRows } from "./loss-chunk.ts";
import { sizeOf, type ModuleTimes } from "./modules.ts";
import type { JobShape } from "./stage.ts";
import { ringSeconds, type RingPlace, type RingWork } from "./ring-time.ts";
import { ONE_DOCUMENT, type PackedAttention } from "./packed-attention.ts";
import type { Kept, Recorder } from "./warnings.ts";
import { rooflineSeconds, type DevicePeak } from "./work.ts";

/**
 * Seconds of one layer and of what surrounds the layers, for one micro-batch on one rank, without sharding.
 */
export interface SliceTime {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** The same by the units whose parameters each part needs. */
  readonly forwardModules: ByUnit;
  readonly backwardModules: ByUnit;
  /** Attention among them: in the forward pass part of the first, in the backward pass of the second. */
  readonly forwardAttentionSeconds: number;
  readonly backwardAttentionSeconds: number;
  /** What recomputation repeats of the forward pass. */
  readonly recomputeSeconds: number;
  /** What a layer that is not recomputed repeats where gate and up are made again. */
  readonly gateUpSeconds: number;
  /**
   * One copy of what a layer keeps in the host's memory, there and back, where nothing hides it; 0 where the
   * profile does not say how fast they are: then no plan has them.
   */
  readonly toHostSeconds: number;
  readonly toDeviceSeconds: number;
  /** Exposed collectives of sequence or tensor parallelism, and what a ring of the sequence is waited for. */
  readonly forwardCommunicationSeconds: number;
  readonly backwardCommunicationSeconds: number;
  readonly recomputeCommunicationSeconds: number;
  readonly gateUpCommunicationSeconds: number;
  /** Collectives of tensor parallelism around embedding and head; nothing hides them. */
  readonly embeddingCommunicationSeconds: number;
  readonly headCommunicationSeconds: number;
  readonly embeddingSeconds: number;
  readonly headSeconds: number;
  /**
   * What ranks that otherwise meet once a step wait for one another when they meet before every unit or every
   * layer, as a part of the passes; 0 where they meet in any case.
   */
  readonly unitWaits: number;
  readonly layerWaits: number;
}

/** The kernels of one micro-batch at the peak of the device. */
export interface SliceRoofline {
  readonly layerSeconds: number;
  readonly recomputeSeconds: number;
  readonly gateUpSeconds: number;
  readonly embeddingSeconds: number;
  readonly headSeconds: number;
}

/**
 * What the modules of a slice of a job take at the peak of a device.
 * @param keysShare keys that a query sees, of those of one document
 */
export function sliceRoofline(
  { model, precision }: Pick<JobShape, "model" | "precision">,
  slice: LayerSlice,
  device: DevicePeak,
  keysShare = 1,
): SliceRoofline {
  const sum = (list: readonly CountedModule[]): number =>
    list.reduce(
      (total, { shape, count }) =>
        total + (shape.module === "attention" ? keysShare : 1) * count * rooflineSeconds(shape, device),
      0,
    );
  const { forward, backward, recompute, gateUpAgain } = layerModules(model, slice, precision);
  const { embeddings, heads } = outerLists(model, slice, precision);
  return {
    layerSeconds: sum(forward) + sum(backward),
    recomputeSeconds: sum(recompute),
    gateUpSeconds: sum(gateUpAgain),
    embeddingSeconds: sum(embeddings),
    headSeconds: sum(heads),
  };
}

/** The modules before and behind the layers, of both passes. */
function outerLists(
  model: Model,
  slice: LayerSlice,
  precision: Precision,
): { embeddings: LayerModule[]; heads: LayerModule[] } {
  const { embedding, finalNorm, headLoss } = sliceOuterModules(model, slice, precision);
  const once = (shape: ModuleShape): LayerModule => ({ shape, count: 1, units: [] });
  return {
    embeddings: [embedding, backwardOf(embedding)].map(once),
    heads: [finalNorm, backwardOf(finalNorm), headLoss].map(once),
  };
}

/** Where the ranks of a sequence sit: those that share heads, and those that pass keys and values around. */
export interface SlicePlaces {
  readonly heads: GroupPlace;
  readonly ring: RingPlace;
}

/** Bytes of one sequence of the residual stream, which tensor ranks gather and scatter in one message. */
export const tensorMessageBytes = (
  { model, precision }: JobShape,
  { sequenceLengthTokens }: LayerSlice,
): number => sequenceLengthTokens * model.hiddenSize * PRECISION_BYTES[precision].activationBytes;

/** One all-gather and one reduce-scatter of a micro-batch's residual stream over tensor ranks, in seconds. */
export function tensorMoves(
  job: JobShape,
  slice: LayerSlice,
  place: GroupPlace,
  times: CollectiveTimes,
): { readonly gather: number; readonly scatter: number } {
  const bytes = tensorMessageBytes(job, slice);
  const seconds = (op: "all-gather" | "reduce-scatter"): number =>
    slice.microBatchSize * times.seconds(op, bytes, place);
  return { gather: seconds("all-gather"), scatter: seconds("reduce-scatter") };
}

/**
 * Collectives around one micro-batch: counts and sizes as the executor issues them (native/MEMORY.md, "What
 * is communicated").
 */
function sliceCollectives(job: JobShape, slice: LayerSlice, place: GroupPlace, times: CollectiveTimes) {
  const { model, precision } = job;
  const { microBatchSize: b, sequenceLengthTokens: s, tensorParallel: tp } = slice;
  const heads = headRanks(slice);
  const beta = PRECISION_BYTES[precision].activationBytes;
  const outside = { embedding: 0, head: 0 };
  if (heads === 1) return { forward: 0, recompute: 0, gateUpAgain: 0, backward: 0, ...outside };
  const program = commonProgram(model);
  if (tp === 1) {
    const rows = (b * s) / contextOf(slice);
    const { forward, recompute, gateUpAgain, backward } = layerTraffic(program, "ulysses");
    const exchanged = new Map<string, number>();
    for (const dimension of forward.exchanged.keys()) {
      const elements = rows * dimensionSize(program, model, dimension, heads);
      exchanged.set(dimension, times.seconds("all-to-all", elements * beta, place));
    }
    const all = (traffic: LayerTraffic): number => {
      let seconds = 0;
      for (const [dimension, messages] of traffic.exchanged)
        seconds += messages * (exchanged.get(dimension) as number);
      return seconds;
    };
    return {
      forward: all(forward),
      recompute: all(recompute),
      gateUpAgain: all(gateUpAgain),
      backward: all(backward),
      ...outside,
    };
  }
  // Megatron with sequence-parallel norms: attention and MLP each gather their input and scatter their
  // output. A sequence is a message of its own, because its tokens on one rank are not next to those of the
  // next sequence.
  const { gather, scatter } = tensorMoves(job, slice, place, times);
  const chunkRows = lossChunkRows(usesGpus(job.cluster));
  const statistics =
    Math.ceil((b * s) / chunkRows) *
    times.seconds("all-gather", LOSS_STATISTICS_BYTES * tp * Math.min(chunkRows, b * s), place);
  const { forward, recompute, gateUpAgain, backward } = layerTraffic(program, "tensorParallel");
  const all = ({ gathers, scatters }: LayerTraffic): number => gathers * gather + scatters * scatter;
  return {
    forward: all(forward),
    recompute: all(recompute),
    gateUpAgain: all(gateUpAgain),
    backward: all(backward),
    embedding: gather + scatter,
    head: gather + scatter + statistics,
  };
}

/** A module of a pass whose time depends on the rows of a rank alone. */
interface RowModule {
  readonly count: number;
  /** Places of the units in whose time it runs, once for each run; none outside the layers. */
  readonly units: readonly number[];
  /** Rows that it has for each row of the rank: tensor ranks gather them. */
  readonly rowsOfRow: number;
  readonly seconds: (rows: number) => number;
  /** A product of a layer with its weights. */
  readonly isProduct: boolean;
}

const secondsOf = ({ seconds, rowsOfRow }: RowModule, rows: number): number => seconds(rows * rowsOfRow);

function sumOf(list: readonly RowModule[], rows: number): number {
  let sum = 0;
  for (const one of list) sum += one.count * secondsOf(one, rows);
  return sum;
}

/** Seconds of a pass of a layer by the unit that is in use, attention apart. */
function unitSeconds(list: readonly RowModule[], rows: number): ByUnit {
  const seconds = new Array<number>(UNIT_COUNT).fill(0);
  for (const one of list) {
    const each = (one.count * secondsOf(one, rows)) / one.units.length;
    for (const unit of one.units) seconds[unit] = (seconds[unit] as number) + each;
  }
  return seconds;
}

/** Computation of a layer, by unit, and around it, on one rank. */
interface Computed {
  readonly forward: ByUnit;
  readonly backward: ByUnit;
  readonly recompute: number;
  readonly gateUpAgain: number;
  readonly embedding: number;
  readonly head: number;
}

type RowModules = Readonly<Record<keyof Computed, readonly RowModule[]>>;

/** Attention over the keys that are seen, and what a ring adds up, in one turn. */
interface Attended {
  readonly forward: number;
  readonly backward: number;
  readonly summed: number;
}

type Attention = Readonly<Record<keyof Attended, (microBatchSize: number) => number>>;

const isAttention = ({ shape }: CountedModule): boolean =>
  shape.module === "attention" || shape.module === "accumulate";

/** Rates of copies to the host and back, where the profile says them. */
type CopyRates = Pick<Profile["device"], "toHostBytesPerSecond" | "toDeviceBytesPerSecond">;

/** What of a layout decides nothing of a layer's values. */
const LAYOUT = { pipelineParallel: 1, dataParallel: 1 } as const;

/**
 * Times of the slices (b, s_sp, s_tp, ring) of a job. All but attention depends only on the rows of a rank,
 * and attention on no more than its own shape: slices share both.
 */
export class SliceTimes {
  readonly #job: JobShape;
  readonly #modules: ModuleTimes;
  readonly #collectives: CollectiveTimes;
  readonly #recorder: Recorder;
  readonly #copies: CopyRates;
  readonly #seesAttentionRows: boolean;
  readonly #rowModules = new Map<number, RowModules>();
  readonly #computed = new Map<number, Map<number, Kept<Computed>>>();
  readonly #attention = new Map<string, Attention>();
  readonly #attended = new Map<Attention, Map<number, Kept<Attended>>>();

  constructor(
    job: JobShape,
    modules: ModuleTimes,
    collectives: CollectiveTimes,
    recorder: Recorder,
    copies: CopyRates = {},
  ) {
    this.#copies = copies;
    this.#job = job;
    this.#seesAttentionRows = commonProgram(job.model).operators.some(
      ({ rows, kind }) => rows === "attention" && kind !== "attention",
    );
    this.#recorder = recorder;
    this.#modules = modules;
    this.#collectives = collectives;
  }

  #compute(slice: LayerSlice): Computed {
    const rows = sliceRows(slice);
    const sharing = this.#sharingOf(slice);
    let ofSharing = this.#computed.get(sharing);
    if (!ofSharing) this.#computed.set(sharing, (ofSharing = new Map<number, Kept<Computed>>()));
    const known = ofSharing.get(rows);
    if (known) return this.#recorder.recall(known);
    const { forward, backward, recompute, gateUpAgain, embedding, head } = this.#rowModulesOf(slice);
    const made = this.#recorder.keep(() => ({
      forward: unitSeconds(forward, rows),
      backward: unitSeconds(backward, rows),
      recompute: sumOf(recompute, rows),
      gateUpAgain: sumOf(gateUpAgain, rows),
      embedding: sumOf(embedding, rows),
      head: sumOf(head, rows),
    }));
    ofSharing.set(rows, made);
    return made.value;
  }

  /** Seconds of a slice's products with weights in the backward pass, by unit; both gradients together. */
  backwardProducts(slice: LayerSlice): ByUnit {
    const { backward } = this.#rowModulesOf(slice);
    return unitSeconds(
      backward.filter(({ isProduct }) => isProduct),
      sliceRows(slice),
    );
  }

  /**
   * A number that is the same for slices whose ranks share rows and widths alike, attention apart: ranks that
   * share heads, tensor ranks or others, where operators beside attention see the rows of attention; else
   * tensor ranks.
   */
  #sharingOf(slice: LayerSlice): number {
    const { tensorParallel } = slice;
    return this.#seesAttentionRows && tensorParallel === 1 ? -headRanks(slice) : tensorParallel;
  }

  /** All but attention; the same for every slice that shares alike. */
  #rowModulesOf(slice: LayerSlice): RowModules {
    const sharing = this.#sharingOf(slice);
    const known = this.#rowModules.get(sharing);
    if (known) return known;
    const { model, precision } = this.#job;
    const ofRows = (list: readonly LayerModule[]): RowModule[] =>
      list
        .filter((one) => !isAttention(one))
        .map(({ shape, count, units }) => ({
          count,
          units,
          rowsOfRow: sizeOf(shape) / sliceRows(slice),
          seconds: this.#modules.along(shape),
          isProduct: shape.module === "linear",
        }));
    const { forward, backward, recompute, gateUpAgain } = layerModules(model, slice, precision);
    const { embeddings, heads } = outerLists(model, slice, precision);
    const made = {
      forward: ofRows(forward),
      backward: ofRows(backward),
      recompute: ofRows(recompute),
      gateUpAgain: ofRows(gateUpAgain),
      embedding: ofRows(embeddings),
      head: ofRows(heads),
    };
    this.#rowModules.set(sharing, made);
    return made;
  }

  #attend(slice: LayerSlice): Attended {
    const attention = this.#attentionOf(slice);
    const { microBatchSize } = slice;
    let ofBatch = this.#attended.get(attention);
    if (!ofBatch) this.#attended.set(attention, (ofBatch = new Map<number, Kept<Attended>>()));
    const known = ofBatch.get(microBatchSize);
    if (known) return this.#recorder.recall(known);
    const made = this.#recorder.keep(() => ({
      forward: attention.forward(microBatchSize),
      backward: attention.backward(microBatchSize),
      summed: attention.summed(microBatchSize),
    }));
    ofBatch.set(microBatchSize, made);
    return made.value;
  }

  /**
   * Attention of one turn, the same for every micro-batch of sequences as long, of as many ranks that share
   * heads and of as long a ring.
   */
  #attentionOf(slice: LayerSlice): Attention {
    const ring = contextOf(slice);
    // Slices that were measured may have sequences of another length than the job's.
    const key = `${slice.sequenceLengthTokens} ${ring} ${headRanks(slice)}`;
    const known = this.#attention.get(key);
    if (known) return known;
    const { attention, share, summed } = attentionTurn(this.#job.model, slice, this.#job.precision);
    const sums = this.#modules.along(summed);
    const elements = ringElements(this.#job.model, { ...slice, microBatchSize: 1 });
    const seen = (shape: ModuleShape): ((microBatchSize: number) => number) => {
      const whole = this.#modules.along(shape);
      return share === 1 ? whole : (microBatchSize) => share * whole(microBatchSize);
    };
    const made: Attention = {
      forward: seen(attention),
      backward: seen(backwardOf(attention)),
      summed: (microBatchSize) => (ring === 1 ? 0 : sums(microBatchSize * elements)),
    };
    this.#attention.set(key, made);
    return made;
  }

  #copySeconds(slice: LayerSlice): Pick<SliceTime, "toHostSeconds" | "toDeviceSeconds"> {
    const { model, precision } = this.#job;
    const { microBatchSize, sequenceLengthTokens } = slice;
    const layout = { ...LAYOUT, ...splitOf(slice) };
    const bytes = hostBytes(
      layerValues(model, precision, layout, "host"),
      layerRows(layout, sequenceLengthTokens, microBatchSize),
    );
    return {
      toHostSeconds: bytes / (this.#copies.toHostBytesPerSecond ?? Infinity),
      toDeviceSeconds: bytes / (this.#copies.toDeviceBytesPerSecond ?? Infinity),
    };
  }

  /**
   * Times of one slice.
   * @param beside slow-downs of computation and communication at a time, where the plan has a thread that
   * passes the ring's blocks
   *   on while the others compute; null where it has none.
   * @param packed what packed documents leave of attention
   */
  of(
    slice: LayerSlice,
    places: SlicePlaces,
    beside: RingWork["beside"],
    packed: PackedAttention = ONE_DOCUMENT,
  ): SliceTime {
    const job = this.#job;
    const computed = this.#compute(slice);
    const turns = contextOf(slice);
    const attended = this.#attend(slice);
    const forwardTurnSeconds = packed.share * attended.forward;
    const backwardTurnSeconds = packed.share * attended.backward;
    const communication = sliceCollectives(job, slice, places.heads, this.#collectives);
    const ring = ringSeconds(
      {
        ranks: turns,
        place: places.ring,
        elements: ringElements(job.model, slice),
        activationBytes: PRECISION_BYTES[job.precision].activationBytes,
        forwardTurnSeconds,
        backwardTurnSeconds,
        ...(packed.firstTurn === undefined ? {} : { firstTurn: packed.firstTurn }),
        beside,
      },
      this.#collectives,
    );
    const forwardAttentionSeconds = turns * forwardTurnSeconds;
    const backwardAttentionSeconds = turns * backwardTurnSeconds;
    const summed = (turns - 1) * attended.summed;
    return {
      forwardSeconds: sumOfUnits(computed.forward) + forwardAttentionSeconds,
      backwardSeconds: sumOfUnits(computed.backward) + backwardAttentionSeconds + summed,
      forwardModules: withAttention(computed.forward, "forward", forwardAttentionSeconds),
      // As one sum they would be rounded in another order.
      backwardModules: withAttention(
        withAttention(computed.backward, "backward", backwardAttentionSeconds),
        "backward",
        summed,
      ),
      forwardAttentionSeconds,
      backwardAttentionSeconds,
      recomputeSeconds: computed.recompute + forwardAttentionSeconds,
      gateUpSeconds: computed.gateUpAgain,
      ...this.#copySeconds(slice),
      forwardCommunicationSeconds: communication.forward + ring.forward,
      backwardCommunicationSeconds: communication.backward + ring.backward,
      recomputeCommunicationSeconds: communication.recompute + ring.forward,
      gateUpCommunicationSeconds: communication.gateUpAgain,
      embeddingCommunicationSeconds: communication.embedding,
      headCommunicationSeconds: communication.head,
      embeddingSeconds: computed.embedding,
      headSeconds: computed.head,
      unitWaits: 0,
      layerWaits: 0,
    };
  }
}

/** Bytes that one pipeline stage hands to the next for a micro-batch: its slice of the residual stream. */
export const boundaryBytes = (job: JobShape, slice: LayerSlice): number =>
  sliceRows(slice) * job.model.hiddenSize * PRECISION_BYTES[job.precision].activationBytes;
