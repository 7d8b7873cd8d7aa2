/**
 * Time of computation c and communication m side by side. Both slow down by R while they run together, for
 * the length of the shorter, so the time is max + (R − 1)·min. The paper takes R·max throughout, which is the
 * same where they are equal and charges a slow-down for communication that is already over where they are
 * not.
 */
export function together(compute: number, communication: number, slowdown: number): number {
  return Math.max(compute, communication) + (slowdown - 1) * Math.min(compute, communication);
}
