import type { JobSpec, Profile, SliceParts } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { CostModel, type CostModelOptions } from "./cost-model.ts";

interface Timed {
  readonly medianSeconds: number;
  readonly p10Seconds?: number;
  readonly p90Seconds?: number;
}
type End = "p10Seconds" | "p90Seconds";

/**
 * How many times longer than estimated a time may be that nothing was measured for, so that it comes from the
 * peak figures of the device. A CPU without bf16 units took 8 times as long, small modules of `a800-128` take
 * up to 14 times. Shorter it is not: nothing runs above the peak.
 */
export const MOST_TIMES_ESTIMATE = 10;

const timesOf = ({ collectives, modules, slices = [] }: Profile): Timed[][] => [
  [...modules, ...slices],
  collectives.flatMap(({ points }) => points),
];

const says = (time: Timed): boolean => time.p10Seconds !== undefined || time.p90Seconds !== undefined;

/** Whether a profile says of any of its times how much they spread. */
export const hasSpread = (profile: Profile): boolean => timesOf(profile).flat().some(says);

/** All parts of a slice as many times longer as its whole. */
const timesParts = ({ forward, backward, ...parts }: SliceParts, factor: number): SliceParts => ({
  ...(Object.fromEntries(Object.entries(parts).map(([name, seconds]) => [name, factor * seconds])) as Omit<
    SliceParts,
    "forward" | "backward"
  >),
  forward: forward.map((seconds) => factor * seconds),
  backward: backward.map((seconds) => factor * seconds),
});

/** How many times longer these times are at one end, together; undefined where none says it. */
function factorOf(times: readonly Timed[], end: End): number | undefined {
  let [middle, there] = [0, 0];
  for (const { medianSeconds, [end]: seconds } of times) {
    if (seconds === undefined) continue;
    middle += medianSeconds;
    there += seconds;
  }
  return middle > 0 ? there / middle : undefined;
}

/** What some of a profile's times are at one end: those without a spread are as noisy as the others. */
function shifting(times: readonly Timed[], others: readonly Timed[], end: End) {
  const usual = factorOf(times, end) ?? factorOf(others, end) ?? 1;
  return <T extends Timed>({ p10Seconds, p90Seconds, ...time }: T): T =>
    ({
      ...time,
      medianSeconds: (end === "p10Seconds" ? p10Seconds : p90Seconds) ?? usual * time.medianSeconds,
    }) as T;
}

/** The modules and collectives as if all had come out at one end of their spread, and no slices. */
function composedAt(profile: Profile, end: End): Profile {
  const [computing, communicating] = timesOf(profile) as [Timed[], Timed[]];
  return {
    ...profile,
    slices: [],
    modules: profile.modules.map(shifting(computing, communicating, end)),
    // Beyond the measured sizes of groups times grow as between them: one factor leaves that growth alone.
    collectives: scaledCurves(profile.collectives, shifting(communicating, computing, end)),
  };
}

function scaledCurves(
  curves: Profile["collectives"],
  shifted: (point: Timed) => Timed,
): Profile["collectives"] {
  const families = Map.groupBy(curves, ({ op, placement }) => `${op} ${placement}`);
  const factors = new Map(
    [...families].map(([key, family]) => {
      const points = family.flatMap((curve) => curve.points as readonly Timed[]);
      const sum = (some: readonly Timed[]): number =>
        some.reduce((total, { medianSeconds }) => total + medianSeconds, 0);
      return [key, sum(points.map(shifted)) / sum(points)] as const;
    }),
  );
  return curves.map((curve) => ({
    ...curve,
    points: curve.points.map(({ p10Seconds: _low, p90Seconds: _high, ...point }) => ({
      ...point,
      medianSeconds: point.medianSeconds * (factors.get(`${curve.op} ${curve.placement}`) as number),
    })),
  }));
}

/** The slices as if all had come out at one end of their spread; what they correct stays. */
function slicesAt(profile: Profile, end: End): Profile {
  const [computing, communicating] = timesOf(profile) as [Timed[], Timed[]];
  const shift = shifting(computing, communicating, end);
  const slices = (profile.slices ?? []).map((slice) => {
    const shifted = shift(slice);
    return { ...shifted, parts: timesParts(slice.parts, shifted.medianSeconds / slice.medianSeconds) };
  });
  return { ...profile, slices };
}

/** A profile at the ends of its spread, made once: jobs share what is computed of it. */
interface Ends {
  readonly composed: Readonly<Record<End | "middle", Profile>>;
  readonly slices: Readonly<Record<End, Profile>> | null;
}
const known = new WeakMap<Profile, Ends>();

function endsOf(profile: Profile): Ends {
  let ends = known.get(profile);
  if (!ends) {
    const both = (at: (profile: Profile, end: End) => Profile) => ({
      p10Seconds: at(profile, "p10Seconds"),
      p90Seconds: at(profile, "p90Seconds"),
    });
    ends = {
      composed: { middle: { ...profile, slices: [] }, ...both(composedAt) },
      slices: (profile.slices ?? []).length > 0 ? both(slicesAt) : null,
    };
    known.set(profile, ends);
  }
  return ends;
}

/** By how much a step time is multiplied at the two ends of its range: at most, and at least, by 1. */
export interface SpreadFactors {
  readonly low: number;
  readonly high: number;
}

/**
 * How far off a plan's step time may be, by the spread of what it is made of: undefined when the profile says
 * none. All measurements are off to the same side, as they are when the whole machine was slower or faster
 * while it was measured. The factors are those of the plan's parts, each run alone, of which a step is a sum:
 * so no part that takes longer makes another shorter, as overlap and corrections do. Modules with collectives
 * count, and slices, which correct them, whichever spread more.
 */
export function spreadFactors(
  job: JobSpec,
  profile: Profile,
  options: CostModelOptions = {},
): ((plan: PlanOfJob) => SpreadFactors) | undefined {
  if (!hasSpread(profile)) return undefined;
  const { composed, slices } = endsOf(profile);
  const modelOf = (one: Profile, timesEstimates = 1): CostModel =>
    new CostModel(job, one, { ...options, timesEstimates });
  const [middle, low, high] = [
    modelOf(composed.middle),
    modelOf(composed.p10Seconds),
    modelOf(composed.p90Seconds, MOST_TIMES_ESTIMATE),
  ];
  const corrected = slices && {
    middle: modelOf(profile),
    low: modelOf(slices.p10Seconds),
    high: modelOf(slices.p90Seconds),
  };
  return (plan) => {
    const [whole, ofSlices] = [middle.secondsAlone(plan), corrected?.middle.secondsAlone(plan)];
    const factors = { low: low.secondsAlone(plan) / whole, high: high.secondsAlone(plan) / whole };
    return corrected === null || ofSlices === undefined
      ? factors
      : {
          low: Math.min(factors.low, corrected.low.secondsAlone(plan) / ofSlices),
          high: Math.max(factors.high, corrected.high.secondsAlone(plan) / ofSlices),
        };
  };
}
