import type { ProbeEvent } from "@internevo/contracts";
import { overlapKey, shapeKey, sliceKey } from "@internevo/cost-model";
import type { CollectiveCurve, Profile } from "@internevo/domain";
import { quieter, quieterAgain, type Point } from "./quality.ts";

/** Of two measurements of one point the one that counts. */
type Choose = <T extends Point>(older: T, newer: T) => T;

/** Every point by its key, the one that counts where several have it. */
function byKey<T extends Point>(
  points: readonly T[],
  keyOf: (point: T) => string | number,
  choose: Choose,
): Map<string | number, T> {
  const all = new Map<string | number, T>();
  for (const point of points) {
    const known = all.get(keyOf(point));
    all.set(keyOf(point), known ? choose(known, point) : point);
  }
  return all;
}

/** Of two measurements of one device the better figures: other work only ever takes from them. */
const bestDevice = (older: Profile["device"], newer: Profile["device"]): Profile["device"] => ({
  ...newer,
  peakFlopsPerSecondFp32: Math.max(older.peakFlopsPerSecondFp32, newer.peakFlopsPerSecondFp32),
  peakFlopsPerSecondBf16: Math.max(older.peakFlopsPerSecondBf16, newer.peakFlopsPerSecondBf16),
  memoryBandwidthBytesPerSecond: Math.max(
    older.memoryBandwidthBytesPerSecond,
    newer.memoryBandwidthBytesPerSecond,
  ),
  ...copyRates({
    toHostBytesPerSecond: better(older.toHostBytesPerSecond, newer.toHostBytesPerSecond),
    toDeviceBytesPerSecond: better(older.toDeviceBytesPerSecond, newer.toDeviceBytesPerSecond),
  }),
});

/** The larger of two rates, either of which may be unknown. */
const better = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);

type CopyRates = Pick<Profile["device"], "toHostBytesPerSecond" | "toDeviceBytesPerSecond">;

/** Rates of copies to the host and back, those that are known. */
export const copyRates = ({
  toHostBytesPerSecond: toHost,
  toDeviceBytesPerSecond: toDevice,
}: { readonly [Rate in keyof CopyRates]: CopyRates[Rate] | undefined }): CopyRates => ({
  ...(toHost === undefined ? {} : { toHostBytesPerSecond: toHost }),
  ...(toDevice === undefined ? {} : { toDeviceBytesPerSecond: toDevice }),
});

/**
 * A profile completed by a newer measurement of the same cluster: the provenance is the newer's, the device
 * has the better figures of both, points of both are kept; where both have one it is the newer's, or the older's where only the newer's is
 * noisy, or is the noisier of two.
 */
export const mergeProfiles = (older: Profile, newer: Profile): Profile => merged(older, newer, quieter);

/**
 * A fresh profile completed by what another job measured, as {@link mergeProfiles} merges them; points that
 * were measured again in vain are marked.
 */
export const freshProfileWith = (fresh: Profile, newer: Profile): Profile =>
  merged(fresh, newer, quieterAgain);

function merged(older: Profile, newer: Profile, choose: Choose): Profile {
  const modules = byKey([...older.modules, ...newer.modules], (module) => shapeKey(module.shape), choose);
  const overlaps = byKey(
    [...older.overlaps, ...newer.overlaps],
    (overlap) => overlapKey(overlap.shape, overlap.op, overlap.groupSize, overlap.bytes, overlap.placement),
    choose,
  );
  const curves = new Map<string, CollectiveCurve>();
  for (const curve of [...older.collectives, ...newer.collectives]) {
    const key = `${curve.op} ${curve.groupSize} ${curve.placement}`;
    const points = byKey(
      [...(curves.get(key)?.points ?? []), ...curve.points],
      (point) => point.bytes,
      choose,
    );
    curves.set(key, { ...curve, points: [...points.values()].sort((a, b) => a.bytes - b.bytes) });
  }
  const slices = byKey([...(older.slices ?? []), ...(newer.slices ?? [])], sliceKey, choose);
  const notes = [...newer.provenance.notes, `completes the profile ${older.name}`];
  return {
    ...newer,
    device: bestDevice(older.device, newer.device),
    modules: [...modules.values()],
    collectives: [...curves.values()],
    overlaps: [...overlaps.values()],
    slices: [...slices.values()],
    provenance: { ...newer.provenance, notes },
  };
}

type CollectiveEvent = Extract<ProbeEvent, { event: "collective" }>;

/** Points of one operation, group size and placement become one curve, ascending by size. */
export function collectiveCurves(events: readonly CollectiveEvent[]): CollectiveCurve[] {
  const curves = new Map<string, CollectiveCurve>();
  for (const { op, groupSize, placement, bytes, medianSeconds, p10Seconds, p90Seconds, samples } of events) {
    const key = `${op} ${groupSize} ${placement}`;
    const curve = curves.get(key) ?? { op, groupSize, placement, points: [] };
    curves.set(key, curve);
    curve.points.push({ bytes, medianSeconds, p10Seconds, p90Seconds, samples });
  }
  for (const curve of curves.values()) curve.points.sort((a, b) => a.bytes - b.bytes);
  return [...curves.values()];
}
