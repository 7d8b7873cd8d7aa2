import {
  commonProgram,
  PRECISION_BYTES,
  tensorCut,
  tensorElements,
  type ByUnit,
  type ModuleShape,
  type Profile,
} from "@internevo/domain";
import { nodesTouched, type Layout, type Sharding } from "@internevo/plan";
import type { CollectiveTimes, GroupPlace } from "./collectives.ts";
import { computePrecision } from "./layer.ts";
import { byUnit, sumOfUnits } from "./layer-units.ts";
import type { ModuleTimes } from "./modules.ts";
import type { OverlapTimes, Slowdown } from "./overlap-times.ts";
import { fullestStages, unitParameters, up, type JobShape } from "./stage.ts";
import { rooflineSeconds } from "./work.ts";

/** Seconds of one collective for each kind of unit. */
export interface UnitTimes {
  readonly layer: number;
  readonly embedding: number;
  readonly head: number;
}

/** R of what runs beside the collectives of a sharding. */
export interface ShardSlowdowns {
  readonly forwardGather: Slowdown;
  readonly backwardGather: Slowdown;
  readonly scatter: Slowdown;
  /** Of the reduction over s_oss and the replicas. */
  readonly reduce: Slowdown;
  /** Of the all-gather of updated parameters beside the update. */
  readonly update: Slowdown;
}

/**
 * Seconds that a choice of s_ps and s_oss costs. Gradient sharding (s_gs) only decides how often `reduce`
 * runs.
 */
export interface ShardTime {
  /** All-gather of a unit's parameters over the s_ps group. */
  readonly gather: UnitTimes;
  /** Reduce-scatter of a unit's gradients over the s_ps group. */
  readonly scatter: UnitTimes;
  /** The same of each unit of a layer, and of the reduction. */
  readonly gatherModules: ByUnit;
  readonly scatterModules: ByUnit;
  readonly reduceModules: ByUnit;
  /**
   * Gradients of a unit on their way: the staging buffer cleared, and what is reduced of it added to the kept
   * gradients.
   */
  readonly stage: UnitTimes;
  /** The same with gradient sharding, which stages without parameter sharding too. */
  readonly stageReduced: UnitTimes;
  /** Reduce-scatter over the s_oss group, then all-reduce of the piece over the replicas. */
  readonly reduce: UnitTimes;
  /**
   * The same for all units of the fullest stage at the end of a step; one all-reduce of everything without
   * s_oss.
   */
  readonly reduceOnceSeconds: number;
  /**
   * Gradients that tensor ranks, and with tied embeddings the two ends of a pipeline, share: once a step in
   * any case.
   */
  readonly shareOnceSeconds: number;
  /** Gradient norm and what all ranks tell each other at the end of a step. */
  readonly normSeconds: number;
  readonly optimizerSeconds: number;
  /**
   * All-gather of the updated parameters, which a plan that overlaps anything runs beside the update of the
   * next unit.
   */
  readonly updateGatherSeconds: number;
  /** The same of each unit of a layer, and of the embedding. */
  readonly updateGatherModules: ByUnit;
  readonly updateGatherEmbeddingSeconds: number;
  /** Whether these gathers go on into the next step, until a unit is first used there. */
  readonly updateTravels: boolean;
  readonly slowdowns: ShardSlowdowns;
  readonly updateRooflineSeconds: number;
}

/** What of a job decides the times of a sharding: jobs that agree in it share them. */
export type ShardedJob = Pick<JobShape, "model" | "precision"> & {
  readonly cluster: Pick<JobShape["cluster"], "gpusPerNode">;
};

/** No seconds for any unit. */
export const NO_TIME: UnitTimes = { layer: 0, embedding: 0, head: 0 };
export const NO_MODULES: ByUnit = byUnit(() => 0);

/** Bytes of the loss and norm sums and of the status word: latency, not size. */
const SCALAR_BYTES = 64;
const SCALAR_REDUCTIONS = 3;

/** What a sharding is priced with. */
interface ShardCosts {
  readonly job: ShardedJob;
  readonly times: ModuleTimes;
  readonly collectives: CollectiveTimes;
  readonly overlaps: OverlapTimes;
  readonly device: Profile["device"];
}

/** The padded units of a layer and of the model's ends, and over how many ranks each is cut. */
interface ShardedUnits {
  readonly ps: number;
  readonly oss: number;
  /** Elements of the units of a layer. */
  readonly units: readonly number[];
  readonly sizes: UnitTimes;
  /** Whether the head has parameters of its own. */
  readonly hasHead: boolean;
  readonly bytes: (typeof PRECISION_BYTES)[keyof typeof PRECISION_BYTES];
}

/** The groups of ranks over which a sharding communicates. */
interface ShardGroups {
  readonly parameters: GroupPlace;
  readonly optimizer: GroupPlace;
  readonly replicas: GroupPlace;
  readonly everyone: GroupPlace;
}

