import { contextOf, headRanks, headSize, PRECISION_BYTES, type ModuleShape } from "@internevo/domain";
import type { CollectiveTimes, GroupPlace } from "./collectives.ts";
import { backwardOf, layerModules, localKvHeads, ringElements, sliceOuterModules, sliceRows, type CountedModule, type LayerSlice } from "./layer.ts";
import type { ModuleTimes } from "./modules.ts";
import type { JobShape } from "./stage.ts";
import { ringSeconds, type RingPlace } from "./ring-time.ts";
import { rooflineSeconds, type DevicePeak } from "./work.ts";

/** Seconds of one layer and of what surrounds the layers, for one micro-batch on one rank, without sharding. */
export interface SliceTime {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** What recomputation repeats of the forward pass. */
  readonly recomputeSeconds: number;
  /** Exposed collectives of sequence or tensor parallelism, and what a ring of the sequence is waited for. */
  readonly forwardCommunicationSeconds: number;
  readonly backwardCommunicationSeconds: number;
  readonly recomputeCommunicationSeconds: number;
  /** Collectives of tensor parallelism that a backward pass can hide behind gradients of weights. */
  readonly hideableCommunicationSeconds: number;
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
  if (heads === 1) return { forward: 0, recompute: 0, backward: 0, hideable: 0, ...outside };
  if (tp === 1) {
    // Ulysses: q, k, v before attention and its output after, the same in the backward pass.
    const d = headSize(model);
    const query = times.seconds("all-to-all", (b * s * model.heads * d * beta) / sp, place);
    const kv = times.seconds("all-to-all", ((b * s) / contextOf(slice)) * localKvHeads(model.kvHeads, heads) * d * beta, place);
    const all = 2 * query + 2 * kv;
    return { forward: all, recompute: all, backward: all, hideable: 0, ...outside };
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
    backward: 2 * gather,
    hideable: 2 * gather + 2 * scatter,
    embedding: gather + scatter,
    head: gather + scatter + statistics,
  };
}

/**
 * Times of one slice (b, s_sp, s_tp, ring) of a job.
 * @param beside slow-down of computation and communication at a time, where the plan has a thread that passes the ring's blocks on
 *   while the others compute; null where it has none.
 */
export function sliceTime(job: JobShape, slice: LayerSlice, places: SlicePlaces, beside: number | null, modules: ModuleTimes, collectives: CollectiveTimes, device: DevicePeak): SliceTime {
  const total = (list: readonly CountedModule[], of: (shape: ModuleShape) => number) => list.reduce((sum, { shape, count }) => sum + count * of(shape), 0);
  const measured = (shape: ModuleShape) => modules.seconds(shape);
  const peak = (shape: ModuleShape) => rooflineSeconds(shape, device);
  const { forward, backward, recompute } = layerModules(job.model, slice, job.precision);
  const { embedding, finalNorm, headLoss } = sliceOuterModules(job.model, slice, job.precision);
  const embeddings: CountedModule[] = [embedding, backwardOf(embedding)].map((shape) => ({ shape, count: 1 }));
  const heads: CountedModule[] = [finalNorm, backwardOf(finalNorm), headLoss].map((shape) => ({ shape, count: 1 }));
  const communication = sliceCollectives(job, slice, places.heads, collectives);
  const attention = (list: readonly CountedModule[]) => list.filter(({ shape }) => shape.module === "attention").reduce((sum, { shape }) => sum + modules.seconds(shape), 0);
  const ring = ringSeconds({
    ranks: contextOf(slice), place: places.ring, elements: ringElements(job.model, slice), activationBytes: PRECISION_BYTES[job.precision].activationBytes,
    forwardTurnSeconds: attention(forward), backwardTurnSeconds: attention(backward), beside,
  }, collectives);
  return {
    forwardSeconds: total(forward, measured),
    backwardSeconds: total(backward, measured),
    recomputeSeconds: total(recompute, measured),
    forwardCommunicationSeconds: communication.forward + ring.forward,
    backwardCommunicationSeconds: communication.backward + ring.backward,
    recomputeCommunicationSeconds: communication.recompute + ring.forward,
    hideableCommunicationSeconds: communication.hideable,
    embeddingCommunicationSeconds: communication.embedding,
    headCommunicationSeconds: communication.head,
    embeddingSeconds: total(embeddings, measured),
    headSeconds: total(heads, measured),
    layerRooflineSeconds: total(forward, peak) + total(backward, peak),
    recomputeRooflineSeconds: total(recompute, peak),
    embeddingRooflineSeconds: total(embeddings, peak),
    headRooflineSeconds: total(heads, peak),
  };
}

/** Bytes that one pipeline stage hands to the next for a micro-batch: its slice of the residual stream. */
export const boundaryBytes = (job: JobShape, slice: LayerSlice): number => sliceRows(slice) * job.model.hiddenSize * PRECISION_BYTES[job.precision].activationBytes;

