import type { TrainerConfig, TrainerEvent } from "@internevo/contracts";
import {
  checkpointsToKeep,
  tokensPerSecond,
  worldSize,
  type HostUse,
  type JobSpec,
  type Plan,
  type StepMetric,
  type ValidationLoss,
} from "@internevo/domain";
import { LEAVE_FREE, type PreparedData } from "@internevo/data";
import {
  launchRanks,
  launchTarget,
  type OnQueue,
  trainerConfig,
  type LaunchOutcome,
  type Trainer,
} from "@internevo/launcher";
import { buildMesh } from "@internevo/plan";
import { WorkStoppedError } from "@internevo/service-kit";
import { goesOn } from "@internevo/stages";
import { CountedCheckpoint } from "./checkpoints.ts";
import { onceAMinute } from "./once-a-minute.ts";
import { StepRecorder } from "./step-recorder.ts";

/** What the ranks said, in their order. */
export interface Told {
  readonly steps: readonly StepMetric[];
  readonly validations: readonly ValidationLoss[];
}

export interface AttemptLaunch {
  readonly trainer: Trainer;
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly dataset: PreparedData;
  /** Of the validation loss. */
  readonly heldOut?: PreparedData | undefined;
  readonly attempt: number;
  readonly clustersFile?: string | undefined;
  readonly threadsPerRank: number;
  readonly runDirectory: string;
  readonly timeline?: TrainerConfig["timeline"];
  readonly checkpointDirectory: string;
  readonly silenceSeconds: number;
  readonly graceSeconds: number;
  readonly giveWaySeconds: number;
  /**
   * Aborts with a `WorkStoppedError`: a shutdown leaves time for a checkpoint, everything else ends the ranks
   * at once.
   */
  readonly signal: AbortSignal;
  /**
   * Ends the ranks in order, with a checkpoint, once they have done a step: an attempt that makes no progress
   * would be for nothing.
   */
  readonly giveWay: AbortSignal;
  readonly confirm: () => Promise<void>;
  readonly onQueue?: OnQueue;
  readonly onStarted: (resumedFromStep: number) => Promise<void>;
  /**
   * Stores all of it or nothing. So whoever goes on from a step that is stored has the losses before it.
   */
  readonly write: (told: Told) => Promise<void>;
  /** @param isRepeated an earlier supervisor was told of it as well: it may have stored it, or not. */
  readonly onCheckpoint: (
    event: Extract<TrainerEvent, { event: "checkpoint" }>,
    isRepeated: boolean,
  ) => Promise<void>;
  /** What the hosts did, where the ranks came to say it. */
  readonly onHosts: (hosts: readonly HostUse[]) => Promise<void>;
  readonly onLog: (line: string) => void;
}

const metricOf = (
  event: Extract<TrainerEvent, { event: "step" }>,
  { spec, attempt }: Pick<AttemptLaunch, "spec" | "attempt">,
): StepMetric => ({
  step: event.step,
  loss: event.loss,
  gradientNorm: event.gradientNorm,
  learningRate: event.learningRate,
  stepTimeSeconds: event.stepTimeSeconds,
  tokensPerSecond: tokensPerSecond(spec, event.stepTimeSeconds),
  exposedCommunicationSeconds: event.exposedCommunicationSeconds,
  attempt,
  at: new Date().toISOString(),
});

const lossOf = (event: Extract<TrainerEvent, { event: "validation" }>, attempt: number): ValidationLoss => ({
  step: event.step,
  loss: event.loss,
  tokens: event.tokens,
  seconds: event.seconds,
  attempt,
  at: new Date().toISOString(),
});

function checkpointConfig(launch: AttemptLaunch) {
  const { checkpointing } = launch.spec;
  if (checkpointing === null) return null;
  return {
    directory: launch.checkpointDirectory,
    everySteps: checkpointing.everySteps,
    keepLast: checkpointsToKeep(checkpointing),
    resume: "latest" as const,
  };
}

/** Names an attempt's launch: by it one that was left is found again. */
export const attemptLabel = (attempt: number): string => `attempt ${attempt}`;

