import { contextOf, headRanks, headSize, PRECISION_BYTES, type ModuleShape } from "@internevo/domain";
import type { CollectiveTimes, GroupPlace } from "./collectives.ts";
import { attentionTurn, backwardOf, layerModules, localKvHeads, ringElements, sliceOuterModules, sliceRows, type CountedModule, type LayerSlice } from "./layer.ts";
import type { ModuleTimes } from "./modules.ts";
import type { JobShape } from "./stage.ts";
import { ringSeconds, type RingPlace, type RingWork } from "./ring-time.ts";
import { rooflineSeconds, type DevicePeak } from "./work.ts";

/** Of a layer's units in order: norm and q, k, v; attention output; norm, gate and up; MLP output. */
export type ModuleSeconds = readonly [number, number, number, number];

/** Seconds of one layer and of what surrounds the layers, for one micro-batch on one rank, without sharding. */
export interface SliceTime {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** The same by the units whose parameters each part needs. */
  readonly forwardModules: ModuleSeconds;
  readonly backwardModules: ModuleSeconds;
  /** Attention among them: in the forward pass part of the first, in the backward pass of the second. */
  readonly forwardAttentionSeconds: number;
  readonly backwardAttentionSeconds: number;
  /** What recomputation repeats of the forward pass. */
  readonly recomputeSeconds: number;
  /** Exposed collectives of sequence or tensor parallelism, and what a ring of the sequence is waited for. */
  readonly forwardCommunicationSeconds: number;
  readonly backwardCommunicationSeconds: number;
  readonly recomputeCommunicationSeconds: number;
  /** Collectives of tensor parallelism around embedding and head; nothing hides them. */
  readonly embeddingCommunicationSeconds: number;
  readonly headCommunicationSeconds: number;
  readonly embeddingSeconds: number;
  readonly headSeconds: number;
  /** The same kernels at the peak of the device. */
  readonly layerRooflineSeconds: number;
  readonly recomputeRooflineSeconds: number;
  readonly embeddingRooflineSeconds: number;
  readonly headRooflineSeconds: number;
}

/** Rows of the loss that tensor ranks compare at once, and what each rank tells of a row: three float64. */
const LOSS_CHUNK_ROWS = 256;
const LOSS_STATISTICS_BYTES = 24;

/** Where the ranks of a sequence sit: those that share heads, and those that pass keys and values around. */
export interface SlicePlaces {
  readonly heads: GroupPlace;
  readonly ring: RingPlace;
}

/** Collectives around one micro-batch: counts and sizes as the executor issues them (native/MEMORY.md, "What is communicated"). */
function sliceCollectives(job: JobShape, slice: LayerSlice, place: GroupPlace, times: CollectiveTimes) {
  const { model, precision } = job;
  const { microBatchSize: b, sequenceLengthTokens: s, sequenceParallel: sp, tensorParallel: tp } = slice;
  const heads = headRanks(slice);
  const beta = PRECISION_BYTES[precision].activationBytes;
  const outside = { embedding: 0, head: 0 };
  if (heads === 1) return { forward: 0, recompute: 0, backward: 0, ...outside };
  if (tp === 1) {
    // Ulysses: q, k, v before attention and its output after, the same in the backward pass.
    const d = headSize(model);
    const query = times.seconds("all-to-all", (b * s * model.heads * d * beta) / sp, place);
    const kv = times.seconds("all-to-all", ((b * s) / contextOf(slice)) * localKvHeads(model.kvHeads, heads) * d * beta, place);
    const all = 2 * query + 2 * kv;
    return { forward: all, recompute: all, backward: all, ...outside };
  }
  // Megatron with sequence-parallel norms: attention and MLP each gather their input and scatter their output.
  // A sequence is a message of its own, because its tokens on one rank are not next to those of the next sequence.
  const bytes = s * model.hiddenSize * beta;
  const gather = b * times.seconds("all-gather", bytes, place);
  const scatter = b * times.seconds("reduce-scatter", bytes, place);
  const statistics = Math.ceil((b * s) / LOSS_CHUNK_ROWS) * times.seconds("all-gather", LOSS_STATISTICS_BYTES * tp * Math.min(LOSS_CHUNK_ROWS, b * s), place);
  // Backward: the gradient of the output is gathered, that of the input scattered, and the input gathered again.
  // Recomputed is what the backward pass reads: both inputs and the attention's output, not that of the MLP.
  return {
    forward: 2 * gather + 2 * scatter,
    recompute: 2 * gather + scatter,
    backward: 4 * gather + 2 * scatter,
    embedding: gather + scatter,
    head: gather + scatter + statistics,
  };
}

