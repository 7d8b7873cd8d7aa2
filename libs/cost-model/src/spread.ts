import type { Profile } from "@internevo/domain";

interface Timed {
  readonly medianSeconds: number;
  readonly p10Seconds?: number;
  readonly p90Seconds?: number;
}
type End = "p10Seconds" | "p90Seconds";

/** Whether a profile says of any of its times how much they spread. */
export const hasSpread = ({ collectives, modules }: Profile): boolean => {
  const says = (time: Timed): boolean => time.p10Seconds !== undefined || time.p90Seconds !== undefined;
  return modules.some(says) || collectives.some(({ points }) => points.some(says));
};

/**
 * The profile as if every time had come out at one end of its spread, which is what a prediction's range is made of: all measurements off to the same
 * side, as they are when the whole machine was slower or faster while it was measured. Times without a spread, and slow-downs, stay.
 */
export function atEndOfSpread(profile: Profile, end: End): Profile {
  const shifted = <T extends Timed>({ p10Seconds, p90Seconds, ...time }: T): T => ({ ...time, medianSeconds: (end === "p10Seconds" ? p10Seconds : p90Seconds) ?? time.medianSeconds }) as T;
  return { ...profile, modules: profile.modules.map(shifted), collectives: profile.collectives.map((curve) => ({ ...curve, points: curve.points.map(shifted) })) };
}
