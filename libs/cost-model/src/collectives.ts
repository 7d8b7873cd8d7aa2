import {
  formatBytes,
  type Collective,
  type CollectiveCurve,
  type Placement,
  type Profile,
} from "@internevo/domain";
import { placementClass } from "@internevo/plan";
import { between, Curve } from "./interpolate.ts";
import { Recorder, type Kept, type Warn } from "./warnings.ts";

/** The curves of one operation and placement, by group size. */
interface Family {
  readonly sizes: number[];
  readonly curves: Curve[];
}

/** Where a group sits: how many ranks, on how many nodes. */
export interface GroupPlace {
  readonly size: number;
  readonly nodes: number;
}

/** Operations whose inter-node traffic a node counts once for each group it hosts (rings and trees). */
const SHARES_LINKS: ReadonlySet<Collective> = new Set<Collective>([
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "broadcast",
]);

/**
 * τ(op, bytes, group, placement) of the paper (section "Basic Communication Cost Model"): the time of a
 * collective from the measured curves of a profile, never from a constant bandwidth.
 *
 * Families of curves: `intra-node`; `inter-node`, one rank a node, all groups at once; `mixed`, groups that
 * fill their nodes. A group that shares its nodes with other groups is read from the `mixed` curve of as many
 * whole nodes: the groups of one node send through the same links, so c of them moving v bytes each take the
 * time of one moving c·v.
 */
export class CollectiveTimes {
  readonly #families = new Map<string, Family>();
  readonly #gpusPerNode: number;
  /** Of operations that nothing was measured for. */
  readonly #bandwidth: number;
  readonly #recorder: Recorder;
  readonly #warn: Warn;
  readonly #known = new Map<Collective, Map<number, Map<number, Kept<number>>>>();
  readonly #made = new Map<string, Kept<Curve>>();

  /** @param timesEstimates how many times longer operations take that nothing was measured for. */
  constructor(profile: Profile, gpusPerNode: number, warn: Warn, timesEstimates = 1) {
    this.#gpusPerNode = gpusPerNode;
    this.#bandwidth = profile.device.memoryBandwidthBytesPerSecond / timesEstimates;
    this.#recorder = new Recorder(warn);
    this.#warn = this.#recorder.warn;
    const grouped = new Map<string, CollectiveCurve[]>();
    for (const curve of profile.collectives) {
      const key = `${curve.op} ${curve.placement}`;
      grouped.set(key, [...(grouped.get(key) ?? []), curve]);
    }
    for (const [key, list] of grouped) {
      const sizes = [...new Set(list.map((curve) => curve.groupSize))].sort((a, b) => a - b);
      const curves = sizes.map((size) => {
        const points = list.filter((curve) => curve.groupSize === size).flatMap((curve) => curve.points);
        const curve = new Curve(points.map((point) => ({ at: point.bytes, seconds: point.medianSeconds })));
        for (const point of curve.smoothed) {
          warn(
            "points of the profile that were measured slower than larger sizes, and were smoothed",
            `${key} of ${formatBytes(point.at)} over ${size} ranks`,
          );
        }
        return curve;
      });
      this.#families.set(key, { sizes, curves });
    }
  }

  /**
   * Seconds of one collective.
   * @param bytes full tensor bytes of the operation (see the profile's curves); for point-to-point the bytes
   * of the message.
   */
  seconds(op: Collective, bytes: number, place: GroupPlace): number {
    if (place.size <= 1 || bytes <= 0) return 0;
    let ofOp = this.#known.get(op);
    if (!ofOp) this.#known.set(op, (ofOp = new Map<number, Map<number, Kept<number>>>()));
    // Ranks and nodes in one exact number: neither reaches 2^26.
    const where = place.size * 2 ** 26 + place.nodes;
    let known = ofOp.get(where);
    if (!known) ofOp.set(where, (known = new Map<number, Kept<number>>()));
    const seconds = known.get(bytes);
    if (seconds !== undefined)
      return seconds.warned.length === 0 ? seconds.value : this.#recorder.recall(seconds);
    const made = this.#recorder.keep(() => this.#compute(op, bytes, place));
    known.set(bytes, made);
    return made.value;
  }

