import { formatCounted, formatInteger, formatPercent } from "./figures.ts";
import type { Candidate } from "./planning.ts";
import type { Measurement, TrialRun } from "./execution.ts";
import { planLabel } from "./plan-fields.ts";
import type { Plan } from "./plan.ts";
import { formatBytes, formatSeconds } from "./units.ts";

/** The q-quantile of a sample, interpolated between its neighbours. @throws RangeError without values. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new RangeError("no values have no quantile");
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const low = sorted[Math.floor(at)] as number;
  const high = sorted[Math.ceil(at)] as number;
  return low + (high - low) * (at - Math.floor(at));
}

/** Where a time may lie, in seconds. */
export interface TimeRange {
  readonly low: number;
  readonly high: number;
}

/** Two times cannot be told apart, and their plans tie, when their ranges touch. */
export const rangesTouch = (a: TimeRange, b: TimeRange): boolean => a.low <= b.high && b.low <= a.high;

/**
 * The items that tie with the one whose time is the smallest, itself among them; empty when nothing ties with
 * it, or it has no range.
 */
export function tiedWithFastest<T>(
  items: readonly T[],
  secondsOf: (item: T) => number,
  rangeOf: (item: T) => TimeRange | undefined,
): readonly T[] {
  const fastest = items.reduce<T | undefined>(
    (best, item) => (best === undefined || secondsOf(item) < secondsOf(best) ? item : best),
    undefined,
  );
  const own = fastest === undefined ? undefined : rangeOf(fastest);
  if (own === undefined) return [];
  const tied = items.filter((item) => {
    const range = rangeOf(item);
    return item === fastest || (range !== undefined && rangesTouch(own, range));
  });
  return tied.length > 1 ? tied : [];
}

/**
 * Runs of one plan lie about so far apart on a machine that does nothing else
 * (docs/benchmarks/accuracy-cpu.md).
 */
const RUNS_APART = 0.05;

/**
 * The least gain that one run of each of two plans can show: with less, their ranges touch, since runs of one plan lie
 * as far apart.
 */
export const LEAST_CLEAR_GAIN = 1 - (1 - RUNS_APART / 2) / (1 + RUNS_APART / 2);

/** Runs that count: those that nothing disturbed, or all where each was disturbed. */
function countedRuns(runs: readonly TrialRun[]): readonly TrialRun[] {
  const quiet = runs.filter(({ disturbances = [] }) => disturbances.length === 0);
  return quiet.length > 0 ? quiet : runs;
}

/** Every run of a measurement; those of earlier versions did not keep all of each. */
export const runsOf = (measured: Measurement): readonly TrialRun[] =>
  measured.runs ??
  (measured.runStepTimeSeconds ?? [measured.stepTimeSeconds]).map((stepTimeSeconds, _, all) => ({
    stepTimeSeconds,
    stepTimeSecondsP10: measured.stepTimeSecondsP10,
    stepTimeSecondsP90: measured.stepTimeSecondsP90,
    steps: Math.max(1, Math.round(measured.steps / all.length)),
    communicationSeconds: measured.communicationSeconds,
  }));

/**
 * What a plan was measured to take, with one more run of it: medians and percentiles of the runs that count,
 * memory of all.
 */
export function withRun(measured: Measurement, run: Measurement): Measurement {
  const runs = [...runsOf(measured), ...runsOf(run)];
  const counted = countedRuns(runs);
  const stepTimeSeconds = quantile(
    counted.map((one) => one.stepTimeSeconds),
    0.5,
  );
  return {
    ...measured,
    stepTimeSeconds,
    stepTimeSecondsP10: Math.min(...counted.map((one) => one.stepTimeSecondsP10)),
    stepTimeSecondsP90: Math.max(...counted.map((one) => one.stepTimeSecondsP90)),
    steps: counted.reduce((sum, { steps }) => sum + steps, 0),
    runStepTimeSeconds: counted.map((one) => one.stepTimeSeconds),
    runs: [...runs],
    tokensPerGpuPerSecond: (measured.tokensPerGpuPerSecond * measured.stepTimeSeconds) / stepTimeSeconds,
    // The peak and the lines that it is made of are of one run: the kernel maps a few more pages of the
    // program in one run than in another.
    ...(run.peakMemoryBytes > measured.peakMemoryBytes
      ? { peakMemoryBytes: run.peakMemoryBytes, memory: run.memory }
      : {}),
    residentPeakBytes: Math.max(measured.residentPeakBytes, run.residentPeakBytes),
    communicationSeconds: counted.reduce((sum, one) => sum + one.communicationSeconds, 0) / counted.length,
  };
}

/**
 * Noise of a plan's measured step time, as a fraction of it: where the time may lie on either side. The
 * largest of
 * - half of how far its runs lie apart;
 * - half of how far its steps lie apart (10th to 90th percentile), over the square root of their number, as
 *   of a mean;
 * - half of how far runs of one plan lie apart on a machine that does nothing else, over the square root of
 *   the runs' number.
 */
