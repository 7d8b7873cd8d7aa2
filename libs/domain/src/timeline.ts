/** One event of a measured timeline (native/src/trainer/timeline.h), in seconds. */
export interface LaneEvent {
  readonly name: string;
  readonly lane: "compute" | "communication" | "exposed communication" | "activation communication";
  readonly unit: number;
  readonly microBatch?: number;
  readonly start: number;
  readonly end: number;
}

/** Whether it went on beside what the computing thread did. */
export const isBeside = ({ lane }: Pick<LaneEvent, "lane">): boolean =>
  lane === "communication" || lane === "activation communication";

/** A step of one rank: its begin is the end of the step before. */
export interface LaneStep {
  readonly start: number;
  readonly end: number;
  readonly events: readonly LaneEvent[];
}

/** A measured timeline as it is written, for Perfetto; times in microseconds, pid = rank. */
export interface MeasuredTrace {
  readonly traceEvents: readonly {
    readonly ph: string;
    readonly name: string;
    readonly cat?: LaneEvent["lane"];
    readonly pid: number;
    readonly tid?: number;
    readonly ts?: number;
    readonly dur?: number;
    readonly args?: { readonly unit?: number; readonly microBatch?: number; readonly name?: string };
  }[];
}

/**
 * The events of every rank of a trace, by their start. @throws Error when a rank had no room for all of its
 * events.
 */
export function laneEventsOf({ traceEvents }: MeasuredTrace): LaneEvent[][] {
  const ranks: LaneEvent[][] = [];
  for (const { ph, name, cat, pid, ts = 0, dur = 0, args } of traceEvents) {
    if (ph === "M" && args?.name?.includes("had no room") === true)
      throw new Error(`the timeline is not whole: ${args.name}`);
    if (ph !== "X" || cat === undefined) continue;
    (ranks[pid] ??= []).push({
      name,
      lane: cat,
      unit: args?.unit ?? -1,
      microBatch: args?.microBatch ?? -1,
      start: ts / 1e6,
      end: (ts + dur) / 1e6,
    });
  }
  for (const events of ranks) events?.sort((a, b) => a.start - b.start || b.end - a.end);
  return ranks;
}

/** The two events that every step has: in the middle, and after which only the update follows. */
const NORM = "all-reduce loss and gradient norm";
const UPDATE = new Set([
  "optimizer",
  "all-gather updated parameters",
  "wait for updated parameters",
  "ready to be sent",
]);

/**
 * A rank's events cut into steps; a step ends with its update. What comes before the first step's begin is
 * unknown, so the first is left out.
 */
export function stepsOf(events: readonly LaneEvent[]): LaneStep[] {
  const ends = events.flatMap((event, index) => {
    if (event.name !== NORM) return [];
    let end = event.end;
    for (let next = index + 1; next < events.length; next += 1) {
      const following = events[next] as LaneEvent;
      if (!UPDATE.has(following.name)) break;
      end = Math.max(end, following.end);
    }
    return [end];
  });
  return ends.slice(1).map((end, index) => {
    const start = ends[index] as number;
    return { start, end, events: events.filter((event) => event.start >= start && event.end <= end) };
  });
}
