import type { LaneEvent, LaneStep } from "@internevo/domain";

export { readTimeline } from "@internevo/profiling";

/**
 * The event that every step has between its passes and its update, before which the communication lane has
 * run empty.
 */
const NORM = "all-reduce loss and gradient norm";

/**
 * A rank's events cut where a step's gradient norm is known: each piece is an update and the passes that use
 * what it updated. What an update leaves under way is used in the piece that it began in. What comes before
 * the first norm is left out.
 */
export function betweenNorms(events: readonly LaneEvent[]): LaneStep[] {
  const ends = events.filter(({ name }) => name === NORM).map(({ end }) => end);
  return ends.slice(1).map((end, index) => {
    const start = ends[index] as number;
    return { start, end, events: events.filter((event) => event.start >= start && event.end <= end) };
  });
}