function shardedUnits({ job }: ShardCosts, tensorParallel: number, ps: number, oss: number): ShardedUnits {
  const unit = 64 * ps * oss;
  const parameters = unitParameters(job.model, tensorParallel);
  const embedding = up(parameters.embedding, unit);
  const units = parameters.units.map((elements) => up(elements, unit));
  const hasHead = parameters.head > 0;
  return {
    ps,
    oss,
    units,
    // Tied embeddings: the head's part of the step gathers and reduces the embedding's unit.
    sizes: { layer: sumOfUnits(units), embedding, head: hasHead ? up(parameters.head, unit) : embedding },
    hasHead,
    bytes: PRECISION_BYTES[job.precision],
  };
}

/** Seconds of each unit, by the elements of each. */
const byModule = ({ units }: ShardedUnits, seconds: (elements: number) => number): ByUnit =>
  byUnit((place) => seconds(units[place] as number));
const each = (
  sharded: ShardedUnits,
  seconds: (elements: number) => number,
  ofUnits = byModule(sharded, seconds),
): UnitTimes => ({
  layer: sumOfUnits(ofUnits),
  embedding: seconds(sharded.sizes.embedding),
  head: seconds(sharded.sizes.head),
});

/** Gathers of parameters and reduce-scatters of gradients over s_ps, and what is staged between. */
function unitCollectives(
  { job, times, collectives, device }: ShardCosts,
  sharded: ShardedUnits,
  groups: ShardGroups,
): Pick<ShardTime, "gather" | "scatter" | "gatherModules" | "scatterModules" | "stage" | "stageReduced"> {
  const { ps, oss, bytes } = sharded;
  const precision = computePrecision(job.precision);
  const staged =
    (kept: number) =>
    (size: number): number =>
      (size * bytes.gradientBytes) / device.memoryBandwidthBytesPerSecond +
      times.seconds({ module: "accumulate", pass: "update", precision, elements: size / kept });
  const gather = (size: number): number =>
    collectives.seconds("all-gather", size * bytes.parameterBytes, groups.parameters);
  const scatter = (size: number): number =>
    collectives.seconds("reduce-scatter", size * bytes.gradientBytes, groups.parameters);
  const gatherModules = ps > 1 ? byModule(sharded, gather) : NO_MODULES;
  const scatterModules = ps > 1 ? byModule(sharded, scatter) : NO_MODULES;
  return {
    gather: ps > 1 ? each(sharded, gather, gatherModules) : NO_TIME,
    scatter: ps > 1 ? each(sharded, scatter, scatterModules) : NO_TIME,
    gatherModules,
    scatterModules,
    stage: ps > 1 ? each(sharded, staged(ps)) : NO_TIME,
    stageReduced: oss > 1 ? each(sharded, staged(ps * oss)) : NO_TIME,
  };
}

/** Reductions over s_oss and the replicas, and what happens once a step on the stage that has most of it. */
function stepCollectives(
  { job, times, collectives, device }: ShardCosts,
  sharded: ShardedUnits,
  groups: ShardGroups,
  pipelineParallel: number,
): Pick<
  ShardTime,
  | "reduce"
  | "reduceModules"
  | "reduceOnceSeconds"
  | "normSeconds"
  | "optimizerSeconds"
  | "updateGatherSeconds"
  | "updateGatherModules"
  | "updateGatherEmbeddingSeconds"
  | "updateRooflineSeconds"
> {
  const { ps, oss, bytes, sizes } = sharded;
  const reduced = (size: number): number =>
    collectives.seconds("reduce-scatter", (size / ps) * bytes.gradientBytes, groups.optimizer) +
    collectives.seconds("all-reduce", (size / (ps * oss)) * bytes.gradientBytes, groups.replicas);
  const gathered = (size: number): number =>
    collectives.seconds("all-gather", (size / ps) * bytes.parameterBytes, groups.optimizer);
  const reduceModules = byModule(sharded, reduced);
  const reduce = each(sharded, reduced, reduceModules);
  const updateGatherModules = oss > 1 ? byModule(sharded, gathered) : NO_MODULES;
  const updateGather = oss > 1 ? each(sharded, gathered, updateGatherModules) : NO_TIME;
  const once = fullestStages(job.model, pipelineParallel).map(({ layers, hasEmbedding, hasHead }) => {
    const has = { embedding: hasEmbedding ? 1 : 0, head: hasHead && sharded.hasHead ? 1 : 0 };
    const sum = (of: UnitTimes) => layers * of.layer + has.embedding * of.embedding + has.head * of.head;
    const elements = sum(sizes);
    return {
      elements: elements / (ps * oss),
      gather: sum(updateGather),
      reduce: oss === 1 ? reduced(elements) : sum(reduce),
    };
  });
  const most = (of: (stage: (typeof once)[number]) => number) => Math.max(...once.map(of));
  const updated = {
    pass: "update",
    precision: computePrecision(job.precision),
    elements: most((stage) => stage.elements),
  } as const;
  const norm: ModuleShape = { module: "squared-norm", ...updated };
  const optimizer: ModuleShape = { module: "adamw", ...updated };
  return {
    reduceModules,
    reduce,
    reduceOnceSeconds: most((stage) => stage.reduce),
    normSeconds:
      times.seconds(norm) +
      SCALAR_REDUCTIONS * collectives.seconds("all-reduce", SCALAR_BYTES, groups.everyone),
    optimizerSeconds: times.seconds(optimizer),
    updateGatherSeconds: most((stage) => stage.gather),
    updateGatherModules,
    updateGatherEmbeddingSeconds: updateGather.embedding,
    updateRooflineSeconds: rooflineSeconds(norm, device) + rooflineSeconds(optimizer, device),
  };
}

