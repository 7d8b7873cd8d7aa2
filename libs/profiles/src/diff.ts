import { Curve } from "@internevo/cost-model";
import type { CollectiveCurve, ModuleShape, ModuleTime, Profile } from "@internevo/domain";
import { curveKey } from "./imported.ts";

/**
 * One thing that was measured twice, at one or more sizes. Ratios are the second profile's time over the
 * first's: above 1 is slower.
 */
export interface Change {
  readonly name: string;
  readonly points: number;
  /** Geometric mean over the points. */
  readonly ratio: number;
  /** The point that differs most, either way. */
  readonly furthest: {
    readonly at: string;
    readonly ratio: number;
    readonly beforeSeconds: number;
    readonly afterSeconds: number;
  };
  /**
   * Points whose intervals from the 10th to the 90th percentile do not touch; of points where both have one.
   */
  readonly beyondSpread: number;
  readonly withSpread: number;
}

/** A figure or a text that profiles state once. */
export interface StatedChange {
  readonly field: string;
  readonly before: number | string | null;
  readonly after: number | string | null;
}

export interface ProfileDifference {
  readonly stated: readonly StatedChange[];
  readonly collectives: readonly Change[];
  readonly modules: readonly Change[];
  /** Slow-downs of overlapped work, second over first. */
  readonly overlaps: readonly Change[];
  readonly onlyInFirst: readonly string[];
  readonly onlyInSecond: readonly string[];
}

interface Timed {
  readonly medianSeconds: number;
  readonly p10Seconds?: number | undefined;
  readonly p90Seconds?: number | undefined;
}
interface Pair {
  readonly at: string;
  readonly before: Timed;
  readonly after: Timed;
}

const hasSpread = (time: Timed): time is Timed & { p10Seconds: number; p90Seconds: number } =>
  time.p10Seconds !== undefined && time.p90Seconds !== undefined;

function changeOf(name: string, pairs: readonly Pair[]): Change {
  const ratios = pairs.map(({ before, after }) => after.medianSeconds / before.medianSeconds);
  const furthest = ratios.reduce(
    (best, ratio, index) =>
      Math.abs(Math.log(ratio)) > Math.abs(Math.log(ratios[best] as number)) ? index : best,
    0,
  );
  const { at, before, after } = pairs[furthest] as Pair;
  let beyondSpread = 0;
  let withSpread = 0;
  for (const pair of pairs) {
    if (!hasSpread(pair.before) || !hasSpread(pair.after)) continue;
    withSpread += 1;
    if (pair.before.p90Seconds < pair.after.p10Seconds || pair.after.p90Seconds < pair.before.p10Seconds)
      beyondSpread += 1;
  }
  return {
    name,
    points: pairs.length,
    ratio: Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length),
    furthest: {
      at,
      ratio: ratios[furthest] as number,
      beforeSeconds: before.medianSeconds,
      afterSeconds: after.medianSeconds,
    },
    beyondSpread,
    withSpread,
  };
}

/** Points of both curves; where sizes differ, the second is read between its points, never beyond them. */
function curvePairs(before: CollectiveCurve, after: CollectiveCurve): Pair[] {
  const exact = new Map(after.points.map((point) => [point.bytes, point]));
  const curve = new Curve(
    after.points.map(({ bytes, medianSeconds }) => ({ at: bytes, seconds: medianSeconds })),
  );
  const sizes = curve.sizes;
  const pairs: Pair[] = [];
  for (const point of before.points) {
    const same = exact.get(point.bytes);
    const inside = point.bytes >= (sizes[0] as number) && point.bytes <= curve.largest;
    if (same) pairs.push({ at: `${point.bytes} bytes`, before: point, after: same });
    else if (inside)
      pairs.push({
        at: `${point.bytes} bytes, between points`,
        before: point,
        after: { medianSeconds: curve.seconds(point.bytes) },
      });
  }
  return pairs;
}

const shapeText = (shape: ModuleShape): string =>
  Object.entries(shape)
    .filter(([key]) => !["module", "pass", "precision"].includes(key))
    .map(([key, value]) => `${key} ${value}`)
    .join(", ");
const shapeKey = (shape: ModuleShape): string =>
  JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));
const kindOf = ({ module, pass, precision }: ModuleShape): string => `${module} ${pass}, ${precision}`;
const shapeName = (shape: ModuleShape): string => `${kindOf(shape)}: ${shapeText(shape)}`;

