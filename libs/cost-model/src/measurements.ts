import {
  contextOf,
  headRanks,
  kvWidth,
  layerParameters,
  PRECISION_BYTES,
  queryWidth,
  schedulerOf,
  totalParameters,
  type Collective,
  type JobSpec,
  type ModuleShape,
  type Placement,
  type SliceRequest,
} from "@internevo/domain";
import { clusterRanks, divisors } from "@internevo/plan";
import {
  backwardOf,
  computePrecision,
  layerModules,
  outerModules,
  ringElements,
  sliceOuterModules,
  sliceRows,
  type LayerSlice,
} from "./layer.ts";
import { layersOfSlice, sliceShape } from "./slice-corrections.ts";
import { unitParameters } from "./stage.ts";
import { workOf } from "./work.ts";
import { slicesOf, type PlanSlice } from "./plan-slices.ts";
import { thin } from "./thin.ts";

export interface CollectiveRequest {
  readonly op: Collective;
  /** Full tensor bytes of the operation (see the collective curves of a profile). */
  readonly bytes: number;
  /** Ordered groups that run the collective at the same time; together all ranks. */
  readonly groups: number[][];
  readonly placement: Placement;
}

export interface OverlapRequest {
  readonly module: ModuleShape;
  readonly collective: CollectiveRequest;
}

/** Everything that a profile needs so that the plans of a job are predicted from measurements. */
export interface RequiredMeasurements {
  readonly modules: ModuleShape[];
  readonly collectives: CollectiveRequest[];
  readonly overlaps: OverlapRequest[];
  /** Micro-batches that the trainer itself is to run. */
  readonly slices: SliceRequest[];
}

/**
 * Distinct row counts (and, for attention, batches) that are measured at most; times between are
 * interpolated.
 */
const MOST_SIZES = 3;
const MOST_COLLECTIVE_SIZES = 7;

// Arrays of doubles sort numbers themselves: many thousands take a few milliseconds.
const ascending = (values: Iterable<number>): number[] => [...Float64Array.from(new Set(values)).sort()];

/** Bytes of a collective's uses. */
interface Uses {
  least: number;
  most: number;
}

/** Powers of two from below the smallest to above the largest use, spread evenly. */
function sizeGrid({ least, most }: Uses): number[] {
  const low = Math.floor(Math.log2(Math.max(64, least)));
  const high = Math.ceil(Math.log2(Math.max(128, most)));
  return thin(
    Array.from({ length: high - low + 1 }, (_, i) => 2 ** (low + i)),
    MOST_COLLECTIVE_SIZES,
  );
}

/** Groups of `size` neighbouring ranks, `stride` apart, over all ranks. */
function groupsOf(ranks: number, size: number, stride: number): number[][] {
  const groups: number[][] = [];
  for (let block = 0; block + size * stride <= ranks; block += size * stride) {
    for (let offset = 0; offset < stride; offset += 1)
      groups.push(Array.from({ length: size }, (_, k) => block + offset + k * stride));
  }
  return groups;
}

/** Group sizes and their placements worth a curve: inside a node, one rank a node, whole nodes. */
function measuredGroups(nodes: number, gpusPerNode: number): { placement: Placement; groups: number[][] }[] {
  const ranks = nodes * gpusPerNode;
  const list: { placement: Placement; groups: number[][] }[] = [];
  for (const size of divisors(gpusPerNode))
    if (size > 1) list.push({ placement: "intra-node", groups: groupsOf(ranks, size, 1) });
  for (const count of divisors(nodes)) {
    if (count === 1) continue;
    list.push({ placement: "inter-node", groups: groupsOf(ranks, count, gpusPerNode) });
    if (gpusPerNode > 1) list.push({ placement: "mixed", groups: groupsOf(ranks, count * gpusPerNode, 1) });
  }
  return list;
}

/** Row counts of a tensor rank's products that are measured: its widths are its own for every s_tp. */
const MOST_TENSOR_SIZES = 3;

/**
 * What tensor ranks run in shapes of their own: products of 1/s_tp of the widths over all rows, and their
 * part of the vocabulary.
 */
