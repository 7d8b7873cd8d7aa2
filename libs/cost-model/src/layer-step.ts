import { splitKind, type ByUnit, type Pass, type Plan, type SplitSource } from "@internevo/domain";
import { backwardGroups, GATE_UP_UNITS, type GateUp, type OverlapChoice } from "@internevo/plan";
import type { SliceTime } from "./layer-time.ts";
import { ATTENTION_UNIT, sumOfUnits, UNIT_BLOCKS, UNIT_COUNT } from "./layer-units.ts";
import { mixed } from "./overlap-times.ts";
import type { ShardTime, UnitTimes } from "./shard-time.ts";
import { together } from "./together.ts";

export const overlapsAny = ({ forwardOverlap, backwardOverlap }: OverlapChoice): boolean =>
  forwardOverlap !== "none" || backwardOverlap !== "none";

/**
 * Whether ranks that share a sequence communicate beside computation: a ring where the plan overlaps
 * anything, tensor ranks where its backward pass does.
 */
export const sharesBeside = (split: SplitSource, overlap: OverlapChoice): boolean => {
  const kind = splitKind(split);
  return kind === "ring" ? overlapsAny(overlap) : kind === "tensor" && overlap.backwardOverlap !== "none";
};

/** Seconds of one layer, or of embedding or head, for one micro-batch, by cause. */
export interface Part {
  readonly compute: number;
  readonly recompute: number;
  readonly sequence: number;
  readonly parameters: number;
  /** The reduction over the replicas, run once. */
  readonly reduction: number;
  /** Copies to the host and back that computation does not hide. */
  readonly copies: number;
}

/** What is added to a pass of a layer by the communication of its parameters and gradients. */
export interface Waited {
  readonly parameters: number;
  readonly reduction: number;
}

/**
 * What the backward pass makes again of a layer: nothing, gate and up, or all of it.
 */
export type LayerKind = GateUp | "recomputed";

type BackwardWaits = Readonly<Record<Plan["backwardOverlap"], Waited>>;

/** Of the forward pass by granularity, of the backward pass by granularity and by what it makes again. */
export type LayerWaits = Readonly<Record<LayerKind, BackwardWaits>> & {
  readonly forward: Readonly<Record<Plan["forwardOverlap"], number>>;
};

/** Seconds of the units at some places. */
function sumAt(values: ByUnit, places: readonly number[]): number {
  let sum = 0;
  for (const place of places) sum += values[place] as number;
  return sum;
}

/**
 * A group of units in use in a pass. Meanwhile the next one is gathered, and gradients of the former one are
 * reduced.
 */
interface Turn {
  readonly own: readonly number[];
  readonly next: readonly number[];
  readonly former: readonly number[];
  /** Whether attention runs in its time. */
  readonly attends: boolean;
}

/**
 * Layers follow on each other, so the turns of a layer are a circle.
 * @param order the groups in the order of the pass
 */
function turnsOf(order: readonly (readonly number[])[], pass: Pass): readonly Turn[] {
  const at = (place: number): readonly number[] =>
    order[(place + order.length) % order.length] as readonly number[];
  return order.map((own, place) => ({
    own,
    next: at(place + 1),
    former: at(place - 1),
    attends: own.includes(ATTENTION_UNIT[pass]),
  }));
}

const SINGLE_UNITS = Array.from({ length: UNIT_COUNT }, (_, place) => [place]);
const FORWARD = { blocks: turnsOf(UNIT_BLOCKS, "forward"), units: turnsOf(SINGLE_UNITS, "forward") };
const backwardTurns = (gateUp: GateUp): Readonly<Record<"blocks" | "units", readonly Turn[]>> => ({
  blocks: turnsOf(backwardGroups("block", gateUp), "backward"),
  units: turnsOf(backwardGroups("intra-layer", gateUp), "backward"),
});
const BACKWARD = { kept: backwardTurns("kept"), again: backwardTurns("again") };
const isGateUp = (place: number): boolean => GATE_UP_UNITS.includes(place);

/** How much longer computation c takes with communication m beside it. */
const added = (compute: number, communication: number, slowdown: number): number =>
  together(compute, communication, slowdown) - compute;

/** What a layer of one slice waits for under one sharding. */
class LayerOverlap {
  readonly #slice: SliceTime;
  readonly #shard: ShardTime;
  readonly #movedSeconds: number;
  readonly #exposed: Waited;