interface Matched<T> {
  readonly both: readonly { readonly before: T; readonly after: T }[];
  readonly onlyBefore: readonly T[];
  readonly onlyAfter: readonly T[];
}

function match<T>(before: readonly T[], after: readonly T[], keyOf: (item: T) => string): Matched<T> {
  const known = new Map(after.map((item) => [keyOf(item), item]));
  const both: { before: T; after: T }[] = [];
  const onlyBefore: T[] = [];
  for (const item of before) {
    const other = known.get(keyOf(item));
    if (other === undefined) onlyBefore.push(item);
    else both.push({ before: item, after: other });
    known.delete(keyOf(item));
  }
  return { both, onlyBefore, onlyAfter: [...known.values()] };
}

function stated(before: Profile, after: Profile): StatedChange[] {
  const figures = (profile: Profile): [string, number | string | null][] => [
    ["cluster.nodes", profile.cluster.nodes],
    ["cluster.gpusPerNode", profile.cluster.gpusPerNode],
    ["cluster.memoryPerGpuBytes", profile.cluster.memoryPerGpuBytes ?? null],
    ...Object.entries(profile.device).map(([key, value]): [string, number | string] => [
      `device.${key}`,
      value,
    ]),
    ...Object.entries(profile.executor).map(([key, value]): [string, string] => [`executor.${key}`, value]),
    ["provenance.source", profile.provenance.source],
    ["provenance.measuredAt", profile.provenance.measuredAt],
    ...Object.entries(profile.provenance.versions).map(([key, value]): [string, string] => [
      `provenance.versions.${key}`,
      value,
    ]),
  ];
  const first = new Map(figures(before));
  const second = new Map(figures(after));
  return [...new Set([...first.keys(), ...second.keys()])]
    .map((field) => ({ field, before: first.get(field) ?? null, after: second.get(field) ?? null }))
    .filter((change) => change.before !== change.after);
}

/**
 * What two profiles measured alike and differently: stated figures, curves, modules, slow-downs, and what
 * only one of them has.
 */
export function diffProfiles(before: Profile, after: Profile): ProfileDifference {
  const curves = match(before.collectives, after.collectives, curveKey);
  const modules = match<ModuleTime>(before.modules, after.modules, ({ shape }) => shapeKey(shape));
  const overlapName = ({ shape, op, groupSize, placement }: Profile["overlaps"][number]): string =>
    `${shape ? kindOf(shape) : "any module"} beside ${op} over ${groupSize} ranks${placement ? `, ${placement}` : ""}`;
  const overlaps = match(
    before.overlaps,
    after.overlaps,
    (each) => `${overlapName(each)} ${each.bytes ?? ""} ${each.shape ? shapeKey(each.shape) : ""}`,
  );
  const compared = curves.both.map(({ before: one, after: other }) => ({
    name: curveKey(one),
    pairs: curvePairs(one, other),
  }));
  const kinds = Map.groupBy(modules.both, ({ before: { shape } }) => kindOf(shape));
  const slowdowns = Map.groupBy(overlaps.both, ({ before: each }) => overlapName(each));
  return {
    stated: stated(before, after),
    collectives: compared
      .filter(({ pairs }) => pairs.length > 0)
      .map(({ name, pairs }) => changeOf(name, pairs)),
    modules: [...kinds].map(([name, some]) =>
      changeOf(
        name,
        some.map((pair) => ({ at: shapeText(pair.before.shape), before: pair.before, after: pair.after })),
      ),
    ),
    overlaps: [...slowdowns].map(([name, some]) =>
      changeOf(
        name,
        some.map((pair) => ({
          at: `${pair.before.bytes ?? "any"} bytes`,
          before: { medianSeconds: pair.before.slowdown },
          after: { medianSeconds: pair.after.slowdown },
        })),
      ),
    ),
    onlyInFirst: [
      ...curves.onlyBefore.map(curveKey),
      ...compared.filter(({ pairs }) => pairs.length === 0).map(({ name }) => `${name} (no common sizes)`),
      ...modules.onlyBefore.map(({ shape }) => shapeName(shape)),
      ...overlaps.onlyBefore.map(overlapName),
    ],
    onlyInSecond: [
      ...curves.onlyAfter.map(curveKey),
      ...modules.onlyAfter.map(({ shape }) => shapeName(shape)),
      ...overlaps.onlyAfter.map(overlapName),
    ],
  };
}