export function noiseOf(measured: Measurement): number {
  const counted = countedRuns(runsOf(measured));
  return noiseOfRuns(
    counted.map(({ stepTimeSeconds }) => stepTimeSeconds),
    { ...measured, steps: counted.reduce((sum, run) => sum + run.steps, 0) },
  );
}

/** @param times of the runs @param all of their steps together */
function noiseOfRuns(
  times: readonly number[],
  all: Pick<Measurement, "stepTimeSeconds" | "stepTimeSecondsP10" | "stepTimeSecondsP90" | "steps">,
): number {
  const { stepTimeSeconds, stepTimeSecondsP10, stepTimeSecondsP90, steps } = all;
  const ofRuns = (Math.max(...times) - Math.min(...times)) / 2;
  const ofSteps = (stepTimeSecondsP90 - stepTimeSecondsP10) / 2 / Math.sqrt(steps);
  return Math.max(
    ofRuns / stepTimeSeconds,
    ofSteps / stepTimeSeconds,
    RUNS_APART / 2 / Math.sqrt(times.length),
  );
}

/** The median of steps of one run, and its noise as {@link noiseOf} has it. */
export function medianOfSteps(stepSeconds: readonly number[]): {
  readonly seconds: number;
  readonly noise: number;
} {
  const seconds = quantile(stepSeconds, 0.5);
  const noise = noiseOfRuns([seconds], {
    stepTimeSeconds: seconds,
    stepTimeSecondsP10: quantile(stepSeconds, 0.1),
    stepTimeSecondsP90: quantile(stepSeconds, 0.9),
    steps: stepSeconds.length,
  });
  return { seconds, noise };
}

/** A time with its noise on both sides. */
export const noisyRange = (seconds: number, noise: number): TimeRange => ({
  low: seconds * (1 - noise),
  high: seconds * (1 + noise),
});

/** A measured step time with its noise on both sides. */
export const measuredRange = (measured: Measurement): TimeRange =>
  noisyRange(measured.stepTimeSeconds, noiseOf(measured));

/** What is known of a trial when one is chosen. */
export interface Tried {
  readonly candidate: Candidate;
  readonly measured: Measurement | null;
}
type Measured<T extends Tried> = T & { readonly measured: Measurement };

const measuredOf = <T extends Tried>(trials: readonly T[]): Measured<T>[] =>
  trials.filter((trial): trial is Measured<T> => trial.measured !== null);

/** The fastest plan and those that tie with it; alone where none does. */
function contenders<T extends Tried>(trials: readonly T[]): readonly Measured<T>[] {
  const measured = measuredOf(trials);
  const tied = tiedWithFastest(
    measured,
    (trial) => trial.measured.stepTimeSeconds,
    (trial) => measuredRange(trial.measured),
  );
  return tied.length > 0 ? tied : [...measured].sort(byTime).slice(0, 1);
}

const byTime = (a: Measured<Tried>, b: Measured<Tried>): number =>
  a.measured.stepTimeSeconds - b.measured.stepTimeSeconds || a.candidate.rank - b.candidate.rank;

/**
 * Of plans that are equally fast the leanest comes first: the least memory, then the least communication,
 * then the better prediction.
 */
const byLeanness = (a: Measured<Tried>, b: Measured<Tried>): number =>
  a.measured.peakMemoryBytes - b.measured.peakMemoryBytes ||
  a.measured.communicationSeconds - b.measured.communicationSeconds ||
  a.candidate.rank - b.candidate.rank;

/** Whether another plan was measured to be faster and leaner. */
const isBeatenBy = ({ measured: own }: Measured<Tried>, { measured: other }: Measured<Tried>): boolean =>
  other.stepTimeSeconds < own.stepTimeSeconds && other.peakMemoryBytes < own.peakMemoryBytes;

/** Whether every run of a plan was disturbed: its time says little. */
export const isDisturbed = (measured: Measurement): boolean =>
  runsOf(measured).every(({ disturbances = [] }) => disturbances.length > 0);

/**
 * The trial to run again before one is chosen: of the contenders, which the runs so far do not tell apart,
 * and of those whose every run was disturbed, the one with the fewest runs. Undefined when each has had its
 * repeats, or there is nothing to choose from.
 */
export function trialToRepeat<T extends Tried>(trials: readonly T[], repeats: number): T | undefined {
  const near = contenders(trials);
  if (measuredOf(trials).length < 2) return undefined;
  const again = new Set<Measured<T>>([
    ...(near.length > 1 ? near : []),
    ...measuredOf(trials).filter(({ measured }) => isDisturbed(measured)),
  ]);
  return [...again]
    .filter(({ measured }) => runsOf(measured).length <= repeats)
    .sort((a, b) => runsOf(a.measured).length - runsOf(b.measured).length || byTime(a, b))[0];
}