function tensorModules(spec: JobSpec, slices: readonly LayerSlice[]): ModuleShape[] {
  return [...new Set(slices.map(({ tensorParallel }) => tensorParallel))]
    .filter((tp) => tp > 1)
    .flatMap((tp) => {
      const own = slices.filter((slice) => slice.tensorParallel === tp);
      const wanted = new Set(
        thin(ascending(own.map(({ microBatchSize }) => microBatchSize)), MOST_TENSOR_SIZES),
      );
      return own
        .filter(({ microBatchSize }) => wanted.has(microBatchSize))
        .flatMap((slice) => {
          const layer = layerModules(spec.model, slice, spec.precision);
          const { embedding, headLoss } = sliceOuterModules(spec.model, slice, spec.precision);
          const products = [...layer.forward, ...layer.backward]
            .map(({ shape }) => shape)
            .filter((shape) => shape.module === "linear" || shape.module === "attention");
          return [...products, embedding, backwardOf(embedding), headLoss];
        });
    });
}

/** Points of a ring's attention, and of what it adds up, that are measured for each length of its parts. */
const MOST_RING_SIZES = 3;

/**
 * What the ranks of a ring run in shapes of their own: attention over their part of the sequence, and sums of
 * gradients.
 */
function ringModules(spec: JobSpec, slices: readonly LayerSlice[]): ModuleShape[] {
  return ascending(slices.map(contextOf))
    .filter((ring) => ring > 1)
    .flatMap((ring) => {
      const own = slices.filter((slice) => contextOf(slice) === ring);
      const work = (slice: LayerSlice): number => slice.microBatchSize / headRanks(slice);
      const wanted = new Set(thin(ascending(own.map(work)), MOST_RING_SIZES));
      return own
        .filter((slice) => wanted.has(work(slice)))
        .flatMap((slice) => {
          const { forward, backward } = layerModules(spec.model, slice, spec.precision);
          return [...forward, ...backward]
            .map(({ shape }) => shape)
            .filter((shape) => shape.module === "attention" || shape.module === "accumulate");
        });
    });
}

function requiredModules(spec: JobSpec, slices: readonly LayerSlice[]): ModuleShape[] {
  const { model, precision } = spec;
  const shapes = new Map<string, ModuleShape>();
  const add = (shape: ModuleShape) => shapes.set(JSON.stringify(shape), shape);
  const whole = slices.filter(({ tensorParallel }) => tensorParallel === 1);
  const rowsWanted = new Set(thin(ascending(whole.map(sliceRows)), MOST_SIZES));
  const batchesWanted = new Set(thin(ascending(whole.map((slice) => slice.microBatchSize)), MOST_SIZES));
  const rowsOnly = new Set<number>();
  for (const slice of whole) {
    const rows = sliceRows(slice);
    if (!rowsWanted.has(rows) && !batchesWanted.has(slice.microBatchSize)) continue;
    const layer = layerModules(model, slice, precision);
    for (const { shape } of [...layer.forward, ...layer.backward]) {
      if (shape.module === "accumulate") continue;
      const wanted =
        shape.module === "attention"
          ? contextOf(slice) === 1 && batchesWanted.has(slice.microBatchSize)
          : rowsWanted.has(rows);
      if (wanted) add(shape);
    }
    if (!rowsWanted.has(rows) || rowsOnly.has(rows)) continue;
    rowsOnly.add(rows);
    const outer = outerModules(model, rows, precision);
    for (const shape of [outer.embedding, backwardOf(outer.embedding), outer.headLoss]) add(shape);
  }
  for (const shape of [...tensorModules(spec, slices), ...ringModules(spec, slices)]) add(shape);
  const compute = computePrecision(precision);
  const total = totalParameters(model);
  for (const shards of thin(divisors(clusterRanks(spec)), MOST_SIZES)) {
    const elements = Math.ceil(total / shards);
    for (const module of ["adamw", "squared-norm", "accumulate"] as const)
      add({ module, pass: "update", precision: compute, elements });
  }
  return [...shapes.values()];
}

/**
 * Of each way to share a sequence: sizes of a group, and of a micro-batch, that the trainer runs; more of the
 * first two, which win more often.
 */
const MOST_SLICE_GROUPS = 3;
const MOST_SLICE_SIZES = [4, 4, 3, 3] as const;

