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

const runsOf = (measured: Measurement): readonly number[] => measured.runStepTimeSeconds ?? [measured.stepTimeSeconds];

/** What a plan was measured to take, with one more run of it. */
export function withRun(measured: Measurement, run: Measurement): Measurement {
  const runs = [...runsOf(measured), run.stepTimeSeconds];
  const stepTimeSeconds = quantile(runs, 0.5);
  return {
    ...measured,
    stepTimeSeconds,
    stepTimeSecondsP10: Math.min(measured.stepTimeSecondsP10, run.stepTimeSecondsP10),
    stepTimeSecondsP90: Math.max(measured.stepTimeSecondsP90, run.stepTimeSecondsP90),
    steps: measured.steps + run.steps,
    runStepTimeSeconds: runs,
    tokensPerGpuPerSecond: (measured.tokensPerGpuPerSecond * measured.stepTimeSeconds) / stepTimeSeconds,
    peakMemoryBytes: Math.max(measured.peakMemoryBytes, run.peakMemoryBytes),
    residentPeakBytes: Math.max(measured.residentPeakBytes, run.residentPeakBytes),
    communicationSeconds: ((runs.length - 1) * measured.communicationSeconds + run.communicationSeconds) / runs.length,
  };
}

/** Runs of one plan lie about so far apart on a machine that does nothing else (docs/benchmarks/accuracy-cpu.md): times as near are not told apart by one run of each. */
const NEAR = 0.05;
const MOST_REPEATED = 3;

/** Of the plans whose first run was fastest those as near as runs of one plan are to each other, at most three; none where nothing is near the fastest. */
export function nearFastest<T extends { readonly firstSeconds: number; readonly rank: number }>(tried: readonly T[]): readonly T[] {
  const sorted = [...tried].sort((a, b) => a.firstSeconds - b.firstSeconds || a.rank - b.rank);
  const near = sorted.filter(({ firstSeconds }) => firstSeconds <= (1 + NEAR) * (sorted[0] as T).firstSeconds).slice(0, MOST_REPEATED);
  return near.length < 2 ? [] : near;
}

/**
 * The trial to run again before one is chosen: of those that the first runs do not tell apart, whatever further runs said, the one with the fewest runs.
 * Undefined when each has had its repeats.
 */
export function trialToRepeat<T extends { readonly candidate: Pick<Candidate, "rank">; readonly measured: Measurement | null }>(trials: readonly T[], repeats: number): T | undefined {
  const tried = trials.flatMap((trial) => (trial.measured ? [{ trial, rank: trial.candidate.rank, runs: runsOf(trial.measured), firstSeconds: runsOf(trial.measured)[0] as number }] : []));
  return nearFastest(tried).filter(({ runs }) => runs.length <= repeats).sort((a, b) => a.runs.length - b.runs.length)[0]?.trial;
}

/**
 * The trial to train with: the smallest measured step time; the better prediction decides between equals. Where plans ran again it is one of
 * these: what ran once ran at another time, and was not among the fastest then.
 */
export function winnerOf(trials: readonly { readonly candidate: Candidate; readonly measured: Measurement | null }[]): Candidate | undefined {
  const measured = trials.flatMap(({ candidate, measured }) => (measured ? [{ candidate, measured }] : []));
  const mostRuns = Math.max(...measured.map((trial) => runsOf(trial.measured).length));
  const told = measured.filter((trial) => runsOf(trial.measured).length === mostRuns);
  told.sort((a, b) => a.measured.stepTimeSeconds - b.measured.stepTimeSeconds || a.candidate.rank - b.candidate.rank);
  return told[0]?.candidate;
}