/** What trials say about which plan to train with. */
export interface Choice {
  readonly chosen: Candidate;
  /**
   * `winner`: faster than every other by more than the noise of both. `tie`: not. `only`: nothing else was
   * measured.
   */
  readonly verdict: "winner" | "tie" | "only";
  readonly measuredPlans: number;
  /** The plans that tie, the chosen one first; the chosen one alone where there is no tie. */
  readonly tied: readonly Candidate[];
  /** Of those that tie, a leaner one than the chosen one, and which plan beats it in time and memory. */
  readonly passedOver: { readonly candidate: Candidate; readonly by: Candidate } | null;
  /**
   * How far the slowest of them is behind the fastest; without a tie how far the next is behind the winner. A
   * fraction; null where nothing else was measured.
   */
  readonly within: number | null;
  /** Noise of the chosen plan's time, a fraction of it. */
  readonly noise: number;
  readonly peakMemoryBytes: number;
  /** Sentences about the hosts, of the plans whose every run was disturbed. */
  readonly disturbances: readonly string[];
  readonly disturbedPlans: number;
}

/**
 * The plan to train with. A plan wins when it is faster than every other by more than the noise of both;
 * plans that tie with the fastest are told apart by leanness. One that another plan beats in time and memory is
 * not chosen: its range may touch the fastest's only because its runs were noisy. Undefined where no trial has measured
 * anything.
 */
export function choiceOf(trials: readonly Tried[]): Choice | undefined {
  const measured = measuredOf(trials).sort(byTime);
  const leanest = [...contenders(trials)].sort(byLeanness);
  const beatenBy = (trial: Measured<Tried>) => measured.find((other) => isBeatenBy(trial, other));
  const chosen = leanest.find((trial) => !beatenBy(trial));
  const tied = chosen ? [chosen, ...leanest.filter((trial) => trial !== chosen)] : [];
  const [fastest, next] = measured;
  if (!chosen || !fastest) return undefined;
  const disturbed = measured.filter((trial) => isDisturbed(trial.measured));
  const slowest = Math.max(...tied.map((trial) => trial.measured.stepTimeSeconds));
  const behind = tied.length > 1 ? slowest : next?.measured.stepTimeSeconds;
  const alone = next ? "winner" : "only";
  const [passed] = leanest;
  const by = passed && passed !== chosen ? beatenBy(passed) : undefined;
  return {
    chosen: chosen.candidate,
    verdict: tied.length > 1 ? "tie" : alone,
    measuredPlans: measured.length,
    tied: tied.map(({ candidate }) => candidate),
    passedOver: passed && by ? { candidate: passed.candidate, by: by.candidate } : null,
    within: behind === undefined ? null : behind / fastest.measured.stepTimeSeconds - 1,
    noise: noiseOf(chosen.measured),
    peakMemoryBytes: chosen.measured.peakMemoryBytes,
    disturbances: [
      ...new Set(
        disturbed.flatMap((trial) => runsOf(trial.measured).flatMap(({ disturbances = [] }) => disturbances)),
      ),
    ],
    disturbedPlans: disturbed.length,
  };
}

const MOST_NAMED = 4;

/** The end of a choice's sentence where other work ran beside the runs that it rests on. */
function doubtWords({ verdict, disturbedPlans, measuredPlans }: Choice): string {
  if (disturbedPlans === 0) return "";
  const ran = "since other work ran beside every run of";
  if (verdict === "only") return `; its time is in doubt, ${ran} it`;
  return `; in doubt, ${ran} ${disturbedPlans === measuredPlans ? "all" : disturbedPlans} of them`;
}

/** A choice in a sentence, without a full stop; plans are told by their ranks, as tables have them. */
export function choiceWords(choice: Choice): string {
  const { chosen, verdict, measuredPlans, tied, passedOver, noise, peakMemoryBytes } = choice;
  const name = ({ rank }: Candidate): string => `#${rank}`;
  const within = formatPercent(choice.within ?? 0);
  const doubt = doubtWords(choice);
  switch (verdict) {
    case "only":
      return `${name(chosen)} was the only measured plan${doubt}`;
    case "winner":
      return `${name(chosen)} was the fastest of ${measuredPlans} measured plans, ${within} ahead of the next; its noise is ±${formatPercent(noise)}${doubt}`;
    case "tie": {
      const named = tied.slice(0, MOST_NAMED).map(name);
      const more = tied.length > MOST_NAMED ? [`${tied.length - MOST_NAMED} more`] : named.splice(-1);
      const which = passedOver
        ? `passed over ${name(passedOver.candidate)}, which ${name(passedOver.by)} beats in time and memory; chose`
        : "chose the leanest:";
      return `Tie between ${named.join(", ")} and ${more.join("")} within ${within}; ${which} ${name(chosen)}, ${formatBytes(peakMemoryBytes)} a rank${doubt}`;
    }
  }
}

