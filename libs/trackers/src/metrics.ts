import type { JobStreamEvent } from "@internevo/contracts";
import { measuredMfu, worldSize, type Attempt, type Plan, type Report, type Trial } from "@internevo/domain";
import type { JobRow, RunPoints } from "@internevo/store";

/** A job as trackers describe it. */
export interface TrackedJob extends Pick<
  JobRow,
  "id" | "name" | "project" | "spec" | "chosen" | "createdAt"
> {
  readonly owner: string | null;
  readonly attempts: readonly Attempt[];
  /** What is stored now of the run. */
  readonly countPoints: () => Promise<RunPoints>;
}

/** One figure at one step. */
export interface Metric {
  readonly name: string;
  readonly value: number;
  readonly step: number;
  readonly atMs: number;
}

/** By these two it can be asked whether everything has come. */
export const LOSS = "train/loss";
export const VALIDATION_LOSS = "validation/loss";

/** JSON has no word for what is not finite: it is stored as null. */
const numberOf = (value: unknown): number => (typeof value === "number" ? value : Number.NaN);

/** The plan that an attempt's ranks run; null where nobody knows. */
export function planOfAttempt(job: TrackedJob, attempt: number): Plan | undefined {
  return job.attempts.find(({ number }) => number === attempt)?.plan;
}

/** The attempt that begins with this step, where the event is one; steps of earlier attempts behind it count no more. */
export function beginningAttempt(job: TrackedJob, event: JobStreamEvent): Attempt | undefined {
  if (event.type !== "step") return undefined;
  const { step, attempt } = event.data;
  return job.attempts.find(
    ({ number, resumedFromStep }) => number === attempt && resumedFromStep + 1 === step,
  );
}

function mfuOf(job: TrackedJob, attempt: number, seconds: number): Record<string, number> {
  if (job.chosen === null) return {};
  const ranks = worldSize(planOfAttempt(job, attempt) ?? job.chosen.plan);
  return { "speed/mfu": measuredMfu(job.chosen, [{ steps: 1, seconds, ranks }]) };
}

function stepFigures(job: TrackedJob, data: JobStreamEvent["data"]): Record<string, number> {
  const seconds = numberOf(data["stepTimeSeconds"]);
  const attempt = numberOf(data["attempt"]);
  return {
    [LOSS]: numberOf(data["loss"]),
    "train/gradient_norm": numberOf(data["gradientNorm"]),
    "train/learning_rate": numberOf(data["learningRate"]),
    "speed/step_time_seconds": seconds,
    "speed/tokens_per_second": numberOf(data["tokensPerSecond"]),
    "speed/exposed_communication_seconds": numberOf(data["exposedCommunicationSeconds"]),
    ...mfuOf(job, attempt, seconds),
    "run/attempt": attempt,
  };
}

/** What a trial has measured; what was predicted as soon as it begins. */
export const trialFigures = ({ candidate, measured }: Trial): Record<string, number> => ({
  predicted_step_time_seconds: candidate.predicted.stepTimeSeconds,
  predicted_peak_memory_bytes: candidate.predicted.peakMemoryBytes,
  ...(measured === null
    ? {}
    : {
        step_time_seconds: measured.stepTimeSeconds,
        tokens_per_gpu_per_second: measured.tokensPerGpuPerSecond,
        peak_memory_bytes: measured.peakMemoryBytes,
        loss: measured.loss,
      }),
});

const reportFigures = (report: Report): Record<string, number> => ({
  "report/final_loss": report.finalLossNats,
  "report/mean_step_time_seconds": report.meanStepTimeSeconds,
  "report/tokens_per_gpu_per_second": report.tokensPerGpuPerSecond,
  "report/attempts": report.attempts,
});

/** The trial that an event tells of. */
export const trialOf = ({ type, data }: JobStreamEvent): Trial | undefined =>
  type === "trial" ? (data["trial"] as Trial) : undefined;

/** The figures of an event of a run, all of one step; none for events that have none. */
export function metricsOf(job: TrackedJob, event: JobStreamEvent): Metric[] {
  const { type, data } = event;
  const figures = (step: number, at: string, values: Readonly<Record<string, number>>): Metric[] =>
    Object.entries(values).map(([name, value]) => ({ name, value, step, atMs: Date.parse(at) }));
  switch (type) {
    case "step":
      return figures(numberOf(data["step"]), String(data["at"]), stepFigures(job, data));
    case "validation":
      return figures(numberOf(data["step"]), String(data["at"]), {
        [VALIDATION_LOSS]: numberOf(data["loss"]),
        "validation/seconds": numberOf(data["seconds"]),
      });
    case "report":
      return figures(numberOf(data["steps"]), event.at, reportFigures(data as unknown as Report));
    default:
      return [];
  }
}
