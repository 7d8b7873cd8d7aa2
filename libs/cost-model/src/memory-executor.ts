import {
  chunksOf,
  contextOf,
  documentsOf,
  headRanks,
  headSize,
  PRECISION_BYTES,
  recomputedLayers,
  usesGpus,
  type MemoryLines,
} from "@internevo/domain";
import { backwardGroups, type GateUp, type Sharding } from "@internevo/plan";
import sizes from "../../../native/src/executor_sizes/executor_sizes.json" with { type: "json" };
import { hostBytes, keptBytes, layerRows, layerValues, workspaceBytes } from "./layer-memory.ts";
import { sumOfUnits, UNIT_BLOCKS } from "./layer-units.ts";
import { LOSS_STATISTICS_BYTES, lossChunkRows } from "./loss-chunk.ts";
import type { Batching, MemoryContext, MemoryModel, ShardContext } from "./memory.ts";
import { layersInFlight, unitParameters, up, type Stage } from "./stage.ts";

/*
 * The memory plan of the executor, line by line (native/MEMORY.md; native/src/trainer/memory_plan.cpp computes the same).
 */

const al = (bytes: number): number => up(bytes, 64);

/** Buffers of the tree reductions over a group of g ranks. */
function reductionBytes(group: number): number {
  if (group === 1) return 0;
  let segment = sizes.reductionSegmentBytes;
  while (segment > sizes.leastReductionSegmentBytes && segment * group > sizes.reductionSegmentsBudgetBytes)
    segment /= 2;
  return 2 * group * segment;
}

/** Scratch of blockwise attention over so many keys, floats per thread. */
function attentionScratchFloats(keys: number, size: number): number {
  const { attentionTile: tile, attentionPad } = sizes;
  const t = up(keys, tile);
  const d = up(size, attentionPad);
  return t * (2 * size + d) + 2 * keys * size + 2 * tile * tile + 3 * tile * size + 2 * tile * d + tile;
}

/** Scratch of attention on a GPU, of b sequences (native/src/backend/cuda/sizes.cpp). */
function gpuAttentionBytes(
  b: number,
  sequence: number,
  heads: number,
  kvHeads: number,
  size: number,
): number {
  const sums = al(4 * b * heads * sequence);
  const tiled = size % sizes.gpuHeadStep === 0 && size <= sizes.gpuLargestHead;
  if (!tiled || heads % kvHeads !== 0) return sums;
  const group = heads / kvHeads;
  const tiles = Math.ceil(sequence / sizes.gpuTileQueries);
  const pairBytes = group * tiles * sizes.gpuTileQueries * up(size, sizes.gpuTileColumns) * 4;
  const pairs = Math.min(Math.max(Math.floor(sizes.gpuQuerySumsBytes / pairBytes), 1), b * kvHeads);
  const counts = al(sizes.gpuTicketBytes + 12 * b * heads * tiles * sizes.gpuTileQueries);
  return Math.max(sums, al(al(counts + 4 * pairs * group * tiles) + pairs * pairBytes));
}

/**
 * What NCCL takes for itself at the first calls of groups of so many ranks: an upper bound (native/MEMORY.md), the
 * same for every stage.
 */
const groupBytes = (groups: readonly number[]): number =>
  groups
    .filter((ranks) => ranks > 1)
    .reduce(
      (bytes, ranks) =>
        bytes +
        sizes.communicationBlocks *
          (sizes.collectiveConnectionBytes +
            sizes.sharedMessageBytes +
            Math.min(ranks - 1, sizes.directPeers) * sizes.messageConnectionBytes),
      0,
    );

/** Of the groups that a sharding makes of the ranks that have the same slice of the model. */
const shardCommunicators = ({ job, layout }: ShardContext, sharding: Sharding): number => {
  if (!usesGpus(job.cluster)) return 0;
  const { parameterSharding: ps, optimizerStateSharding: oss } = sharding;
  const { dataParallel, sequenceParallel, tensorParallel: tp } = layout;
  return groupBytes([ps, oss, (dataParallel * sequenceParallel) / tp / (ps * oss)]);
};

/** Of the groups that the layout makes, whatever the sharding. */
function layoutCommunicators({ job, layout }: ShardContext): number {
  if (!usesGpus(job.cluster)) return 0;
  const { pipelineParallel: pp, tensorParallel: tp } = layout;
  // Interleaved, the last stage passes on to the first: two stages are neighbours on both sides.
  const neighbours = pp > 2 || chunksOf(layout) > 1 ? 2 : pp - 1;
  return (
    groupBytes([
      tp === 1 ? headRanks(layout) : 1,
      contextOf(layout),
      tp,
      Math.floor(tp / job.model.kvHeads),
      job.model.tiedEmbeddings && pp > 1 ? 2 : 1,
    ]) +
    neighbours * sizes.communicationBlocks * (sizes.sharedMessageBytes + sizes.messageConnectionBytes)
  );
}