/**
 * Slices that the trainer runs to correct what is composed of modules and collectives: every way to share a
 * sequence (alone, heads, a ring, tensor ranks) over a few sizes of groups, with a small and a large
 * micro-batch, and a few between. Grids of heads and rings are corrected as rings. None where a scheduler
 * shares out the nodes and every run would wait in its queue. On GPUs the trainer's timeline is of the
 * device's events, so slices are measured there as on CPUs.
 */
function requiredSlices(spec: JobSpec, slices: readonly LayerSlice[]): SliceRequest[] {
  if (schedulerOf(spec.cluster) !== null) return [];
  const kinds = [
    slices.filter(({ sequenceParallel }) => sequenceParallel === 1),
    slices.filter(
      (slice) => slice.sequenceParallel > 1 && slice.tensorParallel === 1 && contextOf(slice) === 1,
    ),
    slices.filter((slice) => contextOf(slice) > 1 && headRanks(slice) === 1),
    slices.filter(({ tensorParallel }) => tensorParallel > 1),
  ];
  return kinds.flatMap((kind, index) =>
    thin(ascending(kind.map(({ sequenceParallel }) => sequenceParallel)), MOST_SLICE_GROUPS).flatMap(
      (ranks) => {
        const own = kind.filter(({ sequenceParallel }) => sequenceParallel === ranks);
        const wanted = new Set(
          thin(ascending(own.map(({ microBatchSize }) => microBatchSize)), MOST_SLICE_SIZES[index] as number),
        );
        return own
          .filter(({ microBatchSize }) => wanted.has(microBatchSize))
          .map((slice) => sliceShape(spec, slice))
          .map((shape) => ({ shape, layers: layersOfSlice(shape, spec.model.layers) }));
      },
    ),
  );
}

/** Smallest and largest bytes of every collective that the plans of a job issue. */
function collectiveUses(spec: JobSpec, slices: readonly PlanSlice[]): Map<Collective, Uses> {
  const { model, precision } = spec;
  const bytes = PRECISION_BYTES[precision];
  const ranks = clusterRanks(spec);
  const layer = layerParameters(model);
  const whole = totalParameters(model);
  const table = model.vocabularySize * model.hiddenSize;
  const uses = new Map<Collective, Uses>();
  const use = (op: Collective, ...list: number[]): void => {
    const known = uses.get(op) ?? { least: Infinity, most: 0 };
    uses.set(op, known);
    for (const one of list) {
      known.least = Math.min(known.least, one);
      known.most = Math.max(known.most, one);
    }
  };
  use(
    "all-gather",
    (layer * bytes.parameterBytes) / ranks,
    layer * bytes.parameterBytes,
    table * bytes.parameterBytes,
    whole * bytes.parameterBytes,
  );
  use(
    "reduce-scatter",
    (layer * bytes.gradientBytes) / ranks,
    layer * bytes.gradientBytes,
    table * bytes.gradientBytes,
    whole * bytes.gradientBytes,
  );
  use("all-reduce", 64, (layer * bytes.gradientBytes) / ranks, whole * bytes.gradientBytes);
  for (const slice of slices) {
    const element = sliceRows(slice) * bytes.activationBytes;
    if (slice.inStages) use("point-to-point", element * model.hiddenSize);
    if (contextOf(slice) > 1)
      use(
        "point-to-point",
        ringElements(model, slice) * bytes.activationBytes,
        ringElements(model, slice) * 4,
      );
    if (headRanks(slice) === 1) continue;
    if (slice.tensorParallel > 1) {
      const sequence = spec.sequenceLengthTokens * model.hiddenSize * bytes.activationBytes;
      use("all-gather", sequence);
      use("reduce-scatter", sequence);
      continue;
    }
    use(
      "all-to-all",
      element * Math.min(kvWidth(model), queryWidth(model)),
      element * (queryWidth(model) + 2 * kvWidth(model)),
    );
  }
  return uses;
}

/**
 * OPro (the paper's section "Overlap Profiler") as a function of what computes and what communicates where: a
 * layer's largest product, and attention, forward beside all-gathers of parameters and backward beside
 * reduce-scatters of gradients, one after another, of a layer's smallest and of its largest unit (short
 * messages slow computation down more), for every kind of group; attention beside the messages of a ring,
 * where plans have one.
 */