/** Seconds of a pass of a layer by the unit that is in use, attention apart: products are listed in the order of the units. */
function unitSeconds(list: readonly CountedModule[], of: (shape: ModuleShape) => number): ModuleSeconds {
  const seconds: [number, number, number, number] = [0, 0, 0, 0];
  let products = 0;
  for (const { shape, count } of list) {
    const time = count * of(shape);
    switch (shape.module) {
      case "linear": seconds[products] = (seconds[products] as number) + time; products += 1; break;
      case "rope": seconds[0] += time; break;
      case "rmsnorm": seconds[0] += time / 2; seconds[2] += time / 2; break;
      case "swiglu": seconds[2] += time; break;
      default: seconds[3] += time;
    }
  }
  return seconds;
}

/** Computation of a layer, by unit, and around it, on one rank. */
interface Computed {
  readonly forward: ModuleSeconds;
  readonly backward: ModuleSeconds;
  readonly recompute: number;
  readonly embedding: number;
  readonly head: number;
  readonly layerRoofline: number;
  readonly recomputeRoofline: number;
  readonly embeddingRoofline: number;
  readonly headRoofline: number;
}

/** Attention and what a ring adds up, in one turn. */
interface Attended {
  readonly forward: number;
  readonly backward: number;
  readonly roofline: number;
  readonly recomputeRoofline: number;
  readonly summed: number;
  readonly summedRoofline: number;
}

const isAttention = ({ shape }: CountedModule): boolean => shape.module === "attention" || shape.module === "accumulate";

/**
 * Times of the slices (b, s_sp, s_tp, ring) of a job. All but attention depends only on the rows of a rank, and attention on no
 * more than its own shape: slices share both.
 */
export class SliceTimes {
  readonly #job: JobShape;
  readonly #modules: ModuleTimes;
  readonly #collectives: CollectiveTimes;
  readonly #device: DevicePeak;
  readonly #computed = new Map<number, Map<number, Computed>>();
  readonly #attended = new Map<string, Attended>();

  constructor(job: JobShape, modules: ModuleTimes, collectives: CollectiveTimes, device: DevicePeak) {
    this.#job = job;
    this.#modules = modules;
    this.#collectives = collectives;
    this.#device = device;
  }