  constructor(slice: SliceTime, shard: ShardTime) {
    this.#slice = slice;
    this.#shard = shard;
    this.#movedSeconds = shard.gather.layer + shard.scatter.layer;
    this.#exposed = { parameters: this.#movedSeconds, reduction: shard.reduce.layer };
  }

  get isIdle(): boolean {
    return this.#movedSeconds === 0 && this.#shard.reduce.layer === 0;
  }

  /**
   * Computation of one group of the backward pass beside the gather of the next, and the reductions of the
   * one before. Collectives follow one another: R is the mean of theirs by how long each takes.
   */
  #beside(compute: number, attention: number, gather: number, scattered: number, reduced: number): Waited {
    const { backwardGather, scatter, reduce } = this.#shard.slowdowns;
    const moved = gather + scattered;
    const weighted =
      mixed(backwardGather, attention, compute) * gather + mixed(scatter, attention, compute) * scattered;
    const parameters = added(compute, moved, moved > 0 ? weighted / moved : 1);
    if (reduced === 0) return { parameters, reduction: 0 };
    const seconds = moved + reduced;
    const slowdown = seconds > 0 ? (weighted + mixed(reduce, attention, compute) * reduced) / seconds : 1;
    return { parameters, reduction: Math.max(0, added(compute, seconds, slowdown) - parameters) };
  }

  #backwards(turns: readonly Turn[], gateUpSeconds: number): Waited {
    const { backwardModules, backwardAttentionSeconds } = this.#slice;
    const { gatherModules, scatterModules, reduceModules } = this.#shard;
    let parameters = 0;
    let reduction = 0;
    for (const { own, next, former, attends } of turns) {
      const one = this.#beside(
        sumAt(backwardModules, own) + (own.some(isGateUp) ? gateUpSeconds : 0),
        attends ? backwardAttentionSeconds : 0,
        sumAt(gatherModules, next),
        sumAt(scatterModules, former),
        sumAt(reduceModules, former),
      );
      parameters += one.parameters;
      reduction += one.reduction;
    }
    return { parameters, reduction };
  }

  /** What is waited for after some wait in any case. */
  #forwards(turns: readonly Turn[], wait: number): number {
    const { forwardModules, forwardAttentionSeconds } = this.#slice;
    const { forwardGather } = this.#shard.slowdowns;
    let seconds = wait;
    for (const { own, next, attends } of turns) {
      const compute = sumAt(forwardModules, own);
      const slowdown = attends
        ? mixed(forwardGather, forwardAttentionSeconds, compute)
        : forwardGather.product;
      seconds += added(compute, sumAt(this.#shard.gatherModules, next), slowdown);
    }
    return seconds;
  }

  /**
   * A collective that nothing hides makes ranks wait for one another at every unit; one that is issued a
   * group ahead lets them differ by that.
   */
  #meets(waited: Waited, seconds: number): Waited {
    return this.#movedSeconds > 0
      ? { ...waited, parameters: waited.parameters + seconds }
      : { ...waited, reduction: waited.reduction + seconds };
  }

  forward(): LayerWaits["forward"] {
    const { forwardSeconds, forwardAttentionSeconds, unitWaits, layerWaits } = this.#slice;
    const gathered = this.#shard.gather.layer;
    const wait = gathered > 0 ? layerWaits * forwardSeconds : 0;
    const whole = mixed(this.#shard.slowdowns.forwardGather, forwardAttentionSeconds, forwardSeconds);
    return {
      none: gathered > 0 ? gathered + unitWaits * forwardSeconds : 0,
      block: this.#forwards(FORWARD.blocks, wait),
      "inter-layer": wait + added(forwardSeconds, gathered, whole),
      "intra-layer": this.#forwards(FORWARD.units, wait),
    };
  }

  /** @param gateUpSeconds in which gate and up are made again, where they are not kept */
  backward(gateUp: keyof typeof BACKWARD, gateUpSeconds: number): BackwardWaits {
    const { blocks, units } = BACKWARD[gateUp];
    const { unitWaits, layerWaits, backwardSeconds } = this.#slice;
    const computed = backwardSeconds + gateUpSeconds;
    return {
      none: this.#meets(this.#exposed, unitWaits * computed),
      block: this.#meets(this.#backwards(blocks, gateUpSeconds), layerWaits * computed),
      "intra-layer": this.#meets(this.#backwards(units, gateUpSeconds), layerWaits * computed),
    };
  }

  recomputed(): BackwardWaits {
    const { backwardModules, backwardAttentionSeconds, recomputeSeconds } = this.#slice;
    const { unitWaits, layerWaits, backwardSeconds } = this.#slice;
    const { gather, scatter, reduce } = this.#shard;
    const whole = this.#beside(
      recomputeSeconds + sumOfUnits(backwardModules),
      backwardAttentionSeconds,
      gather.layer,
      scatter.layer,
      reduce.layer,
    );
    const repeated = backwardSeconds + recomputeSeconds;
    return {
      none: this.#meets(this.#exposed, unitWaits * repeated),
      block: this.#meets(whole, layerWaits * repeated),
      "intra-layer": this.#meets(whole, layerWaits * repeated),
    };
  }
}

