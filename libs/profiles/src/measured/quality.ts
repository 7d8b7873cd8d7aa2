import type { Profile, ProfileQuality } from "@internevo/domain";

/** From when on a measurement counts as disturbed, and how much time may go into measuring again. */
export interface NoiseLimits {
  /** 10th to 90th percentile of a point's samples over their median, in per cent. */
  readonly mostSpreadPercent: number;
  /** Share of a host's processor time that others take, in per cent. */
  readonly mostOthersPercent: number;
  /** Budget for measuring noisy points again. */
  readonly againSeconds: number;
}

/** Default of {@link NoiseLimits.mostSpreadPercent}. */
export const DEFAULT_MOST_SPREAD_PERCENT = 100;

/** A measured point of a profile, whatever it is of. */
export interface Point {
  readonly medianSeconds?: number;
  readonly p10Seconds?: number;
  readonly p90Seconds?: number;
  readonly noisy?: true;
  /** Noisy also when it was measured again for another job. */
  readonly stillNoisy?: true;
}

/**
 * Noisy points from which on a profile is noisy as a whole: single points of thousands are noisy on the
 * quietest machine.
 */
const MOST_NOISY_SHARE = 0.1;

const MOST_DISTURBANCES = 8;

/** How far a point's samples lie apart, over their median; undefined where it does not say. */
export const spreadOf = ({ medianSeconds, p10Seconds, p90Seconds }: Point): number | undefined =>
  medianSeconds === undefined || p10Seconds === undefined || p90Seconds === undefined
    ? undefined
    : (p90Seconds - p10Seconds) / medianSeconds;

/**
 * Of two measurements of one thing the quieter: the newer, unless it is noisy and the older is not, or
 * spreads less.
 */
export function quieter<T extends Point>(older: T, newer: T): T {
  if (newer.noisy !== true) return newer;
  if (older.noisy !== true) return older;
  return (spreadOf(older) ?? Infinity) < (spreadOf(newer) ?? Infinity) ? older : newer;
}

/**
 * The quieter of a fresh profile's point and of what another job measured. One that is noisy in both is marked:
 * no further job measures it while the profile is fresh.
 */
export function quieterAgain<T extends Point>(older: T, newer: T): T {
  const one = quieter(older, newer);
  return one.noisy === true ? { ...one, stillNoisy: true } : one;
}

/** Marks what is noisy. @param disturbed whether other work ran beside all of these points. */
export function marked<T extends Point>(
  points: readonly T[],
  disturbed: boolean,
  { mostSpreadPercent }: Pick<NoiseLimits, "mostSpreadPercent">,
): T[] {
  return points.map((point) => {
    const { noisy: _noisy, stillNoisy: _still, ...plain } = point;
    return (
      disturbed || 100 * (spreadOf(point) ?? 0) > mostSpreadPercent ? { ...plain, noisy: true } : plain
    ) as T;
  });
}

const pointsOf = ({ modules, collectives, overlaps, slices = [] }: Profile): Point[] => [
  ...modules,
  ...collectives.flatMap(({ points }) => points),
  ...overlaps,
  ...slices,
];

/**
 * How quiet the measurement of a profile was, by its marked points. @param measured.disturbances what was
 * said of the hosts while noisy points were measured.
 */
export function qualityOf(
  profile: Profile,
  limits: Omit<NoiseLimits, "againSeconds">,
  measured: Pick<ProfileQuality, "measuredAgain" | "secondsPerPoint" | "hosts" | "disturbances">,
): ProfileQuality {
  const points = pointsOf(profile);
  const noisy = points.filter((point) => point.noisy === true);
  return {
    verdict: noisy.length > MOST_NOISY_SHARE * points.length ? "noisy" : "quiet",
    points: points.length,
    noisyPoints: noisy.length,
    worstSpreadPercent: Math.max(0, ...points.map((point) => 100 * (spreadOf(point) ?? 0))),
    mostSpreadPercent: limits.mostSpreadPercent,
    mostOthersPercent: limits.mostOthersPercent,
    measuredAgain: measured.measuredAgain,
    ...(measured.secondsPerPoint === undefined ? {} : { secondsPerPoint: measured.secondsPerPoint }),
    disturbances: noisy.length === 0 ? [] : [...new Set(measured.disturbances)].slice(0, MOST_DISTURBANCES),
    hosts: measured.hosts,
  };
}
