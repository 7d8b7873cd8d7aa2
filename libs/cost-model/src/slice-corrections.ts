import {
  queryWidth,
  splitDistance,
  splitKind,
  splitOf,
  type ByUnit,
  type JobSpec,
  type MeasuredSlice,
  type SliceParts,
  type SliceShape,
  type SliceWaits,
} from "@internevo/domain";
import { GATE_UP_UNITS } from "@internevo/plan";
import { computePrecision, type LayerSlice } from "./layer.ts";
import type { SliceTime } from "./layer-time.ts";
import { byUnit, RECOMPUTED_UNITS, sumOfUnits, withAttention } from "./layer-units.ts";
import type { Kept, Recorder } from "./warnings.ts";

/** The shape of a slice of a job, as it is measured. */
export function sliceShape(
  { model, precision }: Pick<JobSpec, "model" | "precision">,
  slice: LayerSlice,
): SliceShape {
  const { hiddenSize, heads, kvHeads, ffnHiddenSize, vocabularySize } = model;
  const { headSize, queryKeyNorm, queryKeyValueBias, slidingWindowTokens } = model;
  const { microBatchSize, sequenceLengthTokens } = slice;
  return {
    precision: computePrecision(precision),
    hiddenSize,
    heads,
    kvHeads,
    ffnHiddenSize,
    vocabularySize,
    ...(headSize === undefined ? {} : { headSize }),
    ...(queryKeyNorm === undefined ? {} : { queryKeyNorm }),
    ...(queryKeyValueBias === undefined ? {} : { queryKeyValueBias }),
    ...(slidingWindowTokens === undefined ? {} : { slidingWindowTokens }),
    microBatchSize,
    sequenceLengthTokens,
    ...splitOf(slice),
  };
}

/** A slice has at least so many layers, and so many that they do not stay in a cache. */
const LEAST_LAYERS = 2;
const MORE_THAN_CACHED_BYTES = 128 * 2 ** 20;

/**
 * With how many layers a slice of a model is measured: as many as the model has, or as do not stay in a cache
 * (of parameters their gradients and moments too, of activations some twenty as wide as the model). Fewer
 * would be faster than those of a deeper model.
 */
export function layersOfSlice(shape: SliceShape, modelLayers: number): number {
  const { hiddenSize, ffnHiddenSize, microBatchSize, sequenceLengthTokens, precision } = shape;
  const { sequenceParallel, tensorParallel } = shape;
  const parameters = (4 * queryWidth(shape) + 3 * ffnHiddenSize) * hiddenSize;
  const bytes =
    (16 * parameters) / tensorParallel +
    (20 * microBatchSize * sequenceLengthTokens * hiddenSize * (precision === "bf16" ? 2 : 4)) /
      sequenceParallel;
  return Math.max(LEAST_LAYERS, Math.min(modelLayers, Math.ceil(MORE_THAN_CACHED_BYTES / bytes)));
}

/** What slices of one model have in common. */
const OF_MODEL = [
  "precision",
  "hiddenSize",
  "heads",
  "kvHeads",
  "ffnHiddenSize",
  "vocabularySize",
  "headSize",
  "queryKeyNorm",
  "queryKeyValueBias",
  "slidingWindowTokens",
] as const;
const sameModel = (a: SliceShape, b: SliceShape): boolean => OF_MODEL.every((field) => a[field] === b[field]);

/**
 * Of two slices of one model: how unlike they are beside their micro-batch, as the sum of the logarithms of
 * what differs.
 */
const unlike = (a: SliceShape, b: SliceShape): number =>
  Math.abs(Math.log(a.sequenceLengthTokens / b.sequenceLengthTokens)) + splitDistance(a, b);

/** How much longer each part takes in a step than what it is composed of; 1 where nothing is composed. */
type Ratios = { readonly [Name in keyof SliceParts]: SliceParts[Name] extends number ? number : ByUnit } & {
  readonly waits: SliceWaits;
};

const ratio = (measured: number, composed: number): number =>
  composed > 0 && measured > 0 ? measured / composed : 1;

/** The parts of a slice, as they are measured: attention apart. */
export function partsOf(time: SliceTime): SliceParts {
  return {
    forward: withAttention(time.forwardModules, "forward", -time.forwardAttentionSeconds),
    forwardAttention: time.forwardAttentionSeconds,
    forwardCommunication: time.forwardCommunicationSeconds,
    backward: withAttention(time.backwardModules, "backward", -time.backwardAttentionSeconds),
    backwardAttention: time.backwardAttentionSeconds,
    backwardCommunication: time.backwardCommunicationSeconds,
    embedding: time.embeddingSeconds,
    embeddingCommunication: time.embeddingCommunicationSeconds,
    head: time.headSeconds,
    headCommunication: time.headCommunicationSeconds,
  };
}

