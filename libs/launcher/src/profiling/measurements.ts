import type { ProbeConfig, ProbeEvent } from "@internevo/contracts";
import { quieter, type Point } from "./quality.ts";
import type { CollectiveCurve, ModuleShape, Profile, SliceRequest, SliceShape } from "@internevo/domain";

/** What a profile must hold so that the plans of a job can be predicted from measurements (the planner says it). */
export interface Measurements {
  readonly modules: readonly ModuleShape[];
  readonly collectives: readonly ProbeConfig["collectives"][number][];
  readonly overlaps: readonly ProbeConfig["overlaps"][number][];
  /** Micro-batches that the trainer itself runs. */
  readonly slices: readonly SliceRequest[];
}

/** A text that is equal for equal shapes, whatever the order of their fields. */
export const shapeKey = (shape: ModuleShape | SliceShape): string => JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));

const sliceKey = ({ shape, layers }: SliceRequest): string => `${shapeKey(shape)} ${layers}`;

const collectiveKey = (op: string, groupSize: number, placement: string, bytes: number): string => `${op} ${groupSize} ${placement} ${bytes}`;

const overlapKey = (shape: ModuleShape | undefined, op: string, groupSize: number, bytes: number | undefined, placement: string | undefined): string => `${shape ? shapeKey(shape) : ""} ${op} ${groupSize} ${bytes ?? ""} ${placement ?? ""}`;

/** The needed measurements that a profile lacks. */
export function missingMeasurements(profile: Profile, needed: Measurements): Measurements {
  const modules = new Set(profile.modules.map((module) => shapeKey(module.shape)));
  const points = new Set(profile.collectives.flatMap((curve) => curve.points.map((point) => collectiveKey(curve.op, curve.groupSize, curve.placement, point.bytes))));
  const overlaps = new Set(profile.overlaps.map((overlap) => overlapKey(overlap.shape, overlap.op, overlap.groupSize, overlap.bytes, overlap.placement)));
  const slices = new Set((profile.slices ?? []).map(sliceKey));
  return {
    slices: needed.slices.filter((slice) => !slices.has(sliceKey(slice))),
    modules: needed.modules.filter((shape) => !modules.has(shapeKey(shape))),
    collectives: needed.collectives.filter((each) => !points.has(collectiveKey(each.op, each.groups[0]?.length ?? 0, each.placement, each.bytes))),
    overlaps: needed.overlaps.filter(({ module, collective }) => !overlaps.has(overlapKey(module, collective.op, collective.groups[0]?.length ?? 0, collective.bytes, collective.placement))),
  };
}

export const measurementCount = ({ modules, collectives, overlaps, slices }: Measurements): number => modules.length + collectives.length + overlaps.length + slices.length;

/** The model and the sequence of a slice: what a micro-batch of another size, or another way to share, can stand in for. */
const sequenceKey = ({ shape: { microBatchSize: _b, sequenceParallel: _sp, tensorParallel: _tp, contextParallel: _c, ...shape } }: SliceRequest): string => JSON.stringify(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));

/**
 * How many of the needed measurements a profile lacks. Slices of a model and sequence of which others were run, with the layers that they need, do not
 * count: the nearest stands in for them, and one that had no room would be asked for again and again.
 */
export function countMissing(profile: Profile, needed: Measurements): number {
  const missing = missingMeasurements(profile, needed);
  const absent = new Set(missing.slices);
  const known = new Set(needed.slices.filter((slice) => !absent.has(slice)).map(sequenceKey));
  return measurementCount({ ...missing, slices: missing.slices.filter((slice) => !known.has(sequenceKey(slice))) });
}

/** Every point by its key, the quieter one where several have it. */
function byKey<T extends Point>(points: readonly T[], keyOf: (point: T) => string | number): Map<string | number, T> {
  const all = new Map<string | number, T>();
  for (const point of points) {
    const known = all.get(keyOf(point));
    all.set(keyOf(point), known ? quieter(known, point) : point);
  }
  return all;
}

/**
 * A profile completed by a newer measurement of the same cluster: device and provenance are the newer's, points of both are kept; where both have
 * one it is the newer's, or the older's where only the newer's is noisy, or is the noisier of two.
 */
export function mergeProfiles(older: Profile, newer: Profile): Profile {
  const modules = byKey([...older.modules, ...newer.modules], (module) => shapeKey(module.shape));
  const overlaps = byKey([...older.overlaps, ...newer.overlaps], (overlap) => overlapKey(overlap.shape, overlap.op, overlap.groupSize, overlap.bytes, overlap.placement));
  const curves = new Map<string, CollectiveCurve>();
  for (const curve of [...older.collectives, ...newer.collectives]) {
    const key = `${curve.op} ${curve.groupSize} ${curve.placement}`;
    const points = byKey([...(curves.get(key)?.points ?? []), ...curve.points], (point) => point.bytes);
    curves.set(key, { ...curve, points: [...points.values()].sort((a, b) => a.bytes - b.bytes) });
  }
  const slices = byKey([...(older.slices ?? []), ...(newer.slices ?? [])], sliceKey);
  const notes = [...newer.provenance.notes, `completes the profile ${older.name}`];
  return { ...newer, modules: [...modules.values()], collectives: [...curves.values()], overlaps: [...overlaps.values()], slices: [...slices.values()], provenance: { ...newer.provenance, notes } };
}

/** The needed measurements that a profile has, but noisily. */
export function noisyMeasurements(profile: Profile, needed: Measurements): Measurements {
  const quiet = <T extends Point>(points: readonly T[]): T[] => points.filter(({ noisy }) => noisy !== true);
  const withoutNoisy: Profile = {
    ...profile,
    modules: quiet(profile.modules), overlaps: quiet(profile.overlaps), slices: quiet(profile.slices ?? []),
    collectives: profile.collectives.map((curve) => ({ ...curve, points: quiet(curve.points) })),
  };
  const absent = missingMeasurements(profile, needed);
  const lacking = missingMeasurements(withoutNoisy, needed);
  const without = <T>(all: readonly T[], some: readonly T[]): T[] => all.filter((each) => !some.includes(each));
  return { modules: without(lacking.modules, absent.modules), collectives: without(lacking.collectives, absent.collectives), overlaps: without(lacking.overlaps, absent.overlaps), slices: without(lacking.slices, absent.slices) };
}

/** Both lists of measurements, which have nothing in common. */
export const bothMeasurements = (a: Measurements, b: Measurements): Measurements => ({ modules: [...a.modules, ...b.modules], collectives: [...a.collectives, ...b.collectives], overlaps: [...a.overlaps, ...b.overlaps], slices: [...a.slices, ...b.slices] });

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
