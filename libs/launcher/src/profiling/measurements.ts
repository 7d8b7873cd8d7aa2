import type { ProbeConfig, ProbeEvent } from "@internevo/contracts";
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

/** A profile completed by a newer measurement of the same cluster: device and provenance are the newer's, points of both are kept, the newer's where both have one. */
export function mergeProfiles(older: Profile, newer: Profile): Profile {
  const modules = new Map([...older.modules, ...newer.modules].map((module) => [shapeKey(module.shape), module]));
  const overlaps = new Map([...older.overlaps, ...newer.overlaps].map((overlap) => [overlapKey(overlap.shape, overlap.op, overlap.groupSize, overlap.bytes, overlap.placement), overlap]));
  const curves = new Map<string, CollectiveCurve>();
  for (const curve of [...older.collectives, ...newer.collectives]) {
    const key = `${curve.op} ${curve.groupSize} ${curve.placement}`;
    const points = new Map([...(curves.get(key)?.points ?? []), ...curve.points].map((point) => [point.bytes, point]));
    curves.set(key, { ...curve, points: [...points.values()].sort((a, b) => a.bytes - b.bytes) });
  }
  const slices = new Map([...(older.slices ?? []), ...(newer.slices ?? [])].map((slice) => [sliceKey(slice), slice]));
  const notes = [...newer.provenance.notes, `completes the profile ${older.name}`];
  return { ...newer, modules: [...modules.values()], collectives: [...curves.values()], overlaps: [...overlaps.values()], slices: [...slices.values()], provenance: { ...newer.provenance, notes } };
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