function ratiosOf(
  { parts: measured, waits = { unit: 1, layer: 1 } }: MeasuredSlice,
  composed: SliceParts,
): Ratios {
  return {
    waits,
    forward: byUnit((unit) => ratio(measured.forward[unit] as number, composed.forward[unit] as number)),
    forwardAttention: ratio(measured.forwardAttention, composed.forwardAttention),
    forwardCommunication: ratio(measured.forwardCommunication, composed.forwardCommunication),
    backward: byUnit((unit) => ratio(measured.backward[unit] as number, composed.backward[unit] as number)),
    backwardAttention: ratio(measured.backwardAttention, composed.backwardAttention),
    backwardCommunication: ratio(measured.backwardCommunication, composed.backwardCommunication),
    embedding: ratio(measured.embedding, composed.embedding),
    embeddingCommunication: ratio(measured.embeddingCommunication, composed.embeddingCommunication),
    head: ratio(measured.head, composed.head),
    headCommunication: ratio(measured.headCommunication, composed.headCommunication),
  };
}

/** Between two, on the log line. */
function between(a: Ratios, b: Ratios, weight: number): Ratios {
  const mix = (x: number, y: number): number => Math.exp((1 - weight) * Math.log(x) + weight * Math.log(y));
  return {
    waits: { unit: mix(a.waits.unit, b.waits.unit), layer: mix(a.waits.layer, b.waits.layer) },
    forward: byUnit((unit) => mix(a.forward[unit] as number, b.forward[unit] as number)),
    forwardAttention: mix(a.forwardAttention, b.forwardAttention),
    forwardCommunication: mix(a.forwardCommunication, b.forwardCommunication),
    backward: byUnit((unit) => mix(a.backward[unit] as number, b.backward[unit] as number)),
    backwardAttention: mix(a.backwardAttention, b.backwardAttention),
    backwardCommunication: mix(a.backwardCommunication, b.backwardCommunication),
    embedding: mix(a.embedding, b.embedding),
    embeddingCommunication: mix(a.embeddingCommunication, b.embeddingCommunication),
    head: mix(a.head, b.head),
    headCommunication: mix(a.headCommunication, b.headCommunication),
  };
}

function corrected(time: SliceTime, by: Ratios): SliceTime {
  const { forward: f, forwardAttention, backward: b, backwardAttention } = partsOf(time);
  const forwardUnits = byUnit((unit) => (f[unit] as number) * (by.forward[unit] as number));
  const backwardUnits = byUnit((unit) => (b[unit] as number) * (by.backward[unit] as number));
  const forwardAttentionSeconds = forwardAttention * by.forwardAttention;
  const backwardAttentionSeconds = backwardAttention * by.backwardAttention;
  const forwardSeconds = sumOfUnits(forwardUnits) + forwardAttentionSeconds;
  // What recomputation repeats is the forward pass up to the products that are kept: it is corrected as those
  // are.
  const correctionOf = (units: readonly number[]): number => {
    const sum = (of: ByUnit): number => units.reduce((total, unit) => total + (of[unit] as number), 0);
    const composed = sum(f);
    return composed > 0 ? sum(forwardUnits) / composed : 1;
  };
  return {
    ...time,
    forwardSeconds,
    backwardSeconds: sumOfUnits(backwardUnits) + backwardAttentionSeconds,
    forwardModules: withAttention(forwardUnits, "forward", forwardAttentionSeconds),
    backwardModules: withAttention(backwardUnits, "backward", backwardAttentionSeconds),
    forwardAttentionSeconds,
    backwardAttentionSeconds,
    recomputeSeconds:
      (time.recomputeSeconds - forwardAttention) * correctionOf(RECOMPUTED_UNITS) + forwardAttentionSeconds,
    gateUpSeconds: time.gateUpSeconds * correctionOf(GATE_UP_UNITS),
    forwardCommunicationSeconds: time.forwardCommunicationSeconds * by.forwardCommunication,
    backwardCommunicationSeconds: time.backwardCommunicationSeconds * by.backwardCommunication,
    recomputeCommunicationSeconds: time.recomputeCommunicationSeconds * by.forwardCommunication,
    gateUpCommunicationSeconds: time.gateUpCommunicationSeconds * by.forwardCommunication,
    embeddingCommunicationSeconds: time.embeddingCommunicationSeconds * by.embeddingCommunication,
    headCommunicationSeconds: time.headCommunicationSeconds * by.headCommunication,
    embeddingSeconds: time.embeddingSeconds * by.embedding,
    headSeconds: time.headSeconds * by.head,
    unitWaits: by.waits.unit - 1,
    layerWaits: by.waits.layer - 1,
  };
}

