import {
  withoutSplit,
  type Estimates,
  type JobSpec,
  type ModuleShape,
  type Profile,
  type SliceRequest,
  type SliceShape,
} from "@internevo/domain";
import { clusterRanks } from "@internevo/plan";
import { requiredMeasurements, type RequiredMeasurements } from "./measurements.ts";

/**
 * Of what a profile must hold so that the plans of a job can be predicted from measurements, all or a part.
 */
export type Measurements = {
  readonly [Kind in keyof RequiredMeasurements]: readonly RequiredMeasurements[Kind][number][];
};

/** A text that is equal for equal shapes, whatever the order of their fields. */
export const shapeKey = (shape: ModuleShape | SliceShape): string =>
  JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));

/** A text that is equal for equal slices of equally many layers. */
export const sliceKey = ({ shape, layers }: SliceRequest): string => `${shapeKey(shape)} ${layers}`;

const collectiveKey = (op: string, groupSize: number, placement: string, bytes: number): string =>
  `${op} ${groupSize} ${placement} ${bytes}`;

/** A text that is equal for one module beside one collective. */
export const overlapKey = (
  shape: ModuleShape | undefined,
  op: string,
  groupSize: number,
  bytes: number | undefined,
  placement: string | undefined,
): string => `${shape ? shapeKey(shape) : ""} ${op} ${groupSize} ${bytes ?? ""} ${placement ?? ""}`;

/** What a profile has measured. */
export type MeasuredPoints = Pick<Profile, "modules" | "collectives" | "overlaps" | "slices">;

/** The needed measurements that a profile lacks. */
export function missingMeasurements(profile: MeasuredPoints, needed: Measurements): Measurements {
  const measured = <T extends { readonly estimated?: true }>(points: readonly T[]): T[] =>
    points.filter(({ estimated }) => estimated !== true);
  const modules = new Set(measured(profile.modules).map((module) => shapeKey(module.shape)));
  const points = new Set(
    profile.collectives.flatMap((curve) =>
      measured(curve.points).map((point) =>
        collectiveKey(curve.op, curve.groupSize, curve.placement, point.bytes),
      ),
    ),
  );
  const overlaps = new Set(
    measured(profile.overlaps).map((overlap) =>
      overlapKey(overlap.shape, overlap.op, overlap.groupSize, overlap.bytes, overlap.placement),
    ),
  );
  const slices = new Set((profile.slices ?? []).map(sliceKey));
  return {
    slices: needed.slices.filter((slice) => !slices.has(sliceKey(slice))),
    modules: needed.modules.filter((shape) => !modules.has(shapeKey(shape))),
    collectives: needed.collectives.filter(
      (each) => !points.has(collectiveKey(each.op, each.groups[0]?.length ?? 0, each.placement, each.bytes)),
    ),
    overlaps: needed.overlaps.filter(
      ({ module, collective }) =>
        !overlaps.has(
          overlapKey(
            module,
            collective.op,
            collective.groups[0]?.length ?? 0,
            collective.bytes,
            collective.placement,
          ),
        ),
    ),
  };
}

export const measurementCount = ({ modules, collectives, overlaps, slices }: Measurements): number =>
  modules.length + collectives.length + overlaps.length + slices.length;

/**
 * The model and the sequence of a slice: what a micro-batch of another size, or another way to share, can
 * stand in for.
 */
const sequenceKey = ({ shape: { microBatchSize: _, ...shape } }: SliceRequest): string =>
  JSON.stringify(Object.entries(withoutSplit(shape)).sort(([a], [b]) => (a < b ? -1 : 1)));

/**
 * How many of the needed measurements a profile lacks. Slices of a model and sequence of which others were
 * run, with the layers that they need, do not count: the nearest stands in for them, and one that had no room
 * would be asked for again and again.
 */
export function countMissing(profile: Profile, needed: Measurements): number {
  const missing = missingMeasurements(profile, needed);
  const absent = new Set(missing.slices);
  const known = new Set(needed.slices.filter((slice) => !absent.has(slice)).map(sequenceKey));
  return measurementCount({
    ...missing,
    slices: missing.slices.filter((slice) => !known.has(sequenceKey(slice))),
  });
}

/** What says of a point whether it is noisy. */
interface Noise {
  readonly noisy?: true;
  readonly stillNoisy?: true;
}

/** The needed measurements that a profile has, but noisily. */
export const noisyMeasurements = (profile: Profile, needed: Measurements): Measurements =>
  measurementsWith(profile, needed, ({ noisy }) => noisy === true);

/** Those that another job measured again in vain: while a profile is fresh, nobody does so twice. */
export const stillNoisyMeasurements = (profile: Profile, needed: Measurements): Measurements =>
  measurementsWith(profile, needed, ({ stillNoisy }) => stillNoisy === true);

