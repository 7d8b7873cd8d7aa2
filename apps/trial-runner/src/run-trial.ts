import type { TrainerConfig, TrainerEvent } from "@internevo/contracts";
import {
  worldSize,
  type Failure,
  type HostUse,
  type JobSpec,
  type Measurement,
  type Plan,
} from "@internevo/domain";
import { LEAVE_FREE, type PreparedData } from "@internevo/data";
import {
  launchRanks,
  launchTarget,
  type OnQueue,
  measurementOf,
  trainerConfig,
  type Trainer,
} from "@internevo/launcher";
import { buildMesh } from "@internevo/plan";
import { launchSignals } from "@internevo/stages";

export interface TrialLaunch {
  readonly trainer: Trainer;
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly dataset: PreparedData;
  readonly clustersFile?: string | undefined;
  readonly threadsPerRank: number;
  readonly runDirectory: string;
  readonly timeline?: TrainerConfig["timeline"];
  readonly timeoutSeconds: number;
  /** See {@link TrainingSettings}. */
  readonly mostOthersPercent: number;
  /** The trial's own name: by it a launch that was left is found again. */
  readonly label: string;
  readonly signal: AbortSignal;
  readonly confirm: () => Promise<void>;
  readonly onQueue?: OnQueue;
  readonly onStep: (done: number, total: number) => void;
  readonly onLog: (line: string) => void;
}

/**
 * Trains a few steps with a plan, without checkpoints.
 * @returns what was measured, or why it failed: running out of memory is a result.
 * @throws the signal's reason when it was stopped.
 */
export async function runTrial(
  trial: TrialLaunch,
): Promise<{ readonly measured: Measurement } | { readonly failure: Failure; readonly lastStep: number }> {
  const { spec, plan, signal } = trial;
  const { warmupSteps, steps: measuredSteps } = spec.trials;
  const total = warmupSteps + measuredSteps;
  let started: Extract<TrainerEvent, { event: "started" }> | undefined;
  const steps: Extract<TrainerEvent, { event: "step" }>[] = [];
  let hosts: readonly HostUse[] | undefined;
  const target = await launchTarget(spec.cluster, trial.clustersFile);
  const outcome = await launchRanks({
    program: trial.trainer,
    config: trainerConfig({
      spec,
      plan,
      mesh: buildMesh(plan),
      dataset: trial.dataset,
      steps: total,
      checkpoint: null,
      threadsPerRank: trial.threadsPerRank,
      timeline: trial.timeline,
      leaveFree: LEAVE_FREE,
    }),
    ranks: worldSize(plan),
    threadsPerRank: trial.threadsPerRank,
    ...target,
    runDirectory: trial.runDirectory,
    label: trial.label,
    ...launchSignals(spec.cluster, signal),
    confirm: trial.confirm,
    ...(trial.onQueue ? { onQueue: trial.onQueue } : {}),
    timeoutSeconds: trial.timeoutSeconds,
    onLog: trial.onLog,
    onEvent: (event) => {
      if (event.event === "started") started = event;
      if (event.event === "hosts") hosts = event.hosts;
      if (event.event === "error" && event.continues === true) trial.onLog(event.message);
      if (event.event === "step") {
        steps.push(event);
        trial.onStep(steps.length, total);
      }
    },
  });
  const lastStep = steps.length;
  if (outcome.status === "failed") return { failure: outcome.failure, lastStep };
  if (outcome.status === "stopped") {
    signal.throwIfAborted();
    return { failure: { code: "rank-lost", message: "the ranks were stopped from outside" }, lastStep };
  }
  return {
    measured: measurementOf({
      job: spec,
      started,
      steps,
      warmupSteps,
      measuredSteps,
      hosts,
      mostOthersPercent: trial.mostOthersPercent,
    }),
  };
}