  #compute(op: Collective, bytes: number, place: GroupPlace): number {
    const placement = placementClass(place.size, place.nodes);
    if (op === "point-to-point" && !this.#families.has(`${op} ${placement}`)) {
      // Half of an all-to-all between two ranks (two nodes) leaves the rank: a message of v is an all-to-all
      // of 2v.
      const pair = place.nodes > 1 ? { size: 2 * this.#gpusPerNode, nodes: 2 } : { size: 2, nodes: 1 };
      return this.#compute("all-to-all", 2 * bytes, pair);
    }
    if (placement === "intra-node") return this.#read(op, "intra-node", bytes, place.size);
    if (placement === "inter-node" && this.#families.has(`${op} inter-node`))
      return this.#read(op, "inter-node", bytes, place.size);
    const whole = this.#gpusPerNode * place.nodes;
    const shared = SHARES_LINKS.has(op) ? Math.max(1, whole / place.size) : 1;
    return this.#read(op, "mixed", bytes * shared, whole);
  }

  /**
   * The curves of an operation and placement, or of another placement; none when the profile lacks the
   * operation.
   */
  #familyOf(op: Collective, placement: Placement): Family | undefined {
    const family = this.#families.get(`${op} ${placement}`);
    if (family) return family;
    const other = (["mixed", "inter-node", "intra-node"] as const).find((name) =>
      this.#families.has(`${op} ${name}`),
    );
    if (other)
      this.#warn(
        "collectives that the profile lacks for a placement, taken from another",
        `${op} ${placement} from ${other}`,
      );
    else
      this.#warn(
        "collectives that the profile lacks, taken from the memory bandwidth, which is too optimistic",
        op,
      );
    return other && this.#families.get(`${op} ${other}`);
  }

  #read(op: Collective, placement: Placement, bytes: number, size: number): number {
    const family = this.#familyOf(op, placement);
    if (!family) return bytes / this.#bandwidth;
    const curve = this.#curveOf(family, `${op} ${placement}`, size);
    // Rounding of a shared size is no larger size.
    if (bytes > curve.largest * 1.001)
      this.#warn(
        "collectives used beyond their largest measured size, at the bandwidth reached there",
        `${op} over ${formatBytes(curve.largest)}`,
      );
    return curve.seconds(bytes);
  }

  /** The curve of a group size: the measured one, or one made of its neighbours. */
  #curveOf({ sizes, curves }: Family, name: string, size: number): Curve {
    const measured = curves[sizes.indexOf(size)];
    if (measured) return measured;
    const key = `${name} ${size}`;
    const known = this.#made.get(key);
    if (known) return this.#recorder.recall(known);
    const made = this.#recorder.keep(() => {
      this.#warn("group sizes that the profile lacks, taken from others", `${name} over ${size} ranks`);
      const grid = [...new Set(curves.flatMap((one) => one.sizes))];
      return new Curve(
        grid.map((at) => ({
          at,
          seconds: groupSizeSeconds(sizes, size, (i) => (curves[i] as Curve).seconds(at)),
        })),
      );
    });
    this.#made.set(key, made);
    return made.value;
  }
}

/**
 * Between measured group sizes on the log–log line; beyond them the growth between the last two goes on, and
 * is never negative.
 */
function groupSizeSeconds(
  sizes: readonly number[],
  size: number,
  seconds: (index: number) => number,
): number {
  return between(sizes, size, seconds, (edge) => {
    if (sizes.length < 2) return 0;
    const [a, b] = edge === "above" ? [sizes.length - 2, sizes.length - 1] : [0, 1];
    return Math.max(
      0,
      Math.log(seconds(b) / seconds(a)) / Math.log((sizes[b] as number) / (sizes[a] as number)),
    );
  });
}
