import type { TrainerEvent } from "@internevo/contracts";
import {
  disturbancesOf,
  quantile,
  tokensPerRankPerSecond,
  type HostUse,
  type JobSpec,
  type Measurement,
} from "@internevo/domain";

type Started = Extract<TrainerEvent, { event: "started" }>;
type Step = Extract<TrainerEvent, { event: "step" }>;

/**
 * What one run of a plan measured: times over the steps after warm-up, memory over the whole run.
 * @param trial.hosts what the hosts did meanwhile, where the ranks said it; @param trial.mostOthersPercent
 * from which share of others on a run counts as disturbed.
 * @throws Error when the ranks ended without the steps that were asked for.
 */
export function measurementOf(trial: {
  readonly job: Pick<JobSpec, "globalBatchTokens">;
  readonly started: Started | undefined;
  readonly steps: readonly Step[];
  readonly warmupSteps: number;
  readonly measuredSteps: number;
  readonly hosts?: readonly HostUse[] | undefined;
  readonly mostOthersPercent: number;
}): Measurement {
  const { job, started, steps, warmupSteps, measuredSteps, hosts = [] } = trial;
  const measured = steps.filter((step) => step.step > warmupSteps);
  const last = measured.at(-1);
  if (!started || !last || measured.length !== measuredSteps)
    throw new Error(`the ranks reported ${measured.length} of ${measuredSteps} measured steps`);
  const times = measured.map((step) => step.stepTimeSeconds);
  const disturbances = disturbancesOf(hosts, trial.mostOthersPercent);
  const run = {
    stepTimeSeconds: quantile(times, 0.5),
    stepTimeSecondsP10: quantile(times, 0.1),
    stepTimeSecondsP90: quantile(times, 0.9),
    steps: measured.length,
    communicationSeconds: quantile(
      measured.map((step) => step.communicationSeconds),
      0.5,
    ),
  };
  return {
    ...run,
    runs: [
      {
        ...run,
        ...(hosts.length > 0 ? { hosts: [...hosts] } : {}),
        ...(disturbances.length > 0 ? { disturbances } : {}),
      },
    ],
    tokensPerGpuPerSecond: tokensPerRankPerSecond(job, [
      { steps: 1, seconds: run.stepTimeSeconds, ranks: started.worldSize },
    ]),
    peakMemoryBytes: Math.max(...steps.map((step) => step.peakMemoryBytes)),
    residentPeakBytes: Math.max(...steps.map((step) => step.residentPeakBytes)),
    memory: started.memory,
    loss: last.loss,
  };
}