/**
 * What a layer waits for, for every granularity (native/README.md, "Overlap"). While a unit, a block or a
 * layer is in use the next one of the pass is gathered and the gradients of the one before are reduced; a
 * group that is in use for longer than that takes hides it, another does not. Layers follow on each other, so
 * the order is a circle. A layer that is recomputed is gathered whole.
 */
export function layerWaits(slice: SliceTime, shard: ShardTime): LayerWaits {
  const overlap = new LayerOverlap(slice, shard);
  if (overlap.isIdle) return NO_WAITS;
  const kept = overlap.backward("kept", 0);
  let again: BackwardWaits | undefined;
  return {
    forward: overlap.forward(),
    kept,
    // Its units are gathered as where they are kept.
    host: kept,
    // Few searches ask for it of a family.
    get again() {
      return (again ??= overlap.backward("again", slice.gateUpSeconds));
    },
    recomputed: overlap.recomputed(),
  };
}

const least = (a: Waited, b: Waited): Waited => ({
  parameters: Math.min(a.parameters, b.parameters),
  reduction: Math.min(a.reduction, b.reduction),
});

/**
 * Waits that are not longer than those of any granularity: whatever a plan chooses of `none` or not in its
 * backward pass.
 */
export function leastWaits(waits: LayerWaits): LayerWaits {
  const { forward, kept, recomputed } = waits;
  const first = Math.min(forward.none, forward.block, forward["inter-layer"], forward["intra-layer"]);
  const of = (backward: BackwardWaits): BackwardWaits => {
    const hidden = least(backward.block, backward["intra-layer"]);
    return { none: backward.none, block: hidden, "intra-layer": hidden };
  };
  const ofKept = of(kept);
  return {
    forward: { none: first, block: first, "inter-layer": first, "intra-layer": first },
    kept: ofKept,
    host: ofKept,
    get again() {
      return of(waits.again);
    },
    recomputed: of(recomputed),
  };
}

const NO_WAIT: Waited = { parameters: 0, reduction: 0 };
const NO_BACKWARD_WAITS: BackwardWaits = { none: NO_WAIT, block: NO_WAIT, "intra-layer": NO_WAIT };
/** Nothing is waited for: less than any plan waits. */
export const NO_WAITS: LayerWaits = {
  forward: { none: 0, block: 0, "inter-layer": 0, "intra-layer": 0 },
  kept: NO_BACKWARD_WAITS,
  again: NO_BACKWARD_WAITS,
  host: NO_BACKWARD_WAITS,
  recomputed: NO_BACKWARD_WAITS,
};

/**
 * With gradient sharding a gradient is added to what is kept after its reduction, else after the
 * reduce-scatter over s_ps.
 */
export const stagingOf = (shard: ShardTime, reduceEveryMicroBatch: boolean): UnitTimes =>
  reduceEveryMicroBatch ? shard.stageReduced : shard.stage;

/** What the backward pass of a layer makes again: computation, and collectives of the sequence. */
export function againSeconds(
  slice: SliceTime,
  kind: LayerKind,
): { readonly compute: number; readonly sequence: number } {
  if (kind === "kept" || kind === "host") return { compute: 0, sequence: 0 };
  return kind === "again"
    ? { compute: slice.gateUpSeconds, sequence: slice.gateUpCommunicationSeconds }
    : { compute: slice.recomputeSeconds, sequence: slice.recomputeCommunicationSeconds };
}