/** A line that is there where it is not 0. */
const communicatorLine = (bytes: number): MemoryLines => (bytes > 0 ? { communicators: bytes } : {});

/** Units that a layer that makes gate and up again has together. */
const [AGAIN_UNITS = []] = backwardGroups("none", "again");

interface StageUnits {
  /** Padded elements of all units of the stage. */
  readonly sum: number;
  /** The largest of embedding and head, where the stage has them. */
  readonly outer: number;
  readonly module: number;
  readonly block: number;
  /** What a layer that makes gate and up again begins its backward pass with. */
  readonly again: number;
  readonly layer: number;
}

/** Padded sizes of the units of a stage, elements: what is gathered, reduced and updated together. */
function stageUnits(context: ShardContext, stage: Stage, sharding: Sharding): StageUnits {
  const unit = 64 * sharding.parameterSharding * sharding.optimizerStateSharding;
  const parameters = unitParameters(context.job.model, context.layout.tensorParallel);
  const units = parameters.units.map((elements) => up(elements, unit));
  const layer = sumOfUnits(units);
  const blocks = UNIT_BLOCKS.map((places) => sumOfUnits(places.map((place) => units[place] as number)));
  const embedding = stage.hasEmbedding ? up(parameters.embedding, unit) : 0;
  const head = stage.hasHead && parameters.head > 0 ? up(parameters.head, unit) : 0;
  return {
    sum: embedding + stage.layers * layer + head,
    outer: Math.max(embedding, head),
    module: Math.max(...units),
    block: Math.max(...blocks),
    again: sumOfUnits(AGAIN_UNITS.map((place) => units[place] as number)),
    layer,
  };
}

/** Elements that are gathered (G), and whose gradients are staged (Γ), at one time. */
function groupsOf(
  units: StageUnits,
  { forwardOverlap, backwardOverlap }: MemoryContext["overlap"],
  recomputed: number,
  layers: number,
  gateUp: GateUp,
): { gathered: number; staged: number } {
  const forward = {
    none: units.module,
    block: units.block,
    "inter-layer": units.layer,
    "intra-layer": units.module,
  }[forwardOverlap];
  const modules = backwardOverlap === "block" ? units.block : units.module;
  const group = gateUp === "again" ? Math.max(modules, units.again) : modules;
  const backward = Math.max(recomputed > 0 ? units.layer : 0, recomputed < layers ? group : 0);
  return { gathered: Math.max(units.outer, forward, backward), staged: Math.max(units.outer, modules) };
}