/**
 * Corrections of composed slices by slices that the trainer ran. A slice is composed of modules and
 * collectives that were measured one by one; in a step their data are colder, their rows lie apart, and ranks
 * wait for one another. Every part is taken as many times longer as it was in the nearest measured slice of
 * the same widths and kind of sharing, with layers as near to the model's as there are; between two sizes of
 * a micro-batch, in between.
 */
export class SliceCorrections {
  readonly #job: Pick<JobSpec, "model" | "precision">;
  readonly #measured: readonly MeasuredSlice[];
  readonly #compose: (slice: LayerSlice) => SliceTime;
  readonly #recorder: Recorder;
  readonly #ratios = new Map<MeasuredSlice, Kept<Ratios>>();

  /** @param compose the time of a slice by its modules and collectives, where nothing runs beside them. */
  constructor(
    job: Pick<JobSpec, "model" | "precision">,
    measured: readonly MeasuredSlice[],
    compose: (slice: LayerSlice) => SliceTime,
    recorder: Recorder,
  ) {
    this.#job = job;
    this.#compose = compose;
    this.#recorder = recorder;
    const own = sliceShape(job, {
      microBatchSize: 1,
      sequenceLengthTokens: 1,
      sequenceParallel: 1,
      tensorParallel: 1,
    });
    this.#measured = measured.filter(({ shape }) => sameModel(shape, own));
    if (measured.length > 0 && this.#measured.length === 0)
      recorder.warn(
        "micro-batches that the profile measured in a trainer are of other models, so that predictions are composed of modules",
        `${own.hiddenSize} wide`,
      );
  }

  #ratiosOf(one: MeasuredSlice): Ratios {
    const known = this.#ratios.get(one);
    if (known) return this.#recorder.recall(known);
    const made = this.#recorder.keep(() => ratiosOf(one, partsOf(this.#compose(one.shape))));
    this.#ratios.set(one, made);
    return made.value;
  }

  /**
   * Of slices that differ in their layers only, the one whose layers are nearest to what this model's are
   * measured with.
   */
  #asDeep(slices: readonly MeasuredSlice[]): MeasuredSlice[] {
    const off = ({ layers, shape }: MeasuredSlice): number =>
      Math.abs(Math.log(layers / layersOfSlice(shape, this.#job.model.layers)));
    const nearest = new Map<number, MeasuredSlice>();
    for (const one of slices) {
      const known = nearest.get(one.shape.microBatchSize);
      if (!known || off(one) < off(known)) nearest.set(one.shape.microBatchSize, one);
    }
    return [...nearest.values()];
  }

  /** @param time of the slice, composed. */
  apply(slice: LayerSlice, time: SliceTime): SliceTime {
    if (this.#measured.length === 0) return time;
    const shape = sliceShape(this.#job, slice);
    // Slices are corrected by those of their own kind.
    const kind = splitKind(shape);
    const own = this.#measured.filter((one) => splitKind(one.shape) === kind);
    if (own.length === 0) {
      this.#recorder.warn(
        "ways to share a sequence that the profile did not measure in a trainer, composed of modules and collectives",
        kind,
      );
      return time;
    }
    const distance = Math.min(...own.map((one) => unlike(one.shape, shape)));
    const line = this.#asDeep(own.filter((one) => unlike(one.shape, shape) <= distance + 1e-9)).sort(
      (a, b) => a.shape.microBatchSize - b.shape.microBatchSize,
    );
    const above = line.findIndex((one) => one.shape.microBatchSize >= shape.microBatchSize);
    const upper = line[above < 0 ? line.length - 1 : above] as MeasuredSlice;
    const lower = above <= 0 ? upper : (line[above - 1] as MeasuredSlice);
    if (upper === lower || upper.shape.microBatchSize === shape.microBatchSize)
      return corrected(time, this.#ratiosOf(upper));
    const weight =
      Math.log(shape.microBatchSize / lower.shape.microBatchSize) /
      Math.log(upper.shape.microBatchSize / lower.shape.microBatchSize);
    return corrected(time, between(this.#ratiosOf(lower), this.#ratiosOf(upper), weight));
  }
}
