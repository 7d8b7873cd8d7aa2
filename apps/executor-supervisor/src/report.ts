import {
  choiceOf,
  choiceWords,
  disturbancesOf,
  disturbedTrialsWords,
  stepsOfFinalLoss,
  tokensPerRankPerSecond,
  type Attempt,
  type Candidate,
  type HostUse,
  type JobSpec,
  type Report,
  type Trial,
} from "@internevo/domain";
import type { StepTotals, ValidationTotals } from "@internevo/store";

const mean = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0) / values.length;

/**
 * Kendall's τ-b between two rankings of the same items; ties count in neither direction.
 * @returns −1 to 1, or null when fewer than two items, or one side has only ties.
 */
export function kendallTau(pairs: readonly (readonly [number, number])[]): number | null {
  let concordance = 0;
  let untiedFirst = 0;
  let untiedSecond = 0;
  for (const [index, [a, b]] of pairs.entries()) {
    for (const [otherA, otherB] of pairs.slice(index + 1)) {
      const first = Math.sign(a - otherA);
      const second = Math.sign(b - otherB);
      concordance += first * second;
      untiedFirst += Math.abs(first);
      untiedSecond += Math.abs(second);
    }
  }
  return untiedFirst === 0 || untiedSecond === 0 ? null : concordance / Math.sqrt(untiedFirst * untiedSecond);
}

/** How well the measured trials had been predicted; null without a measured trial. */
export function predictionErrors(
  trials: readonly Pick<Trial, "candidate" | "measured">[],
): Pick<Report, "timeErrorOverTrials" | "memoryErrorOverTrials" | "kendallTauOverTrials"> {
  const measured = trials.flatMap(({ candidate, measured }) =>
    measured ? [{ predicted: candidate.predicted, measured }] : [],
  );
  if (measured.length === 0)
    return { timeErrorOverTrials: null, memoryErrorOverTrials: null, kendallTauOverTrials: null };
  return {
    timeErrorOverTrials: mean(
      measured.map(
        ({ predicted, measured }) =>
          Math.abs(predicted.stepTimeSeconds - measured.stepTimeSeconds) / measured.stepTimeSeconds,
      ),
    ),
    memoryErrorOverTrials: mean(
      measured.map(
        ({ predicted, measured }) =>
          Math.abs(predicted.peakMemoryBytes - measured.peakMemoryBytes) / measured.peakMemoryBytes,
      ),
    ),
    kendallTauOverTrials: kendallTau(
      measured.map(
        ({ predicted, measured }) => [predicted.stepTimeSeconds, measured.stepTimeSeconds] as const,
      ),
    ),
  };
}

export interface ReportOptions {
  readonly job: Pick<JobSpec, "globalBatchTokens">;
  readonly chosen: Candidate;
  readonly steps: StepTotals;
  /** Undefined where nothing is evaluated. */
  readonly validation?: ValidationTotals | undefined;
  readonly attempts: readonly Attempt[];
  readonly trials: readonly Trial[];
  readonly unigramEntropyNats: number | null;
  /** What the hosts did during the last attempt; empty where its ranks did not say it. */
  readonly hosts: readonly HostUse[];
  /** Share of a host's processor time from which on others count as a disturbance. */
  readonly mostOthersPercent: number;
}

/** What the trials said, and what disturbed them or the training. */
function quality({
  chosen,
  trials,
  hosts,
  mostOthersPercent,
}: ReportOptions): Pick<Report, "choice" | "disturbances" | "hosts"> {
  const choice = choiceOf(trials);
  const duringTrials = choice && disturbedTrialsWords(choice);
  const disturbances = [
    ...(duringTrials === undefined ? [] : [duringTrials]),
    ...disturbancesOf(hosts, mostOthersPercent).map(
      (each) => `The training was disturbed, so its step times may be too long: ${each}`,
    ),
  ];
  return {
    // Trials of an earlier version may have chosen by another rule.
    ...(choice && choice.chosen.rank === chosen.rank
      ? {
          choice: {
            verdict: choice.verdict,
            tied: choice.tied.map(({ plan }) => plan),
            within: choice.within,
            noise: choice.noise,
            words: choiceWords(choice),
          },
        }
      : {}),
    ...(disturbances.length > 0 ? { disturbances } : {}),
    ...(hosts.length > 0 ? { hosts: [...hosts] } : {}),
  };
}

/** The end of a job's story. */
export function reportOf(options: ReportOptions): Report {
  const { job, chosen, steps: totals, validation, attempts, trials, unigramEntropyNats } = options;
  const { steps, seconds, rankSeconds, finalLosses } = totals;
  return {
    plan: attempts.at(-1)?.plan ?? chosen.plan,
    steps,
    finalLossNats: finalLosses / stepsOfFinalLoss(steps),
    ...(validation === undefined ? {} : { validation }),
    unigramEntropyNats,
    meanStepTimeSeconds: seconds / steps,
    // As one rank would have made them, one after the other.
    tokensPerGpuPerSecond: tokensPerRankPerSecond(job, [{ steps, seconds: rankSeconds, ranks: 1 }]),
    attempts: attempts.length,
    ...predictionErrors(trials),
    ...quality(options),
  };
}