/**
 * What the copies of a layer add to its two passes: of the one behind its forward pass what is longer than
 * the forward pass of the next layer, of the one ahead of its backward pass what is longer than the backward
 * pass of the layer before it.
 */
export const copySeconds = (slice: SliceTime, kind: LayerKind): number =>
  kind === "host"
    ? Math.max(0, slice.toHostSeconds - slice.forwardSeconds) +
      Math.max(0, slice.toDeviceSeconds - slice.backwardSeconds)
    : 0;

/** One layer, forward and backward. */
export function layerPart(
  slice: SliceTime,
  shard: ShardTime,
  waits: LayerWaits,
  overlap: OverlapChoice,
  reduceEveryMicroBatch: boolean,
  kind: LayerKind,
): Part {
  const backward = waits[kind][overlap.backwardOverlap];
  const again = againSeconds(slice, kind);
  return {
    compute: slice.forwardSeconds + slice.backwardSeconds + stagingOf(shard, reduceEveryMicroBatch).layer,
    recompute: again.compute,
    sequence: slice.forwardCommunicationSeconds + slice.backwardCommunicationSeconds + again.sequence,
    parameters: waits.forward[overlap.forwardOverlap] + backward.parameters,
    reduction: backward.reduction,
    copies: copySeconds(slice, kind),
  };
}

/**
 * Embedding or head: the embedding is gathered before and reduced after all layers, so nothing hides it; the
 * head is between them.
 */
export function outerPart(
  unit: "embedding" | "head",
  slice: SliceTime,
  shard: ShardTime,
  reduceEveryMicroBatch: boolean,
): Part {
  const compute = slice[`${unit}Seconds`] + stagingOf(shard, reduceEveryMicroBatch)[unit];
  return {
    compute,
    recompute: 0,
    sequence: slice[`${unit}CommunicationSeconds`],
    parameters: shard.gather[unit] + shard.scatter[unit],
    reduction: shard.reduce[unit],
    copies: 0,
  };
}

/**
 * What a first forward pass stands still for parameters that are gathered in the order of their use: the
 * furthest that the gathers up to a unit are behind the computation up to it, in the first or in the last
 * layer, for in between it grows or shrinks evenly.
 */
function behindGathers(
  { forwardModules }: Pick<SliceTime, "forwardModules">,
  { updateGatherModules, updateGatherEmbeddingSeconds }: ShardTime,
  beforeSeconds: number,
  layers: number,
): number {
  const [ofLayer, computed] = [sumOfUnits(updateGatherModules), sumOfUnits(forwardModules)];
  let behind = 0;
  for (const earlier of layers > 1 ? [0, layers - 1] : [0]) {
    let ahead = beforeSeconds - updateGatherEmbeddingSeconds + earlier * (computed - ofLayer);
    for (const [module, seconds] of updateGatherModules.entries()) {
      behind = Math.max(behind, seconds - ahead);
      ahead += (forwardModules[module] as number) - seconds;
    }
  }
  return behind;
}

/**
 * Gradient norm, optimizer, and the all-gather of what was updated. Where a plan overlaps anything the
 * gathers travel beside the update and, with our trainer, into the next step, each unit's until it is first
 * used there: what the update and a first forward pass of the stage's layers hide is not waited for.
 */
export function updateSeconds(
  slice: Pick<SliceTime, "forwardSeconds" | "forwardModules" | "forwardAttentionSeconds">,
  shard: ShardTime,
  overlap: OverlapChoice,
  stageLayers: number,
): number {
  const { normSeconds, optimizerSeconds, updateGatherSeconds, updateTravels } = shard;
  const once = normSeconds + optimizerSeconds;
  if (!overlapsAny(overlap)) return once + updateGatherSeconds;
  const { update } = shard.slowdowns;
  if (!updateTravels) return once + added(optimizerSeconds, updateGatherSeconds, update.product);
  const beside = optimizerSeconds + stageLayers * slice.forwardSeconds;
  const waited = Math.max(
    updateGatherSeconds - beside,
    behindGathers(slice, shard, optimizerSeconds, stageLayers),
  );
  return (
    once +
    waited +
    added(
      beside,
      updateGatherSeconds - waited,
      mixed(update, slice.forwardAttentionSeconds, slice.forwardSeconds),
    )
  );
}
