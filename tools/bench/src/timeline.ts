import { readFile } from "node:fs/promises";

/** One event of a measured timeline (native/src/trainer/timeline.h), in seconds. */
export interface LaneEvent {
  readonly name: string;
  readonly lane: "compute" | "communication" | "exposed communication";
  readonly unit: number;
  readonly start: number;
  readonly end: number;
}

interface TraceEvent {
  readonly ph: string;
  readonly name: string;
  readonly cat?: LaneEvent["lane"];
  readonly pid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly args: { readonly unit?: number; readonly name?: string };
}

/** The events of every rank, by their start. @throws Error when a rank had no room for all of its events. */
export async function readTimeline(path: string): Promise<LaneEvent[][]> {
  const { traceEvents } = JSON.parse(await readFile(path, "utf8")) as { traceEvents: TraceEvent[] };
  const ranks: LaneEvent[][] = [];
  for (const { ph, name, cat, pid, ts = 0, dur = 0, args } of traceEvents) {
    if (ph === "M" && args.name?.includes("had no room") === true) throw new Error(`the timeline ${path} is not whole: ${args.name}`);
    if (ph !== "X" || cat === undefined) continue;
    (ranks[pid] ??= []).push({ name, lane: cat, unit: args.unit ?? -1, start: ts / 1e6, end: (ts + dur) / 1e6 });
  }
  for (const events of ranks) events.sort((a, b) => a.start - b.start);
  return ranks;
}

/** The event that every step has between its passes and its update, before which the communication lane has run empty. */
const NORM = "all-reduce loss and gradient norm";

/**
 * A rank's events cut where a step's gradient norm is known: each piece is an update and the passes that use what it updated. What
 * an update leaves under way is used in the piece that it began in. What comes before the first norm is left out.
 */
export function stepsOf(events: readonly LaneEvent[]): { readonly start: number; readonly end: number; readonly events: readonly LaneEvent[] }[] {
  const ends = events.filter(({ name }) => name === NORM).map(({ end }) => end);
  return ends.slice(1).map((end, index) => {
    const start = ends[index] as number;
    return { start, end, events: events.filter((event) => event.start >= start && event.end <= end) };
  });
}
