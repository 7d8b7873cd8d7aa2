import type { Candidate } from "./planning.ts";

/**
 * Of each of so many equal steps of memory the fastest plan, from the fastest of all to the smallest. @param
 * front the fastest first
 */
export function frontSample(front: readonly Candidate[], most: number): Candidate[] {
  const [first, last] = [front[0], front.at(-1)];
  if (front.length <= most || first === undefined || last === undefined) return [...front];
  const [high, low] = [first.predicted.peakMemoryBytes, last.predicted.peakMemoryBytes];
  const levels = Array.from(
    { length: most },
    (_, index) => low + ((high - low) * (most - 1 - index)) / (most - 1),
  );
  // The first level is the first plan's memory but for rounding.
  const kept = new Set([
    first,
    ...levels
      .slice(1)
      .map((level) => front.find(({ predicted }) => predicted.peakMemoryBytes <= level) ?? last),
  ]);
  return [...kept];
}