  #sum(list: readonly CountedModule[], of: (shape: ModuleShape) => number): number {
    let sum = 0;
    for (const { shape, count } of list) sum += count * of(shape);
    return sum;
  }

  #compute(slice: LayerSlice): Computed {
    const rows = sliceRows(slice);
    let ofTensor = this.#computed.get(slice.tensorParallel);
    if (!ofTensor) this.#computed.set(slice.tensorParallel, (ofTensor = new Map<number, Computed>()));
    let computed = ofTensor.get(rows);
    if (computed) return computed;
    const { model, precision } = this.#job;
    const measured = (shape: ModuleShape) => this.#modules.seconds(shape);
    const peak = (shape: ModuleShape) => rooflineSeconds(shape, this.#device);
    const layer = layerModules(model, slice, precision);
    const [forward, backward, recompute] = [layer.forward, layer.backward, layer.recompute].map((list) => list.filter((one) => !isAttention(one))) as [CountedModule[], CountedModule[], CountedModule[]];
    const { embedding, finalNorm, headLoss } = sliceOuterModules(model, slice, precision);
    const embeddings: CountedModule[] = [embedding, backwardOf(embedding)].map((shape) => ({ shape, count: 1 }));
    const heads: CountedModule[] = [finalNorm, backwardOf(finalNorm), headLoss].map((shape) => ({ shape, count: 1 }));
    computed = {
      forward: unitSeconds(forward, measured),
      backward: unitSeconds(backward, measured),
      recompute: this.#sum(recompute, measured),
      embedding: this.#sum(embeddings, measured),
      head: this.#sum(heads, measured),
      layerRoofline: this.#sum(forward, peak) + this.#sum(backward, peak),
      recomputeRoofline: this.#sum(recompute, peak),
      embeddingRoofline: this.#sum(embeddings, peak),
      headRoofline: this.#sum(heads, peak),
    };
    ofTensor.set(rows, computed);
    return computed;
  }

  #attend(slice: LayerSlice): Attended {
    const ring = contextOf(slice);
    const key = `${slice.microBatchSize} ${ring} ${headRanks(slice)}`;
    let attended = this.#attended.get(key);
    if (attended) return attended;
    const { attention, summed } = attentionTurn(this.#job.model, slice, this.#job.precision);
    const backward = backwardOf(attention);
    const recomputeRoofline = rooflineSeconds(attention, this.#device);
    attended = {
      forward: this.#modules.seconds(attention),
      backward: this.#modules.seconds(backward),
      roofline: recomputeRoofline + rooflineSeconds(backward, this.#device),
      recomputeRoofline,
      summed: ring === 1 ? 0 : this.#modules.seconds(summed),
      summedRoofline: ring === 1 ? 0 : rooflineSeconds(summed, this.#device),
    };
    this.#attended.set(key, attended);
    return attended;
  }

  /**
   * Times of one slice.
   * @param beside slow-downs of computation and communication at a time, where the plan has a thread that passes the ring's blocks
   *   on while the others compute; null where it has none.
   */
  of(slice: LayerSlice, places: SlicePlaces, beside: RingWork["beside"]): SliceTime {
    const job = this.#job;
    const computed = this.#compute(slice);
    const attended = this.#attend(slice);
    const turns = contextOf(slice);
    const communication = sliceCollectives(job, slice, places.heads, this.#collectives);
    const ring = ringSeconds({
      ranks: turns, place: places.ring, elements: ringElements(job.model, slice), activationBytes: PRECISION_BYTES[job.precision].activationBytes,
      forwardTurnSeconds: attended.forward, backwardTurnSeconds: attended.backward, beside,
    }, this.#collectives);
    const forwardAttentionSeconds = turns * attended.forward;
    const backwardAttentionSeconds = turns * attended.backward;
    const summed = (turns - 1) * attended.summed;
    const [f0, f1, f2, f3] = computed.forward;
    const [b0, b1, b2, b3] = computed.backward;
    return {
      forwardSeconds: f0 + f1 + f2 + f3 + forwardAttentionSeconds,
      backwardSeconds: b0 + b1 + b2 + b3 + backwardAttentionSeconds + summed,
      // Attention runs between the first and the second product: while it does, the unit after it in the pass is on its way.
      forwardModules: [f0 + forwardAttentionSeconds, f1, f2, f3],
      backwardModules: [b0, b1 + backwardAttentionSeconds + summed, b2, b3],
      forwardAttentionSeconds,
      backwardAttentionSeconds,
      recomputeSeconds: computed.recompute + forwardAttentionSeconds,
      forwardCommunicationSeconds: communication.forward + ring.forward,
      backwardCommunicationSeconds: communication.backward + ring.backward,
      recomputeCommunicationSeconds: communication.recompute + ring.forward,
      embeddingCommunicationSeconds: communication.embedding,
      headCommunicationSeconds: communication.head,
      embeddingSeconds: computed.embedding,
      headSeconds: computed.head,
      layerRooflineSeconds: computed.layerRoofline + turns * attended.roofline + (turns - 1) * attended.summedRoofline,
      recomputeRooflineSeconds: computed.recomputeRoofline + turns * attended.recomputeRoofline,
      embeddingRooflineSeconds: computed.embeddingRoofline,
      headRooflineSeconds: computed.headRoofline,
    };
  }
}

/** Bytes that one pipeline stage hands to the next for a micro-batch: its slice of the residual stream. */
export const boundaryBytes = (job: JobShape, slice: LayerSlice): number => sliceRows(slice) * job.model.hiddenSize * PRECISION_BYTES[job.precision].activationBytes;