/** The needed measurements whose points in a profile have some noise. */
function measurementsWith(
  profile: Profile,
  needed: Measurements,
  has: (point: Noise) => boolean,
): Measurements {
  const quiet = <T extends Noise>(points: readonly T[]): T[] => points.filter((point) => !has(point));
  const withoutNoisy: Profile = {
    ...profile,
    modules: quiet(profile.modules),
    overlaps: quiet(profile.overlaps),
    slices: quiet(profile.slices ?? []),
    collectives: profile.collectives.map((curve) => ({ ...curve, points: quiet(curve.points) })),
  };
  const absent = missingMeasurements(profile, needed);
  const lacking = missingMeasurements(withoutNoisy, needed);
  const without = <T>(all: readonly T[], some: readonly T[]): T[] =>
    all.filter((each) => !some.includes(each));
  return {
    modules: without(lacking.modules, absent.modules),
    collectives: without(lacking.collectives, absent.collectives),
    overlaps: without(lacking.overlaps, absent.overlaps),
    slices: without(lacking.slices, absent.slices),
  };
}

/** Both lists of measurements, which have nothing in common. */
export const bothMeasurements = (a: Measurements, b: Measurements): Measurements => ({
  modules: [...a.modules, ...b.modules],
  collectives: [...a.collectives, ...b.collectives],
  overlaps: [...a.overlaps, ...b.overlaps],
  slices: [...a.slices, ...b.slices],
});

const NONE: Measurements = { modules: [], collectives: [], overlaps: [], slices: [] };

/** What a job measures before it is planned, of what it needs. */
export interface FirstMeasurements {
  /** What the fresh profile lacks; all where there is none. */
  readonly missing: Measurements;
  /** What it has noisily, where it is noisy as a whole, and nobody measured again yet. */
  readonly noisy: Measurements;
}

const isNoisy = ({ quality }: Profile): boolean => quality?.verdict === "noisy";

/** The rule of measuring again: a noisy point once, while its profile is fresh. */
const oncePerProfile = (profile: Profile, needed: Measurements): Measurements =>
  measurementsWith(profile, needed, ({ noisy, stillNoisy }) => noisy === true && stillNoisy !== true);

/** @param profile what is fresh and comparable; undefined where nothing is. */
export function firstMeasurements(profile: Profile | undefined, needed: Measurements): FirstMeasurements {
  if (profile === undefined) return { missing: needed, noisy: NONE };
  const noisy = isNoisy(profile) ? oncePerProfile(profile, needed) : NONE;
  const isGood = countMissing(profile, needed) === 0 && measurementCount(noisy) === 0;
  return isGood ? { missing: NONE, noisy: NONE } : { missing: missingMeasurements(profile, needed), noisy };
}

/** How much a job measures before it is planned. */
export interface FirstCounts {
  readonly missing: number;
  readonly noisy: number;
}

/** {@link firstMeasurements} of a job, counted. It takes up to a second for jobs with very many plans. */
export function firstCounts(spec: JobSpec, fresh: Profile | undefined): FirstCounts {
  const { missing, noisy } = firstMeasurements(fresh, requiredMeasurements(spec));
  return { missing: measurementCount(missing), noisy: measurementCount(noisy) };
}

/** Ranks beyond which listing what a job needs takes too long for a word beside an answer. */
export const MOST_LISTED_RANKS = 8192;

/** What any of some jobs need, each measurement once. @param look called before each job is looked at */
function neededOfAny(jobs: readonly JobSpec[], look: () => void): Measurements {
  const needs = jobs.map((job) => {
    look();
    return requiredMeasurements(job);
  });
  if (needs.length === 1 && needs[0]) return needs[0];
  const once = <T>(lists: readonly (readonly T[])[], keyOf: (one: T) => string): T[] => [
    ...new Map(lists.flat().map((one) => [keyOf(one), one])).values(),
  ];
  return {
    modules: once(
      needs.map(({ modules }) => modules),
      shapeKey,
    ),
    collectives: once(
      needs.map(({ collectives }) => collectives),
      ({ op, groups, placement, bytes }) => collectiveKey(op, groups[0]?.length ?? 0, placement, bytes),
    ),
    overlaps: once(
      needs.map(({ overlaps }) => overlaps),
      ({ module, collective: { op, groups, bytes, placement } }) =>
        overlapKey(module, op, groups[0]?.length ?? 0, bytes, placement),
    ),
    slices: once(
      needs.map(({ slices }) => slices),
      sliceKey,
    ),
  };
}

/**
 * What is estimated where jobs are planned with a profile; undefined where all is measured, or the clusters
 * are very large.
 * @param look called before each job is looked at; what it throws ends the work
 */
export function estimatedWith(
  jobs: readonly JobSpec[],
  profile: Profile,
  look: () => void = () => undefined,
): Pick<Estimates, "needed" | "missing" | "noisy"> | undefined {
  const listed = jobs.filter((job) => clusterRanks(job) <= MOST_LISTED_RANKS);
  if (listed.length === 0) return undefined;
  const needed = neededOfAny(listed, look);
  const { missing } = firstMeasurements(profile, needed);
  // Those that jobs go on with, too: figures that rest on them are uncertain all the same.
  const noisy = isNoisy(profile) ? noisyMeasurements(profile, needed) : NONE;
  if (measurementCount(missing) + measurementCount(noisy) === 0) return undefined;
  const { modules, collectives, overlaps, slices } = missing;
  return {
    needed: measurementCount(needed),
    missing: {
      modules: modules.length,
      collectives: collectives.length,
      overlaps: overlaps.length,
      slices: slices.length,
    },
    noisy: measurementCount(noisy),
  };
}
