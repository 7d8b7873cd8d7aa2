import type { Profile, SliceParts } from "@internevo/domain";

interface Timed {
  readonly medianSeconds: number;
  readonly p10Seconds?: number;
  readonly p90Seconds?: number;
}
type End = "p10Seconds" | "p90Seconds";

/** Whether a profile says of any of its times how much they spread. */
export const hasSpread = ({ collectives, modules, slices = [] }: Profile): boolean => {
  const says = (time: Timed): boolean => time.p10Seconds !== undefined || time.p90Seconds !== undefined;
  return modules.some(says) || slices.some(says) || collectives.some(({ points }) => points.some(says));
};

/** All parts of a slice as many times longer as its whole. */
const timesParts = ({ forward, backward, ...parts }: SliceParts, factor: number): SliceParts => ({
  ...(Object.fromEntries(Object.entries(parts).map(([name, seconds]) => [name, factor * seconds])) as Omit<
    SliceParts,
    "forward" | "backward"
  >),
  forward: forward.map((seconds) => factor * seconds),
  backward: backward.map((seconds) => factor * seconds),
});

/**
 * The profile as if every time had come out at one end of its spread, which is what a prediction's range is
 * made of: all measurements off to the same side, as they are when the whole machine was slower or faster
 * while it was measured. Times without a spread, and slow-downs, stay.
 */
export function atEndOfSpread(profile: Profile, end: End): Profile {
  const shifted = <T extends Timed>({ p10Seconds, p90Seconds, ...time }: T): T =>
    ({ ...time, medianSeconds: (end === "p10Seconds" ? p10Seconds : p90Seconds) ?? time.medianSeconds }) as T;
  const slices = profile.slices?.map((slice) => ({
    ...shifted(slice),
    parts: timesParts(slice.parts, (slice[end] ?? slice.medianSeconds) / slice.medianSeconds),
  }));
  return {
    ...profile,
    ...(slices ? { slices } : {}),
    modules: profile.modules.map(shifted),
    collectives: profile.collectives.map((curve) => ({ ...curve, points: curve.points.map(shifted) })),
  };
}