/** What the signals of an attempt ask of its ranks, until it is closed. */
function rankSignals({ spec, signal, giveWay, graceSeconds }: AttemptLaunch) {
  const gently = new AbortController();
  const atOnce = new AbortController();
  const detach = new AbortController();
  let hasStepped = false;
  let grace: NodeJS.Timeout | undefined;
  const onAbort = (): void => {
    if (goesOn(spec.cluster, signal)) return detach.abort();
    const isShutdown = signal.reason instanceof WorkStoppedError && signal.reason.why === "shutdown";
    if (!isShutdown) return atOnce.abort();
    gently.abort();
    // The service has less time than who gives way.
    grace = setTimeout(() => atOnce.abort(), 1000 * graceSeconds);
  };
  const onGiveWay = (): void => {
    if (hasStepped && giveWay.aborted) gently.abort();
  };
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  giveWay.addEventListener("abort", onGiveWay, { once: true });
  return {
    gently: gently.signal,
    atOnce,
    detach: detach.signal,
    stepped: (): void => {
      hasStepped = true;
      onGiveWay();
    },
    close: (): void => {
      signal.removeEventListener("abort", onAbort);
      giveWay.removeEventListener("abort", onGiveWay);
      clearTimeout(grace);
    },
  };
}

const configOf = (launch: AttemptLaunch): ReturnType<typeof trainerConfig> =>
  trainerConfig({
    spec: launch.spec,
    plan: launch.plan,
    mesh: buildMesh(launch.plan),
    dataset: launch.dataset,
    heldOut: launch.heldOut,
    steps: launch.spec.steps,
    checkpoint: checkpointConfig(launch),
    threadsPerRank: launch.threadsPerRank,
    timeline: launch.timeline,
    leaveFree: LEAVE_FREE,
    loadWeights: true,
  });

/**
 * Starts the ranks once, and stores every step that they report.
 * @throws what storing threw: then the ranks have been ended.
 */
export async function runAttempt(launch: AttemptLaunch): Promise<LaunchOutcome> {
  const { spec, plan } = launch;
  const target = await launchTarget(spec.cluster, launch.clustersFile);
  const { gently, atOnce, detach, stepped, close } = rankSignals(launch);
  const counted = new CountedCheckpoint(launch.checkpointDirectory, (error) =>
    launch.onLog(`the trainer cannot be told which checkpoint to keep: ${(error as Error).message}`),
  );
  const write = async (reports: readonly (StepMetric | ValidationLoss)[]): Promise<void> => {
    const steps = reports.filter((report) => "gradientNorm" in report);
    const validations = reports.filter((report) => "tokens" in report);
    await launch.write({ steps, validations });
    counted.stepsStored(steps.at(-1)?.step ?? 0);
  };
  const recorder = new StepRecorder<StepMetric | ValidationLoss>({ write, onFailure: () => atOnce.abort() });
  const warn = onceAMinute(launch.onLog);
  let storing = Promise.resolve();
  let failure: { readonly error: unknown } | undefined;
  /** One after the other; ranks whose story cannot be stored are ended. */
  const store = (work: () => Promise<void>): void => {
    storing = storing
      .then(() => (failure ? undefined : work()))
      .catch((error: unknown) => {
        failure = { error };
        atOnce.abort();
      });
  };
  try {
    const outcome = await launchRanks({
      program: launch.trainer,
      config: configOf(launch),
      ranks: worldSize(plan),
      threadsPerRank: launch.threadsPerRank,
      ...target,
      runDirectory: launch.runDirectory,
      signal: gently,
      killSignal: atOnce.signal,
      detachSignal: detach,
      confirm: launch.confirm,
      label: attemptLabel(launch.attempt),
      ...(launch.onQueue ? { onQueue: launch.onQueue } : {}),
      graceSeconds: Math.max(launch.graceSeconds, launch.giveWaySeconds),
      silenceSeconds: launch.silenceSeconds,
      onLog: launch.onLog,
      onEvent: (event, isRepeated) => {
        if (event.event === "started") store(() => launch.onStarted(event.resumedFromStep));
        if (event.event === "hosts") store(() => launch.onHosts(event.hosts));
        if (event.event === "step") {
          recorder.push(metricOf(event, launch));
          stepped();
        }
        if (event.event === "validation") recorder.push(lossOf(event, launch.attempt));
        if (event.event === "checkpoint") {
          counted.checkpointWritten(event.step);
          store(() => launch.onCheckpoint(event, isRepeated));
        }
        if (event.event === "error" && event.continues === true && !isRepeated)
          warn(`${event.message}${event.remedy === undefined ? "" : `; ${event.remedy}`}; training goes on`);
      },
    });
    await storing;
    // It is set in a callback, which the compiler does not see.
    const stored = failure as { readonly error: unknown } | undefined;
    if (stored) throw stored.error;
    return outcome;
  } finally {
    close();
    await recorder.flush().finally(() => counted.settled());
  }
}
