import type { TrainerEvent } from "@internevo/contracts";
import type { Candidate, Measurement } from "@internevo/domain";

type Started = Extract<TrainerEvent, { event: "started" }>;
type Step = Extract<TrainerEvent, { event: "step" }>;

/** The q-quantile of a sample, interpolated between its neighbours. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new RangeError("no values have no quantile");
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] as number;
  const high = sorted[Math.ceil(at)] as number;
  return low + (high - low) * (at - Math.floor(at));
}

/**
 * What a trial measured: times over the steps after warm-up, memory over the whole trial.
 * @throws Error when the ranks ended without the steps that were asked for.
 */
export function measurementOf(trial: { readonly started: Started | undefined; readonly steps: readonly Step[]; readonly warmupSteps: number; readonly measuredSteps: number }): Measurement {
  const { started, steps, warmupSteps, measuredSteps } = trial;
  const measured = steps.filter((step) => step.step > warmupSteps);
  const last = measured.at(-1);
  if (!started || !last || measured.length !== measuredSteps) throw new Error(`the ranks reported ${measured.length} of ${measuredSteps} measured steps`);
  const times = measured.map((step) => step.stepTimeSeconds);
  const stepTimeSeconds = quantile(times, 0.5);
  return {
    stepTimeSeconds,
    stepTimeSecondsP10: quantile(times, 0.1),
    stepTimeSecondsP90: quantile(times, 0.9),
    steps: measured.length,
    tokensPerGpuPerSecond: last.tokens / stepTimeSeconds / started.worldSize,
    peakMemoryBytes: Math.max(...steps.map((step) => step.peakMemoryBytes)),
    residentPeakBytes: Math.max(...steps.map((step) => step.residentPeakBytes)),
    memory: started.memory,
    loss: last.loss,
    communicationSeconds: quantile(measured.map((step) => step.communicationSeconds), 0.5),
  };
}

/** The trial to train with: the smallest measured step time; the better prediction decides between equals. */
export function winnerOf(trials: readonly { readonly candidate: Candidate; readonly measured: Measurement | null }[]): Candidate | undefined {
  const measured = trials.flatMap(({ candidate, measured }) => (measured ? [{ candidate, measured }] : []));
  measured.sort((a, b) => a.measured.stepTimeSeconds - b.measured.stepTimeSeconds || a.candidate.rank - b.candidate.rank);
  return measured[0]?.candidate;
}