/** What to say where trials were disturbed; undefined where none was. */
export function disturbedTrialsWords({
  disturbances,
  disturbedPlans,
  measuredPlans,
}: Choice): string | undefined {
  if (disturbedPlans === 0) return undefined;
  return `Trials were disturbed: other work ran beside ${disturbedPlans} of ${measuredPlans} measured plans, so their times say little (${disturbances.slice(0, 2).join("; ")}${disturbances.length > 2 ? `; and ${disturbances.length - 2} more` : ""})`;
}

/** Where one plan stands among those that trials measured. */
export interface MeasuredStanding {
  readonly stepTimeSeconds: number;
  readonly place: number;
  /** Plans that were measured. */
  readonly of: number;
  /** `tie`: the runs do not tell it from the fastest, or the fastest from others. */
  readonly verdict: "fastest" | "tie" | "slower" | "only";
  /** Plans that tie with the fastest, itself among them; 1 where none does. */
  readonly tied: number;
  /** How far it is behind the fastest, a fraction. */
  readonly behind: number;
  readonly fastest: Pick<Candidate, "rank" | "plan">;
  /** Whether other work ran beside every run of it. */
  readonly disturbed: boolean;
}

/** What trials measured of a plan. */
export const measurementOfPlan = (trials: readonly Tried[], plan: Plan): Measurement | undefined =>
  measuredOf(trials).find((trial) => planLabel(trial.candidate.plan) === planLabel(plan))?.measured;

/** Null where no trial measured the plan. */
export function measuredStanding(trials: readonly Tried[], plan: Plan): MeasuredStanding | null {
  const label = planLabel(plan);
  const sorted = measuredOf(trials).sort(byTime);
  const own = sorted.find(({ candidate }) => planLabel(candidate.plan) === label);
  const [fastest] = sorted;
  if (!own || !fastest) return null;
  const near = contenders(trials);
  const leads = own === fastest ? "fastest" : "slower";
  const among = near.length > 1 && near.includes(own) ? "tie" : leads;
  const { stepTimeSeconds } = own.measured;
  return {
    stepTimeSeconds,
    place: 1 + sorted.filter(({ measured }) => measured.stepTimeSeconds < stepTimeSeconds).length,
    of: sorted.length,
    verdict: sorted.length === 1 ? "only" : among,
    tied: near.length,
    behind: stepTimeSeconds / fastest.measured.stepTimeSeconds - 1,
    fastest: { rank: fastest.candidate.rank, plan: fastest.candidate.plan },
    disturbed: isDisturbed(own.measured),
  };
}

/** A standing in sentences. */
export function measuredStandingWords(standing: MeasuredStanding): string {
  const { stepTimeSeconds, place, of, verdict, tied, behind, fastest, disturbed } = standing;
  const figure = `Measured: ${formatSeconds(stepTimeSeconds)} a step`;
  const others = formatCounted(of, "plan");
  const said = {
    only: `${figure}; no other plan was measured.`,
    fastest: `${figure}, the fastest of ${others}.`,
    tie: `${figure}, number ${place} of ${others}. It is one of ${formatInteger(tied)} that tie: their runs do not tell them apart.`,
    slower: `${figure}, number ${place} of ${others}, ${formatPercent(behind)} behind the fastest, #${fastest.rank}.`,
  }[verdict];
  return disturbed ? `${said} ${disturbedRunsWords("it", "its time says")}` : said;
}

/** @param beside whose runs: "it", "both" @param says "its time says", "their times say" */
export const disturbedRunsWords = (beside: string, says: string): string =>
  `Other work ran beside every run of ${beside}, so ${says} little.`;

/** Stands behind a measured time that says little. */
const DISTURBED_MARK = "*";
/** What the mark means, below a table that has it. */
export const DISTURBED_LEGEND = `${DISTURBED_MARK} Other work ran beside every run of this plan, so its time says little.`;

/** A measured step time, with a mark where every run was disturbed. */
export const formatMeasuredSeconds = (measured: Measurement): string =>
  `${formatSeconds(measured.stepTimeSeconds)}${isDisturbed(measured) ? ` ${DISTURBED_MARK}` : ""}`;

/** What is said behind the step time of a plan that was run more than once; nothing of one run. */
export function formatRuns(measured: Measurement): string {
  const runs = runsOf(measured);
  if (runs.length < 2) return "";
  return `, middle of ${runs.length} runs: ${runs.map(({ stepTimeSeconds, disturbances = [] }) => `${formatSeconds(stepTimeSeconds)}${disturbances.length > 0 ? " (disturbed)" : ""}`).join(", ")}`;
}
