/** Interpolation of positive measurements over a positive size, in log–log coordinates. */

export interface Point {
  readonly at: number;
  readonly seconds: number;
}

/** A monotone curve of time over size. */
export class Curve {
  readonly #sizes: number[];
  readonly #logAt: number[];
  readonly #logSeconds: number[];
  /** Points that were measured slower than a larger one, by more than 5 %, and were brought down to it. */
  readonly smoothed: readonly Point[];

  /**
   * @param points measurements in any order, at least one; a size that occurs twice counts with its smallest
   * time.
   */
  constructor(points: readonly Point[]) {
    const best = new Map<number, number>();
    for (const { at, seconds } of points) best.set(at, Math.min(seconds, best.get(at) ?? Infinity));
    const sizes = [...best.keys()].sort((a, b) => a - b);
    const times = sizes.map((at) => best.get(at) as number);
    const smoothed: Point[] = [];
    // More work is never faster: a time above one of a larger size is noise of the measurement, and noise
    // only adds.
    for (let i = times.length - 2; i >= 0; i -= 1) {
      const measured = times[i] as number;
      const bound = times[i + 1] as number;
      if (measured <= bound) continue;
      if (measured > 1.05 * bound) smoothed.unshift({ at: sizes[i] as number, seconds: measured });
      times[i] = bound;
    }
    this.#sizes = sizes;
    this.#logAt = sizes.map(Math.log);
    this.#logSeconds = times.map(Math.log);
    this.smoothed = smoothed;
  }

  /** The measured sizes, ascending. */
  get sizes(): readonly number[] {
    return this.#sizes;
  }

  get largest(): number {
    return this.#sizes.at(-1) as number;
  }

  /**
   * Time at a size: between points on the log–log line, below the first flat (latency) or, with `belowSlope`
   * 1, proportional; above the last proportional (bandwidth, or the achieved rate).
   */
  seconds(at: number, belowSlope: 0 | 1 = 0): number {
    const x = Math.log(at);
    const xs = this.#logAt;
    const ys = this.#logSeconds;
    const last = xs.length - 1;
    if (x <= (xs[0] as number)) return Math.exp((ys[0] as number) + belowSlope * (x - (xs[0] as number)));
    if (x >= (xs[last] as number)) return Math.exp((ys[last] as number) + (x - (xs[last] as number)));
    let low = 0;
    let high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((xs[middle] as number) <= x) low = middle;
      else high = middle;
    }
    const weight = (x - (xs[low] as number)) / ((xs[high] as number) - (xs[low] as number));
    return Math.exp((1 - weight) * (ys[low] as number) + weight * (ys[high] as number));
  }
}

/**
 * Interpolates between curves that belong to a second size (group size, sequence length): log–log between
 * neighbours; beyond the ends the exponent `edgeSlope` is used.
 * @param sizes ascending, at least one.
 */
export function between(
  sizes: readonly number[],
  size: number,
  seconds: (index: number) => number,
  edgeSlope: (edge: "below" | "above") => number,
): number {
  const last = sizes.length - 1;
  const first = sizes[0] as number;
  const end = sizes[last] as number;
  if (size <= first) return seconds(0) * (size / first) ** (size === first ? 0 : edgeSlope("below"));
  if (size >= end) return seconds(last) * (size / end) ** (size === end ? 0 : edgeSlope("above"));
  const above = sizes.findIndex((value) => value >= size);
  if (sizes[above] === size) return seconds(above);
  const low = sizes[above - 1] as number;
  const weight = Math.log(size / low) / Math.log((sizes[above] as number) / low);
  return Math.exp((1 - weight) * Math.log(seconds(above - 1)) + weight * Math.log(seconds(above)));
}
