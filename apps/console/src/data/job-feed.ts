import type { JobDetail, JobLogLine, JobStreamEvent, StageProgress } from "@internevo/contracts";
import type { StepMetric, Trial, ValidationLoss } from "@internevo/domain";

export type LogLine = JobLogLine;

/**
 * What is known of a job beside its own record: what was stored when the page was opened, and what its stream
 * has brought since.
 */
export interface JobFeed {
  readonly progress: StageProgress | undefined;
  readonly log: readonly LogLine[];
  /** One value a step, in order of steps. */
  readonly steps: readonly StepMetric[];
  /** The same of the validation loss. */
  readonly validations: readonly ValidationLoss[];
  readonly ended: boolean;
}

/** What was stored of a job at the event `lastEventId`, or a little after. */
export interface JobHistory {
  readonly lastEventId: number;
  readonly progress: StageProgress | undefined;
  readonly log: readonly LogLine[];
  readonly steps: readonly StepMetric[];
  readonly validations: readonly ValidationLoss[];
}

export const feedOf = ({ progress, log, steps, validations }: JobHistory): JobFeed => ({
  progress,
  log,
  steps: mergeSteps([], steps),
  validations: mergeSteps([], validations),
  ended: false,
});

export const EMPTY_FEED: JobFeed = { progress: undefined, log: [], steps: [], validations: [], ended: false };

/** Lines of the log that are kept; older ones are at the command line. */
export const LOG_LINES = 2000;

const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);
const count = (value: unknown): number | null => (typeof value === "number" ? value : null);

/** Adds events to a feed. */
export function extendFeed(feed: JobFeed, events: readonly JobStreamEvent[]): JobFeed {
  const log: LogLine[] = [];
  const steps: StepMetric[] = [];
  const validations: ValidationLoss[] = [];
  let { progress } = feed;
  for (const { id, at, type, data } of events) {
    if (type === "step") steps.push(data as StepMetric);
    else if (type === "validation") validations.push(data as ValidationLoss);
    else if (type === "log")
      log.push({
        id,
        at,
        level: text(data["level"], "info"),
        source: text(data["source"], ""),
        message: text(data["message"], JSON.stringify(data)),
      });
    else if (type === "progress")
      progress = {
        stage: text(data["stage"], ""),
        message: text(data["message"], ""),
        done: count(data["done"]),
        total: count(data["total"]),
        waits: data["waits"] === true,
        at,
      };
  }
  return {
    ...feed,
    progress,
    log: log.length === 0 ? feed.log : withLines(feed.log, log),
    steps: steps.length === 0 ? feed.steps : mergeSteps(feed.steps, steps),
    validations: validations.length === 0 ? feed.validations : mergeSteps(feed.validations, validations),
  };
}

/** A line that was stored after the stream's beginning was read comes again with the stream. */
function withLines(known: readonly LogLine[], lines: readonly LogLine[]): LogLine[] {
  const last = known.at(-1)?.id ?? 0;
  return [...known, ...lines.filter(({ id }) => id > last)].slice(-LOG_LINES);
}

/** What an attempt measured at a step. */
type OfStep = Pick<StepMetric, "step" | "attempt">;

/**
 * One value a step, in order of steps: a step that a restart repeated counts once, as it was measured last.
 */
export function mergeSteps<T extends OfStep>(stored: readonly T[], streamed: readonly T[]): T[] {
  // As nearly always: what comes goes on from what is there.
  if (isInOrder(streamed, stored.at(-1)?.step ?? -1)) return [...stored, ...streamed];
  const byStep = new Map<number, T>();
  for (const step of [...stored, ...streamed]) {
    const known = byStep.get(step.step);
    if (!known || step.attempt >= known.attempt) byStep.set(step.step, step);
  }
  return [...byStep.values()].sort((a, b) => a.step - b.step);
}

/** The step that was made last: behind a checkpoint, steps of the attempt before are still to be made again. */
export const lastMade = <T extends OfStep>(steps: readonly T[]): T | undefined => {
  const newest = steps.reduce((most, { attempt }) => Math.max(most, attempt), 0);
  return steps.findLast(({ attempt }) => attempt === newest);
};

function isInOrder(steps: readonly OfStep[], after: number): boolean {
  let last = after;
  for (const { step } of steps) {
    if (step <= last) return false;
    last = step;
  }
  return true;
}

const ADVANCE: Readonly<Record<Trial["state"], number>> = {
  pending: 0,
  running: 1,
  succeeded: 2,
  failed: 2,
  cancelled: 2,
};

/** The stream may begin a little in the past, so a trial never goes back by an event. */
export function withTrial(job: JobDetail, trial: Trial): JobDetail {
  const known = job.trials.find(({ id }) => id === trial.id);
  if (!known)
    return { ...job, trials: [...job.trials, trial].sort((a, b) => a.candidate.rank - b.candidate.rank) };
  if (ADVANCE[trial.state] <= ADVANCE[known.state]) return job;
  return { ...job, trials: job.trials.map((each) => (each.id === trial.id ? trial : each)) };
}
