import type { InternEvoClient } from "@internevo/client";
import type { JobStreamEvent, StageProgress } from "@internevo/contracts";
import {
  FAILURE_WORDS,
  formatBytes,
  formatRate,
  formatRuns,
  formatSeconds,
  isTerminal,
  JOB_STATE_WORDS,
  lowered,
  planLabel,
  STAGES,
  type JobState,
  type Report,
  type StepMetric,
  type Trial,
} from "@internevo/domain";
import type { Output } from "./output.ts";

const STAGE_TITLES: Partial<Record<JobState, string>> = Object.fromEntries(
  STAGES.map(({ state, name }) => [state, lowered(name)]),
);

const BAR_CELLS = 20;
const bar = (done: number, total: number): string => {
  const filled = total > 0 ? Math.round((Math.min(done, total) / total) * BAR_CELLS) : 0;
  return `${"█".repeat(filled)}${"░".repeat(BAR_CELLS - filled)} ${done}/${total}`;
};

export interface ProgressOptions {
  readonly output: Output;
  /** Steps that the job trains. */
  readonly steps: number;
  /** Lines of the services and ranks too. */
  readonly withLogs?: boolean;
}

/**
 * Turns a job's events into lines and, on a terminal, a bar: a line a stage and a trial, and elsewhere a line
 * every tenth of the profiling and the training.
 */
export function createProgress(options: ProgressOptions): {
  readonly on: (event: JobStreamEvent) => void;
  readonly end: () => void;
} {
  const { output } = options;
  let stage: JobState | undefined;
  let stageStartedAt = 0;
  let nextStepLine = 1;
  let tenthsSaid = -1;
  let said = "";
  const every = Math.max(1, Math.round(options.steps / 10));

  function onState(event: JobStreamEvent): void {
    const to = event.data["to"] as JobState;
    const reason = event.data["reason"] as string | null;
    const at = Date.parse(event.at);
    if (stage !== undefined && stage !== to && STAGE_TITLES[stage] !== undefined) {
      const mark = to === "failed" ? "✘" : to === "cancelling" || to === "cancelled" ? "■" : "✔";
      // The reason of a transition is what came out of the stage before it.
      output.note(
        `${mark} ${STAGE_TITLES[stage]} (${formatSeconds((at - stageStartedAt) / 1000)})${reason ? `: ${reason}` : ""}`,
      );
    }
    if (stage !== to) stageStartedAt = at;
    tenthsSaid = -1;
    said = "";
    stage = to;
    const title = STAGE_TITLES[to];
    if (title !== undefined) output.note(`▶ ${title}`);
    else if (isTerminal(to) || to === "cancelling")
      output.note(`job ${lowered(JOB_STATE_WORDS[to])}${reason ? `: ${reason}` : ""}`);
  }

  function onProgress(data: JobStreamEvent["data"]): void {
    const { message = "", done, total, waits = false } = data as Partial<StageProgress>;
    const counted = typeof done === "number" && typeof total === "number" && total > 0 && !waits;
    if (output.isTerminal)
      return output.status(counted ? `  ${bar(done, total)} ${message}` : `  ${message}`);
    if (waits && said !== message) output.note(`  ${message}`);
    said = message;
    // Trials and steps say themselves where they are.
    if (!counted || stage !== "profiling") return;
    const tenths = Math.floor((10 * done) / total);
    if (tenths > tenthsSaid) output.note(`  ${done}/${total} ${message}`);
    tenthsSaid = Math.max(tenths, tenthsSaid);
  }

  function onTrial(trial: Trial): void {
    const label = `#${trial.candidate.rank} ${planLabel(trial.candidate.plan)}`;
    if (trial.state === "running") output.status(`  trying ${label}`);
    if (trial.state === "failed")
      output.note(
        `  ✘ ${label}: ${lowered(FAILURE_WORDS[trial.failure?.code ?? "internal"])}: ${trial.failure?.message ?? ""}`,
      );
    if (trial.state === "succeeded" && trial.measured) {
      output.note(
        `  ✔ ${label}: ${formatSeconds(trial.measured.stepTimeSeconds)} a step (predicted ${formatSeconds(trial.candidate.predicted.stepTimeSeconds)}), ${formatBytes(trial.measured.peakMemoryBytes)}${formatRuns(trial.measured)}`,
      );
    }
  }

  function onStep(metric: StepMetric): void {
    const figures = `loss ${metric.loss.toFixed(4)}, ${formatSeconds(metric.stepTimeSeconds)} a step, ${formatRate(metric.tokensPerSecond)} tokens/s of all ranks`;
    if (output.isTerminal) output.status(`  ${bar(metric.step, options.steps)} ${figures}`);
    if (metric.step >= nextStepLine || metric.step === options.steps) {
      nextStepLine = metric.step + every - (metric.step % every);
      if (!output.isTerminal || metric.step === options.steps)
        output.note(`  step ${metric.step}/${options.steps}: ${figures}`);
    }
  }

  return {
    on(event) {
      switch (event.type) {
        case "state":
          return onState(event);
        case "progress":
          return onProgress(event.data);
        case "trial":
          return onTrial(event.data["trial"] as Trial);
        case "step":
          return onStep(event.data as unknown as StepMetric);
        case "log": {
          const { level, source, message } = event.data as {
            level?: string;
            source?: string;
            message?: string;
          };
          if (options.withLogs || level === "warn" || level === "error")
            output.note(`  ${level ?? "info"} ${source ?? ""}: ${message ?? ""}`);
          return;
        }
        case "report":
          return output.note(
            `  final loss ${(event.data as unknown as Report).finalLossNats.toFixed(4)} nats a token`,
          );
      }
    },
    end: () => output.status(""),
  };
}

/** Follows a job to its end. @returns when every event was seen. */
export async function followJob(
  client: InternEvoClient,
  jobId: string,
  on: (event: JobStreamEvent) => void,
  output: Output,
  signal: AbortSignal,
  lastEventId = 0,
): Promise<void> {
  const events = client.jobEvents(jobId, {
    lastEventId,
    signal,
    onReconnect: (error, delay) => output.note(`${error.message}; again in ${formatSeconds(delay / 1000)}`),
  });
  for await (const event of events) on(event);
}
