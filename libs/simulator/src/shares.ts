import type { Span } from "./lanes.ts";

/** What one stage does with the time of a step, in seconds. */
export interface StageShares {
  readonly stage: number;
  readonly computeSeconds: number;
  /** Collectives and waits that the computation stands still for. */
  readonly exposedSeconds: number;
  /** Neither: it waits for other stages, or for what is still on the communication lane. */
  readonly idleSeconds: number;
  /** On the lanes of collectives, and of it what runs beside computation. */
  readonly communicationSeconds: number;
  readonly hiddenSeconds: number;
}

interface Interval {
  readonly start: number;
  readonly end: number;
}
const lengthOf = (list: readonly Interval[]): number =>
  list.reduce((sum, { start, end }) => sum + end - start, 0);

/** Seconds in which an interval of each list runs; intervals of a list do not meet. */
function common(a: readonly Interval[], b: readonly Interval[]): number {
  let sum = 0;
  for (let i = 0, k = 0; i < a.length && k < b.length;) {
    const [x, y] = [a[i] as Interval, b[k] as Interval];
    sum += Math.max(0, Math.min(x.end, y.end) - Math.max(x.start, y.start));
    if (x.end < y.end) i += 1;
    else k += 1;
  }
  return sum;
}

/** What the stages of a simulated step do with its time. */
export function stageShares(spans: readonly Span[]): StageShares[] {
  const stepSeconds = spans.reduce((latest, { endSeconds }) => Math.max(latest, endSeconds), 0);
  const stages = [...new Set(spans.map(({ task }) => task.stage))].sort((a, b) => a - b);
  return stages.map((stage) => {
    const of = (is: (span: Span) => boolean): Interval[] =>
      spans
        .filter((span) => span.task.stage === stage && is(span))
        .map(({ startSeconds, endSeconds }) => ({ start: startSeconds, end: endSeconds }))
        .sort((a, b) => a.start - b.start);
    const computing = of(({ task }) => task.lane === "compute" && task.exposed !== true);
    const exposed = lengthOf(of(({ task }) => task.lane !== "pipeline" && task.exposed === true));
    // Two lanes: what is on one does not meet itself.
    const communicating = (["communication", "activations"] as const).map((lane) =>
      of(({ task }) => task.lane === lane),
    );
    const computeSeconds = lengthOf(computing);
    return {
      stage,
      computeSeconds,
      exposedSeconds: exposed,
      idleSeconds: Math.max(0, stepSeconds - computeSeconds - exposed),
      communicationSeconds: communicating.reduce((sum, lane) => sum + lengthOf(lane), 0),
      hiddenSeconds: communicating.reduce((sum, lane) => sum + common(computing, lane), 0),
    };
  });
}
