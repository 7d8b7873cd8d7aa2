import type { Collective, ModuleShape, Overlap, Placement, Profile } from "@internevo/domain";
import { placementClass } from "@internevo/plan";
import type { GroupPlace } from "./collectives.ts";
import { isProduct } from "./work.ts";
import { Recorder, type Kept, type Warn } from "./warnings.ts";

/**
 * What computes while a collective is under way: the products of a layer and what is around them, or
 * attention.
 */
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
  /** Of one message; null where a profile does not say. */
  readonly bytes: number | null;
  readonly slowdown: number;
}

/**
 * R over the size of a message: ascending sizes, by their logarithm; one point where sizes make no difference
 * or were not measured.
 */
interface SlowdownCurve {
  readonly logBytes: readonly number[];
  readonly slowdowns: readonly number[];
}

/** Of lengths more unlike than this, noise of the longer would say more than the shorter. */
const MOST_UNLIKE = 8;

/**
 * R of the formula max + (R − 1)·min (see `together`) from a measured pair. OPro says the time of both over
 * the longer of the two, which is R where both are as long; with the times alone the slow-down is laid on the
 * part in which both run.
 */
function slowdownOf({ slowdown, computeSeconds, communicationSeconds }: Overlap): number {
  if (computeSeconds === undefined || communicationSeconds === undefined) return Math.max(1, slowdown);
  const unlike =
    Math.max(computeSeconds, communicationSeconds) / Math.min(computeSeconds, communicationSeconds);
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

const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

function curveOf(measured: readonly Measured[]): SlowdownCurve {
  const bySize = [...Map.groupBy(measured, ({ bytes }) => bytes)].map(([bytes, some]) => ({
    bytes,
    slowdown: meanOf(some.map(({ slowdown }) => slowdown)),
  }));
  if (bySize.length === 1 || bySize.some(({ bytes }) => bytes === null))
    return { logBytes: [0], slowdowns: [meanOf(measured.map(({ slowdown }) => slowdown))] };
  const ascending = bySize
    .map(({ bytes, slowdown }) => ({ at: Math.log(bytes as number), slowdown }))
    .sort((a, b) => a.at - b.at);
  return { logBytes: ascending.map(({ at }) => at), slowdowns: ascending.map(({ slowdown }) => slowdown) };
}

/** Between two sizes on the line over the logarithm of the size, flat outside. */
function slowdownAt({ logBytes, slowdowns }: SlowdownCurve, bytes: number): number {
  const x = Math.log(bytes);
  const above = logBytes.findIndex((at) => at >= x);
  if (above === 0) return slowdowns[0] as number;
  if (above === -1) return slowdowns.at(-1) as number;
  const [from, to] = [logBytes[above - 1] as number, logBytes[above] as number];
  const part = (x - from) / (to - from);
  return (1 - part) * (slowdowns[above - 1] as number) + part * (slowdowns[above] as number);
}

/** R beside messages of several sizes, by how much of the traffic each of them is. */
function slowdownOver(curve: SlowdownCurve, messageBytes: readonly number[]): number {
  let total = 0;
  let weighted = 0;
  for (const bytes of messageBytes) {
    total += bytes;
    weighted += bytes * slowdownAt(curve, bytes);
  }
  return weighted / total;
}

/**
 * OPro of a profile: how much computation and communication slow each other down, by what computes and what
 * communicates where.
 */
export class OverlapTimes {
  readonly #byOp = new Map<Collective, Measured[]>();
  readonly #all: Measured[] = [];
  readonly #known = new Map<
    string,
    Kept<Readonly<Record<ComputeKind, SlowdownCurve>> & { readonly anySize: Slowdown | null }>
  >();
  readonly #recorder: Recorder;
  readonly #warn: Warn;

  constructor(profile: Pick<Profile, "overlaps">, warn: Warn) {
    this.#recorder = new Recorder(warn);
    this.#warn = this.#recorder.warn;
    for (const overlap of profile.overlaps) {
      const { shape, op, groupSize } = overlap;
      const one: Measured = {
        kind: kindOf(shape),
        pass: shape?.pass ?? null,
        placement: overlap.placement ?? null,
        groupSize,
        bytes: overlap.bytes ?? null,
        slowdown: slowdownOf(overlap),
      };
      this.#all.push(one);
      this.#byOp.set(op, [...(this.#byOp.get(op) ?? []), one]);
    }
  }

  /**
   * R of a collective of a group beside each kind of computation of a pass: the nearest that was measured; 1
   * without any.
   * @param messageBytes of each collective, full tensors: short ones, which pause and begin more often, slow
   * computation down more than long ones.
   */
  slowdown(
    op: Collective,
    pass: "forward" | "backward",
    place: GroupPlace,
    messageBytes: readonly number[],
  ): Slowdown {
    if (place.size <= 1) return NO_SLOWDOWN;
    const key = `${op} ${pass} ${place.size} ${place.nodes}`;
    const known = this.#known.get(key);
    const made =
      known ??
      this.#recorder.keep(() => {
        const [product, attention] = [
          this.#nearest(op, pass, "product", place),
          this.#nearest(op, pass, "attention", place),
        ];
        const anySize =
          product.slowdowns.length === 1 && attention.slowdowns.length === 1
            ? { product: product.slowdowns[0] as number, attention: attention.slowdowns[0] as number }
            : null;
        return { product, attention, anySize };
      });
    if (known === undefined) this.#known.set(key, made);
    const { product, attention, anySize } = known === undefined ? made.value : this.#recorder.recall(known);
    return (
      anySize ?? {
        product: slowdownOver(product, messageBytes),
        attention: slowdownOver(attention, messageBytes),
      }
    );
  }

  #nearest(op: Collective, pass: string, kind: ComputeKind, place: GroupPlace): SlowdownCurve {
    if (this.#all.length === 0) return { logBytes: [0], slowdowns: [1] };
    const measured = this.#byOp.get(op);
    if (measured === undefined)
      this.#warn("slow-down by overlap that the profile lacks for a collective, taken from others", op);
    const placement = placementClass(place.size, place.nodes);
    let list = preferring(measured ?? this.#all, (one) => one.placement === placement);
    list = preferring(list, (one) => one.kind === kind);
    list = preferring(list, (one) => one.pass === pass);
    const distance = ({ groupSize }: Measured) => Math.abs(Math.log(groupSize / place.size));
    const nearest = Math.min(...list.map(distance));
    return curveOf(list.filter((one) => distance(one) === nearest));
  }
}

/** R beside computation of which `attention` of `seconds` are attention, by their parts. */
export function mixed(slowdown: Slowdown, attention: number, seconds: number): number {
  if (slowdown.attention === slowdown.product || seconds <= 0) return slowdown.product;
  const part = Math.min(1, attention / seconds);
  return part * slowdown.attention + (1 - part) * slowdown.product;
}
