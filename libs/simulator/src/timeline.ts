import { LANES, type Span } from "./lanes.ts";

/** An event of the trace format that Perfetto and chrome://tracing read; times in microseconds. */
export type TraceEvent =
  | {
      readonly ph: "M";
      readonly name: "process_name" | "thread_name";
      readonly pid: number;
      readonly tid?: number;
      readonly args: { readonly name: string };
    }
  | {
      readonly ph: "X";
      readonly name: string;
      readonly cat: string;
      readonly pid: number;
      readonly tid: number;
      readonly ts: number;
      readonly dur: number;
      readonly args: Record<string, number | boolean>;
    };

export interface Trace {
  readonly displayTimeUnit: "ms";
  readonly traceEvents: readonly TraceEvent[];
}

/**
 * A simulated step in the form of the measured timeline: pid = the first rank of each stage, tid = 1 + lane.
 */
export function toTrace(spans: readonly Span[], ranksPerStage: number): Trace {
  const stages = [...new Set(spans.map(({ task }) => task.stage))].sort((a, b) => a - b);
  const names = stages.flatMap((stage): TraceEvent[] => {
    const pid = stage * ranksPerStage;
    return [
      { ph: "M", name: "process_name", pid, args: { name: `simulated rank ${pid}, stage ${stage}` } },
      ...LANES.map((lane, index): TraceEvent => ({
        ph: "M",
        name: "thread_name",
        pid,
        tid: 1 + index,
        args: { name: lane },
      })),
    ];
  });
  const events = spans.map(({ task, startSeconds, endSeconds }): TraceEvent => ({
    ph: "X",
    name: task.name,
    cat: task.lane,
    pid: task.stage * ranksPerStage,
    tid: 1 + LANES.indexOf(task.lane),
    ts: startSeconds * 1e6,
    dur: (endSeconds - startSeconds) * 1e6,
    args: {
      ...(task.layer === undefined || task.layer < 0 ? {} : { layer: task.layer }),
      ...(task.microBatch === undefined ? {} : { microBatch: task.microBatch }),
      ...(task.exposed === undefined ? {} : { exposed: task.exposed }),
    },
  }));
  return { displayTimeUnit: "ms", traceEvents: [...names, ...events] };
}

/** A measured event, whatever else it says. */
export interface MeasuredEvent {
  readonly ph: string;
  readonly name: string;
  readonly pid: number;
  readonly tid?: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly args?: unknown;
}

/**
 * A measured timeline and a simulated step in one trace: processes of the simulation come after those that
 * were measured, and the simulated step is laid over every measured step.
 * @param stepStarts microseconds at which the measured steps begin.
 */
export function overlayTraces(
  measured: readonly MeasuredEvent[],
  simulated: Trace,
  stepStarts: readonly number[],
): { readonly displayTimeUnit: "ms"; readonly traceEvents: readonly (MeasuredEvent | TraceEvent)[] } {
  const first = measured.reduce((most, { pid }) => Math.max(most, pid), -1) + 1;
  const moved = simulated.traceEvents.map((event): TraceEvent => ({ ...event, pid: first + event.pid }));
  const names = moved.filter((event) => event.ph === "M");
  const steps = stepStarts.flatMap((start) =>
    moved.flatMap((event) => (event.ph === "X" ? [{ ...event, ts: event.ts + start }] : [])),
  );
  return { displayTimeUnit: "ms", traceEvents: [...measured, ...names, ...steps] };
}
