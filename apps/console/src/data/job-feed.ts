import type { JobDetail, JobStreamEvent } from "@internevo/contracts";
import type { StepMetric, Trial } from "@internevo/domain";

export interface StageProgress {
  readonly stage: string;
  readonly message: string;
  readonly done: number | undefined;
  readonly total: number | undefined;
  readonly at: string;
}

export interface LogLine {
  readonly id: number;
  readonly at: string;
  readonly level: string;
  readonly source: string;
  readonly message: string;
}

/** What the stream of a job has brought since the page was opened. */
export interface JobFeed {
  readonly progress: StageProgress | undefined;
  readonly log: readonly LogLine[];
  readonly steps: readonly StepMetric[];
  readonly ended: boolean;
}

export const EMPTY_FEED: JobFeed = { progress: undefined, log: [], steps: [], ended: false };

/** Lines of the log that are kept; older ones are at the command line. */
export const LOG_LINES = 2000;

const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);
const count = (value: unknown): number | undefined => (typeof value === "number" ? value : undefined);

/** Adds events to a feed. */
export function extendFeed(feed: JobFeed, events: readonly JobStreamEvent[]): JobFeed {
  const log: LogLine[] = [];
  const steps: StepMetric[] = [];
  let { progress } = feed;
  for (const { id, at, type, data } of events) {
    if (type === "step") steps.push(data as StepMetric);
    else if (type === "log") log.push({ id, at, level: text(data["level"], "info"), source: text(data["source"], ""), message: text(data["message"], JSON.stringify(data)) });
    else if (type === "progress") progress = { stage: text(data["stage"], ""), message: text(data["message"], ""), done: count(data["done"]), total: count(data["total"]), at };
  }
  return {
    ...feed,
    progress,
    log: log.length === 0 ? feed.log : [...feed.log, ...log].slice(-LOG_LINES),
    steps: steps.length === 0 ? feed.steps : [...feed.steps, ...steps],
  };
}

/** One value a step, in order of steps: a step that a restart repeated counts once, as it was measured last. */
export function mergeSteps(stored: readonly StepMetric[], streamed: readonly StepMetric[]): StepMetric[] {
  const byStep = new Map<number, StepMetric>();
  for (const step of [...stored, ...streamed]) {
    const known = byStep.get(step.step);
    if (!known || step.attempt >= known.attempt) byStep.set(step.step, step);
  }
  return [...byStep.values()].sort((a, b) => a.step - b.step);
}

const ADVANCE: Readonly<Record<Trial["state"], number>> = { pending: 0, running: 1, succeeded: 2, failed: 2 };

/** The stream begins with the past, so a trial never goes back by an event. */
export function withTrial(job: JobDetail, trial: Trial): JobDetail {
  const known = job.trials.find(({ id }) => id === trial.id);
  if (!known) return { ...job, trials: [...job.trials, trial].sort((a, b) => a.candidate.rank - b.candidate.rank) };
  if (ADVANCE[trial.state] <= ADVANCE[known.state]) return job;
  return { ...job, trials: job.trials.map((each) => (each.id === trial.id ? trial : each)) };
}
