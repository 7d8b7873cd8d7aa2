import type { Collective, ModuleShape, Overlap, Placement, Profile } from "@internevo/domain";
import type { GroupPlace } from "./collectives.ts";
import { placementClass } from "./mesh.ts";
import { isProduct } from "./work.ts";
import { Recorder, type Kept, type Warn } from "./warnings.ts";

/** What computes while a collective is under way: the products of a layer and what is around them, or attention. */
export type ComputeKind = "product" | "attention";

/** R of each kind of computation beside one collective, at least 1. */
export type Slowdown = Readonly<Record<ComputeKind, number>>;

/** Nothing costs anything beside the other. */
export const NO_SLOWDOWN: Slowdown = { product: 1, attention: 1 };

/** One collective where one group sits, beside one kind of computation. */
interface Measured {
  readonly kind: ComputeKind | null;
  readonly pass: string | null;
  readonly placement: Placement | null;
  readonly groupSize: number;
  readonly slowdown: number;
}

/** Of lengths more unlike than this, noise of the longer would say more than the shorter. */
const MOST_UNLIKE = 8;

/**
 * R of the formula max + (R − 1)·min (see `together`) from a measured pair. OPro says the time of both over the longer of the two,
 * which is R where both are as long; with the times alone the slow-down is laid on the part in which both run.
 */
function slowdownOf({ slowdown, computeSeconds, communicationSeconds }: Overlap): number {
  if (computeSeconds === undefined || communicationSeconds === undefined) return Math.max(1, slowdown);
  const unlike = Math.max(computeSeconds, communicationSeconds) / Math.min(computeSeconds, communicationSeconds);
  return 1 + Math.max(0, slowdown - 1) * Math.min(MOST_UNLIKE, unlike);
}

const kindOf = (shape: ModuleShape | undefined): ComputeKind | null => {
  if (shape === undefined) return null;
  if (shape.module === "attention") return "attention";
  return isProduct(shape) ? "product" : null;
};

/** The entries for which a property is as asked, or, when there are none, all. */
function preferring(list: readonly Measured[], is: (one: Measured) => boolean): readonly Measured[] {
  const matching = list.filter(is);
  return matching.length > 0 ? matching : list;
}

/** OPro of a profile: how much computation and communication slow each other down, by what computes and what communicates where. */
export class OverlapTimes {
  readonly #byOp = new Map<Collective, Measured[]>();
  readonly #all: Measured[] = [];
  readonly #known = new Map<string, Kept<Slowdown>>();
  readonly #recorder: Recorder;
  readonly #warn: Warn;

  constructor(profile: Pick<Profile, "overlaps">, warn: Warn) {
    this.#recorder = new Recorder(warn);
    this.#warn = this.#recorder.warn;
    for (const overlap of profile.overlaps) {
      const { shape, op, groupSize } = overlap;
      const one: Measured = { kind: kindOf(shape), pass: shape?.pass ?? null, placement: overlap.placement ?? null, groupSize, slowdown: slowdownOf(overlap) };
      this.#all.push(one);
      this.#byOp.set(op, [...(this.#byOp.get(op) ?? []), one]);
    }
  }

  /** R of a collective of a group beside each kind of computation of a pass: the nearest that was measured; 1 without any. */
  slowdown(op: Collective, pass: "forward" | "backward", place: GroupPlace): Slowdown {
    if (place.size <= 1) return NO_SLOWDOWN;
    const key = `${op} ${pass} ${place.size} ${place.nodes}`;
    const known = this.#known.get(key);
    if (known !== undefined) return this.#recorder.recall(known);
    const made = this.#recorder.keep((): Slowdown => ({ product: this.#nearest(op, pass, "product", place), attention: this.#nearest(op, pass, "attention", place) }));
    this.#known.set(key, made);
    return made.value;
  }

  #nearest(op: Collective, pass: string, kind: ComputeKind, place: GroupPlace): number {
    if (this.#all.length === 0) return 1;
    const measured = this.#byOp.get(op);
    if (measured === undefined) this.#warn("slow-down by overlap that the profile lacks for a collective, taken from others", op);
    const placement = placementClass(place.size, place.nodes);
    let list = preferring(measured ?? this.#all, (one) => one.placement === placement);
    list = preferring(list, (one) => one.kind === kind);
    list = preferring(list, (one) => one.pass === pass);
    const distance = ({ groupSize }: Measured) => Math.abs(Math.log(groupSize / place.size));
    const nearest = Math.min(...list.map(distance));
    const picked = list.filter((one) => distance(one) === nearest);
    return picked.reduce((sum, { slowdown }) => sum + slowdown, 0) / picked.length;
  }
}

/** R beside computation of which `attention` of `seconds` are attention, by their parts. */
export function mixed(slowdown: Slowdown, attention: number, seconds: number): number {
  if (slowdown.attention === slowdown.product || seconds <= 0) return slowdown.product;
  const part = Math.min(1, attention / seconds);
  return part * slowdown.attention + (1 - part) * slowdown.product;
}