/** R of the collectives of a sharding, by the messages of the units of a layer. */
function shardSlowdowns(
  { overlaps }: ShardCosts,
  { ps, oss, units, bytes }: ShardedUnits,
  groups: ShardGroups,
): ShardSlowdowns {
  const parameterBytes = units.map((size) => size * bytes.parameterBytes);
  const gradientBytes = units.map((size) => size * bytes.gradientBytes);
  const ownGradientBytes = gradientBytes.map((size) => size / ps);
  return {
    forwardGather: overlaps.slowdown("all-gather", "forward", groups.parameters, parameterBytes),
    backwardGather: overlaps.slowdown("all-gather", "backward", groups.parameters, parameterBytes),
    scatter: overlaps.slowdown("reduce-scatter", "backward", groups.parameters, gradientBytes),
    reduce:
      oss > 1
        ? overlaps.slowdown("reduce-scatter", "backward", groups.optimizer, ownGradientBytes)
        : overlaps.slowdown("all-reduce", "backward", groups.replicas, ownGradientBytes),
    update: overlaps.slowdown(
      "all-gather",
      "forward",
      groups.optimizer,
      units.map((size) => (size / ps) * bytes.parameterBytes),
    ),
  };
}

/**
 * Times of one (s_ps, s_oss) on a layout. Sizes are those of the padded units (native/MEMORY.md, "What is
 * communicated"): parameters gathered over s_ps; gradients reduce-scattered over s_ps, then over s_oss, then
 * all-reduced over the R/(s_ps·s_oss) replicas of that piece; updated parameters gathered over s_oss.
 */
export function shardTime(
  job: ShardedJob,
  layout: Layout,
  sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">,
  times: ModuleTimes,
  collectives: CollectiveTimes,
  overlaps: OverlapTimes,
  { device, executor }: Pick<Profile, "device" | "executor">,
): ShardTime {
  const { parameterSharding: ps, optimizerStateSharding: oss } = sharding;
  const { pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp } = layout;
  const costs: ShardCosts = { job, times, collectives, overlaps, device };
  const place = (size: number, stride: number): GroupPlace => ({
    size,
    nodes: nodesTouched({ size, stride }, job.cluster.gpusPerNode),
  });
  const groups: ShardGroups = {
    parameters: place(ps, tp),
    optimizer: place(oss, tp * ps),
    replicas: place((dp * sp) / tp / (ps * oss), tp * ps * oss),
    everyone: place(pp * dp * sp, 1),
  };
  const sharded = shardedUnits(costs, tp, ps, oss);
  const { sizes } = sharded;
  const shareOnceSeconds = sharedGradientSeconds(job, layout, ps * oss, sizes, (bytes, size, stride) =>
    collectives.seconds("all-reduce", bytes, place(size, stride)),
  );
  return {
    ...unitCollectives(costs, sharded, groups),
    ...stepCollectives(costs, sharded, groups, pp),
    shareOnceSeconds,
    updateTravels: executor.updatedParameters !== "within-update",
    slowdowns: shardSlowdowns(costs, sharded, groups),
  };
}

/**
 * All-reduces of gradients that several slices of the model hold alike: norm gains on all tensor ranks,
 * projections to keys and values on the s_tp/K ranks that share a head, a tied embedding on the first and the
 * last stage. Each tensor of the part that a rank updates is one message; the rank that has most of them is
 * the slowest.
 */
function sharedGradientSeconds(
  job: ShardedJob,
  { pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp }: Layout,
  shards: number,
  units: UnitTimes,
  allReduce: (bytes: number, size: number, stride: number) => number,
): number {
  const { model, precision } = job;
  const { gradientBytes } = PRECISION_BYTES[precision];
  const layers = Math.ceil(model.layers / pp);
  const most = units.layer / shards;
  const program = commonProgram(model);
  let seconds = 0;
  for (const cut of ["whole", "shared"] as const) {
    const ranks = cut === "whole" ? tp : Math.floor(tp / model.kvHeads);
    const sizes = program.tensors
      .filter((tensor) => tensorCut(program, tensor) === cut)
      .map((tensor) => Math.min(tensorElements(program, model, tensor, tp), most));
    if (ranks <= 1 || sizes.length === 0) continue;
    const messages = shards === 1 ? sizes : [Math.max(...sizes)];
    const ofLayer = messages.map((size) => allReduce(gradientBytes * size, ranks, 1));
    seconds += layers * ofLayer.reduce((sum, one) => sum + one, 0);
  }
  if (model.tiedEmbeddings && pp > 1)
    seconds += allReduce((gradientBytes * units.embedding) / shards, 2, (pp - 1) * dp * sp);
  return seconds;
}
