import type { CollectiveRequest, OverlapRequest, RequiredMeasurements } from "./measurements.ts";

/** Sizes of one collective, group and placement that are measured at most. */
const MOST_SIZES = 6;

const once = <T>(items: readonly T[]): T[] => [
  ...new Map(items.map((item) => [JSON.stringify(item), item])).values(),
];

/** At most `most` of a list, always with the first and the last, spread evenly over its order. */
function spread<T>(list: readonly T[], most: number): T[] {
  if (list.length <= most) return [...list];
  const picked = new Set(
    Array.from({ length: most }, (_, index) => Math.round((index * (list.length - 1)) / (most - 1))),
  );
  return list.filter((_, index) => picked.has(index));
}

/**
 * What several jobs of one cluster need measured, each point once: curves that several jobs ask for are one
 * curve over all of their sizes, of which a few are measured; of the overlaps, of each kind of module, pass
 * and collective the shortest and the longest.
 */
export function unionOf(needs: readonly RequiredMeasurements[]): RequiredMeasurements {
  const curves = new Map<string, CollectiveRequest[]>();
  for (const request of once(needs.flatMap(({ collectives }) => collectives))) {
    const key = JSON.stringify([request.op, request.groups, request.placement]);
    curves.set(key, [...(curves.get(key) ?? []), request]);
  }
  const collectives = [...curves.values()].flatMap((curve) =>
    spread(
      curve.sort((a, b) => a.bytes - b.bytes),
      MOST_SIZES,
    ),
  );
  const overlaps = new Map<string, OverlapRequest[]>();
  for (const request of needs.flatMap((need) => need.overlaps)) {
    const { op, groups, placement } = request.collective;
    const key = JSON.stringify([request.module.module, request.module.pass, op, groups, placement]);
    const ascending = [...(overlaps.get(key) ?? []), request].sort(
      (a, b) => a.collective.bytes - b.collective.bytes,
    );
    overlaps.set(key, spread(ascending, 2));
  }
  return {
    slices: once(needs.flatMap(({ slices }) => slices)),
    modules: once(needs.flatMap(({ modules }) => modules)),
    collectives,
    overlaps: once([...overlaps.values()].flat()),
  };
}