export const executorMemory: MemoryModel = {
  shardLines(context, stage, sharding, recomputation): MemoryLines {
    const { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss } = sharding;
    const {
      pipelineParallel: pp,
      dataParallel: dp,
      tensorParallel: tp,
      sequenceParallel: sp,
    } = context.layout;
    const bytes = PRECISION_BYTES[context.job.precision];
    const { overlap } = context;
    const units = stageUnits(context, stage, sharding);
    const { gathered, staged } = groupsOf(
      units,
      overlap,
      recomputedLayers(recomputation, stage.layers),
      stage.layers,
      recomputation.gateUp ?? "kept",
    );
    const { sum } = units;
    const replicas = (dp * sp) / tp;
    const overlapped = overlap.forwardOverlap !== "none" || overlap.backwardOverlap !== "none";
    const largestOf = (groups: readonly number[]): number => Math.max(...groups.map(reductionBytes));
    // Tensor ranks that share a key/value head, and the two ends of a pipeline with tied embeddings, add
    // their gradients too.
    const sharing = Math.max(1, Math.floor(tp / context.job.model.kvHeads));
    const ends = context.job.model.tiedEmbeddings && pp > 1 ? 2 : 1;
    const sharded = [ps, oss, replicas / (ps * oss)];
    // What runs on the communication lane has scratch of its own.
    const reduction =
      largestOf([...sharded, pp * dp * sp, tp, sharing, ends]) + (overlapped ? largestOf(sharded) : 0);
    return {
      ...communicatorLine(shardCommunicators(context, sharding)),
      parameters: (bytes.parameterBytes * sum) / ps,
      gradients: (bytes.gradientBytes * sum) / (ps * gs),
      optimizerStates: (bytes.optimizerStateBytes * sum) / (ps * oss),
      gatherPool: ps > 1 ? (overlapped ? 2 : 1) * bytes.parameterBytes * gathered : 0,
      reduceStaging:
        (ps > 1 || gs > 1 ? (overlap.backwardOverlap === "none" ? 1 : 2) * bytes.gradientBytes * staged : 0) +
        reduction,
    };
  },

  layerBytes({ job: { model, sequenceLengthTokens: sequence, precision }, layout }, b, gateUp): number {
    return keptBytes(layerValues(model, precision, layout, gateUp), layerRows(layout, sequence, b));
  },

  layerHostBytes({ job: { model, sequenceLengthTokens: sequence, precision }, layout }, b, gateUp): number {
    return hostBytes(layerValues(model, precision, layout, gateUp), layerRows(layout, sequence, b));
  },

  batchLines(context, stage, batching: Batching): MemoryLines {
    const { layout } = context;
    const { model, sequenceLengthTokens: sequence, precision } = context.job;
    const { pipelineParallel: pp, tensorParallel: tp } = layout;
    const { microBatchSize: b, microBatches: n } = batching;
    const beta = PRECISION_BYTES[precision].activationBytes;
    const values = layerValues(model, precision, layout, batching.gateUp ?? "kept");
    const { hidden: h, query, key } = values;
    const d = headSize(model);
    const ring = contextOf(layout);
    const heads = headRanks(layout);
    const own = layerRows(layout, sequence, b);
    const { attention: rows, block: blockRows } = own;
    const ulysses = tp === 1 && heads > 1;
    const stream = al(own.tokens * h * beta);
    const layerSet = keptBytes(values, own);
    const documents = documentsOf(context.job.data);
    // Positions are turned behind the norms of heads, on the rows that attention sees.
    const positionRows = model.queryKeyNorm === true ? rows : blockRows;
    const onGpu = usesGpus(context.job.cluster);
    const lossRows = Math.min(lossChunkRows(onGpu), blockRows);
    /** Of one call of attention. */
    const keys = ring > 1 ? sequence / (2 * ring) : sequence;
    const recomputed = recomputedLayers(batching, stage.layers);
    const layers = layersInFlight(stage, n, recomputed);
    const offloaded = hostBytes(values, own);
    const lines: MemoryLines = {
      ...communicatorLine(layoutCommunicators(context)),
      // One place is copied while the other is used.
      ...(offloaded > 0 ? { offloadStaging: sizes.offloadPlaces * offloaded } : {}),
      activations:
        (layers.all + (stage.hasHead ? 1 : 0)) * stream + (layers.kept + (recomputed > 0 ? 1 : 0)) * layerSet,
      layerWorkspace: workspaceBytes(values, own),
      attentionWorkspace: onGpu
        ? gpuAttentionBytes(b, keys, query / d, key / d, d)
        : 4 * context.threadsPerRank * up(attentionScratchFloats(keys, d), 16),
      logits:
        (stage.hasHead ? al(4 * Math.ceil(model.vocabularySize / tp) * lossRows) : 0) +
        (onGpu ? sizes.gpuProductScratchBytes : sizes.productScratchBytes * context.threadsPerRank),
      allToAllStaging: ulysses ? 2 * al(rows * query * beta) : 0,
      contextStaging: ring > 1 ? ringBytes(rows * 2 * key, rows * query, beta) : 0,
      ropeTables: 2 * al(4 * sequence * (d / 2)),
      dataBuffers:
        (stage.isFirst || stage.isLast ? 2 * al(4 * blockRows) : 0) +
        (documents !== null || ring > 1 ? al(4 * positionRows) : 0) +
        (documents === null ? 0 : al(4 * rows) + al(4 * (Math.min(documents, sequence) + 1))),
      // In the backward pass an input is gathered beside the product of its gradient.
      tensorParallelStaging:
        tp > 1
          ? (context.overlap.backwardOverlap === "none" ? 1 : 2) * al(rows * h * beta) +
            (stage.hasHead ? al(LOSS_STATISTICS_BYTES * tp * lossRows) : 0)
          : 0,
      pipelineBuffers: pp > 1 ? boundaryBuffers(stage) * stream : 0,
      ...(context.job.timeline === undefined
        ? {}
        : { timeline: sizes.timelineEvents * sizes.timelineEventBytes }),
      runtime: context.runtimeBytes,
    };
    return lines;
  },
};

/**
 * Blocks of keys and values, and their gradients, on the ring; the output, or the gradient of q, in float32.
 */
const ringBytes = (keyElements: number, queryElements: number, activationBytes: number): number =>
  2 * al(activationBytes * keyElements) +
  3 * al(4 * keyElements) +
  (activationBytes === 4 ? 0 : al(4 * queryElements));

/**
 * To send and to receive, forward and backward; a stage of several chunks has neighbours on both sides in any
 * case.
 */
const boundaryBuffers = (stage: Stage): number =>
  stage.chunkLayers.length > 1 ? 4 : 2 * ((stage.isFirst ? 0 : 1) + (stage.isLast ? 0 : 1));