function requiredOverlaps(
  spec: JobSpec,
  modules: readonly ModuleShape[],
  groups: ReturnType<typeof measuredGroups>,
  ring: readonly OverlapRequest["collective"][],
): OverlapRequest[] {
  const bytes = PRECISION_BYTES[spec.precision];
  const { units } = unitParameters(spec.model, 1);
  const sizes = [...new Set([Math.min(...units), Math.max(...units)])];
  const largest = (module: "linear" | "attention", pass: "forward" | "backward"): ModuleShape | undefined => {
    const ofPass = modules.filter((shape) => shape.module === module && shape.pass === pass);
    return ofPass.reduce<ModuleShape | undefined>(
      (most, shape) => (most && workOf(most).flops >= workOf(shape).flops ? most : shape),
      undefined,
    );
  };
  const list: OverlapRequest[] = [];
  for (const kind of ["linear", "attention"] as const) {
    const [forward, backward] = [largest(kind, "forward"), largest(kind, "backward")];
    for (const { placement, groups: ranks } of groups) {
      const unit = 64 * (ranks[0]?.length ?? 1);
      const whole = (size: number): number => Math.ceil(size / unit) * unit;
      for (const elements of sizes) {
        if (forward)
          list.push({
            module: forward,
            collective: {
              op: "all-gather",
              bytes: whole(elements * bytes.parameterBytes),
              groups: ranks,
              placement,
            },
          });
        if (backward)
          list.push({
            module: backward,
            collective: {
              op: "reduce-scatter",
              bytes: whole(elements * bytes.gradientBytes),
              groups: ranks,
              placement,
            },
          });
      }
    }
    if (kind === "attention" && forward)
      for (const collective of ring) list.push({ module: forward, collective });
  }
  return list;
}

/** Pairs of ranks of neighbouring stages: on one node, and on two with every rank of both sending at once. */
function stagePairs(nodes: number, gpusPerNode: number): { placement: Placement; groups: number[][] }[] {
  const list: { placement: Placement; groups: number[][] }[] = [];
  const node = Array.from({ length: Math.floor(gpusPerNode / 2) }, (_, k) => [2 * k, 2 * k + 1]);
  if (gpusPerNode > 1)
    list.push({
      placement: "intra-node",
      groups: Array.from({ length: nodes }, (_, n) =>
        node.map((pair) => pair.map((rank) => n * gpusPerNode + rank)),
      ).flat(),
    });
  if (nodes > 1)
    list.push({
      placement: "inter-node",
      groups: Array.from({ length: Math.floor(nodes / 2) }, (_, k) =>
        groupsOf(2 * gpusPerNode, 2, gpusPerNode).map((pair) =>
          pair.map((rank) => 2 * k * gpusPerNode + rank),
        ),
      ).flat(),
    });
  return list;
}

/**
 * What must be measured so that every plan of a job is predicted from measurements: module shapes per rank
 * (b·S/s_sp rows; attention over whole sequences with heads / s_sp, or over a ring rank's part of them),
 * collectives on a grid of sizes around their uses for every group size and placement that the cluster has,
 * messages between two ranks. Deduplicated; thinned so that a small job's probe stays short.
 */
export function requiredMeasurements(spec: JobSpec): RequiredMeasurements {
  const slices = slicesOf(spec);
  const collectives: CollectiveRequest[] = [];
  const groups = measuredGroups(spec.cluster.nodes, spec.cluster.gpusPerNode);
  for (const [op, uses] of collectiveUses(spec, slices)) {
    for (const { placement, groups: list } of op === "point-to-point"
      ? stagePairs(spec.cluster.nodes, spec.cluster.gpusPerNode)
      : groups) {
      // Every rank's part is a whole number of cache lines, so no group size needs padding.
      const unit = 64 * (list[0]?.length ?? 1);
      for (const bytes of new Set(sizeGrid(uses).map((grid) => Math.ceil(grid / unit) * unit)))
        collectives.push({ op, bytes, groups: list, placement });
    }
  }
  const modules = requiredModules(spec, slices);
  // A ring's message: the largest that is measured of each kind of pair.
  const messages = slices.some((slice) => contextOf(slice) > 1)
    ? collectives.filter(({ op }) => op === "point-to-point")
    : [];
  const ring = [...new Map(messages.map((message) => [message.placement, message])).values()];
  return {
    modules,
    collectives,
    overlaps: requiredOverlaps(spec, modules, groups, ring),
    slices: requiredSlices(spec, slices),
  };
}
