import type { InternEvoClient } from "@internevo/client";
import type { JobStreamEvent, StageProgress } from "@internevo/contracts";
import {
  DISTURBED_LEGEND,
  FAILURE_WORDS,
  formatBytes,
  formatMeasuredSeconds,
  formatRate,
  formatRuns,
  formatSeconds,
  formatSpan,
  isDisturbed,
  isAtRest,
  JOB_STATE_WORDS,
  lowered,
  planLabel,
  STAGES,
  type JobState,
  type Report,
  type StepMetric,
  type Trial,
  type ValidationLoss,
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

/** What marks a stage that is over, by the state that followed it. */
function markOf(to: JobState): string {
  if (to === "failed") return "✘";
  return to === "held" || to === "cancelling" || to === "cancelled" ? "■" : "✔";
}

class ProgressLines {
  readonly #options: ProgressOptions;
  readonly #output: Output;
  readonly #every: number;
  #stage: JobState | undefined;
  #stageStartedAt = 0;
  #nextStepLine = 1;
  #tenthsSaid = -1;
  #said = "";
  #saidLegend = false;

  constructor(options: ProgressOptions) {
    this.#options = options;
    this.#output = options.output;
    this.#every = Math.max(1, Math.round(options.steps / 10));
  }

  on(event: JobStreamEvent): void {
    switch (event.type) {
      case "state":
        return this.#onState(event);
      case "progress":
        return this.#onProgress(event.data);
      case "trial":
        return this.#onTrial(event.data["trial"] as Trial);
      case "step":
        return this.#onStep(event.data as unknown as StepMetric);
      case "validation": {
        const { step, loss } = event.data as unknown as ValidationLoss;
        return this.#output.note(`  step ${step}/${this.#options.steps}: validation loss ${loss.toFixed(4)}`);
      }
      case "log":
        return this.#onLog(event.data);
      case "report": {
        const { finalLossNats } = event.data as unknown as Report;
        return this.#output.note(`  final loss ${finalLossNats.toFixed(4)} nats a token`);
      }
    }
  }

  #onState(event: JobStreamEvent): void {
    const to = event.data["to"] as JobState;
    const reason = event.data["reason"] as string | null;
    const at = Date.parse(event.at);
    const stage = this.#stage;
    if (stage !== undefined && stage !== to && STAGE_TITLES[stage] !== undefined) {
      const took = formatSpan(at - this.#stageStartedAt);
      // The reason of a transition is what came out of the stage before it.
      this.#output.note(`${markOf(to)} ${STAGE_TITLES[stage]} (${took})${reason ? `: ${reason}` : ""}`);
    }
    if (stage !== to) this.#stageStartedAt = at;
    this.#tenthsSaid = -1;
    this.#said = "";
    this.#stage = to;
    const title = STAGE_TITLES[to];
    if (title !== undefined) this.#output.note(`▶ ${title}`);
    else if (isAtRest(to) || to === "cancelling")
      this.#output.note(`job ${lowered(JOB_STATE_WORDS[to])}${reason ? `: ${reason}` : ""}`);
  }

  #onProgress(data: JobStreamEvent["data"]): void {
    const { message = "", done, total, waits = false } = data as Partial<StageProgress>;
    const counted = typeof done === "number" && typeof total === "number" && total > 0 && !waits;
    if (this.#output.isTerminal)
      return this.#output.status(counted ? `  ${bar(done, total)} ${message}` : `  ${message}`);
    if (waits && this.#said !== message) this.#output.note(`  ${message}`);
    this.#said = message;
    // Trials and steps say themselves where they are.
    if (!counted || this.#stage !== "profiling") return;
    const tenths = Math.floor((10 * done) / total);
    if (tenths > this.#tenthsSaid) this.#output.note(`  ${done}/${total} ${message}`);
    this.#tenthsSaid = Math.max(tenths, this.#tenthsSaid);
  }

  #onTrial({ candidate, state, failure, measured }: Trial): void {
    const label = `#${candidate.rank} ${planLabel(candidate.plan)}`;
    if (state === "running") this.#output.status(`  trying ${label}`);
    if (state === "failed") {
      const words = lowered(FAILURE_WORDS[failure?.code ?? "internal"]);
      this.#output.note(`  ✘ ${label}: ${words}: ${failure?.message ?? ""}`);
    }
    if (state === "succeeded" && measured) {
      const took = formatMeasuredSeconds(measured);
      const predicted = formatSeconds(candidate.predicted.stepTimeSeconds);
      this.#output.note(
        `  ✔ ${label}: ${took} a step (predicted ${predicted}), ` +
          `${formatBytes(measured.peakMemoryBytes)}${formatRuns(measured)}`,
      );
      if (isDisturbed(measured) && !this.#saidLegend) this.#output.note(`  ${DISTURBED_LEGEND}`);
      this.#saidLegend ||= isDisturbed(measured);
    }
  }

  #onStep(metric: StepMetric): void {
    const { step } = metric;
    const { steps } = this.#options;
    const figures =
      `loss ${metric.loss.toFixed(4)}, ${formatSeconds(metric.stepTimeSeconds)} ` +
      `a step, ${formatRate(metric.tokensPerSecond)} tokens/s of all ranks`;
    if (this.#output.isTerminal) this.#output.status(`  ${bar(step, steps)} ${figures}`);
    if (step < this.#nextStepLine && step !== steps) return;
    this.#nextStepLine = step + this.#every - (step % this.#every);
    if (!this.#output.isTerminal || step === steps) this.#output.note(`  step ${step}/${steps}: ${figures}`);
  }

  #onLog(data: JobStreamEvent["data"]): void {
    const { level, source, message } = data as { level?: string; source?: string; message?: string };
    if (this.#options.withLogs || level === "warn" || level === "error")
      this.#output.note(`  ${level ?? "info"} ${source ?? ""}: ${message ?? ""}`);
  }
}

/**
 * Turns a job's events into lines and, on a terminal, a bar: a line a stage and a trial, and elsewhere a line
 * every tenth of the profiling and the training.
 */
export function createProgress(options: ProgressOptions): {
  readonly on: (event: JobStreamEvent) => void;
  readonly end: () => void;
} {
  const lines = new ProgressLines(options);
  return { on: (event) => lines.on(event), end: () => options.output.status("") };
}

/** Follows a job to its end, or until it is held. @returns when every event was seen. */
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
    onReconnect: (error, delay) => output.note(`${error.message}; again in ${formatSpan(delay)}`),
  });
  for await (const event of events) on(event);
}
