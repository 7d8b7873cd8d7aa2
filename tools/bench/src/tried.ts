import { quantile, type Candidate, type Measurement, type Tried, type TrialRun } from "@internevo/domain";

/**
 * A plan as trials would know it, from the steps of its runs: so that benchmarks choose as trials do.
 * Undefined without a run.
 */
export function triedOf(
  candidate: Candidate,
  runs: readonly (readonly number[])[],
  peakMemoryBytes: number,
): Tried | undefined {
  if (runs.length === 0) return undefined;
  const each = runs.map((seconds): TrialRun => ({
    stepTimeSeconds: quantile(seconds, 0.5),
    stepTimeSecondsP10: quantile(seconds, 0.1),
    stepTimeSecondsP90: quantile(seconds, 0.9),
    steps: seconds.length,
    communicationSeconds: 0,
  }));
  const measured: Measurement = {
    stepTimeSeconds: quantile(
      each.map(({ stepTimeSeconds }) => stepTimeSeconds),
      0.5,
    ),
    stepTimeSecondsP10: Math.min(...each.map(({ stepTimeSecondsP10 }) => stepTimeSecondsP10)),
    stepTimeSecondsP90: Math.max(...each.map(({ stepTimeSecondsP90 }) => stepTimeSecondsP90)),
    steps: each.reduce((sum, { steps }) => sum + steps, 0),
    runs: each,
    communicationSeconds: 0,
    peakMemoryBytes,
    residentPeakBytes: peakMemoryBytes,
    memory: {},
    loss: 0,
    tokensPerGpuPerSecond: 0,
  };
  return { candidate, measured };
}
