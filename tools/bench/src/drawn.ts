/** Mulberry32: the same numbers, from 0 to below 1, for the same seed. */
export function randomBy(seed: number): () => number {
  let now = seed;
  return () => {
    now = (now + 0x6d2b79f5) | 0;
    let mixed = Math.imul(now ^ (now >>> 15), 1 | now);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What is drawn of a list, each entry as often. */
export const drawnOf = <T>(list: readonly T[], random: () => number): T =>
  list[Math.floor(random() * list.length)] as T;

/** What is drawn of a list by weight. */
export function drawnByWeight<T>(
  list: readonly T[],
  weightOf: (entry: T) => number,
  random: () => number,
): T {
  let left = random() * list.reduce((sum, entry) => sum + weightOf(entry), 0);
  for (const entry of list) {
    left -= weightOf(entry);
    if (left < 0) return entry;
  }
  return list.at(-1) as T;
}

/** A number of the normal distribution of mean 0 and deviation 1. */
export const drawnNormal = (random: () => number): number =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());

/**
 * Neighbours among a cluster's hosts: `c3-n4`, `c3-n5`.
 * @param parts how many parts of equal size a cluster is described in; drawn, each entry as often.
 */
export function drawnHosts(
  clusters: number,
  hostsOfACluster: number,
  parts: readonly number[],
  random: () => number,
): string[] {
  const cluster = Math.floor(random() * clusters);
  const count = Math.max(1, Math.floor(hostsOfACluster / drawnOf(parts, random)));
  const first = Math.floor((random() * hostsOfACluster) / count) * count;
  return Array.from({ length: count }, (_, index) => `c${cluster}-n${first + index}`);
}
