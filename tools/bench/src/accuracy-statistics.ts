import {
  choiceOf,
  DEFAULT_TRIAL_REPEATS,
  quantile,
  rangesTouch,
  trialToRepeat,
  type Candidate,
  type Tried,
} from "@internevo/domain";
import { triedOf } from "./tried.ts";

/** A plan that was predicted and measured. */
export interface Compared {
  readonly plan: string;
  /** In the order of the predictions of its job, from 1. */
  readonly rank: number;
  /** Among the plans that trials would run. */
  readonly candidate: boolean;
  readonly predictedSeconds: number;
  /** Of a job whose packed documents are counted: the prediction as of one document a sequence. */
  readonly oneDocumentSeconds?: number;
  /** With every measurement of the profile at one end of its spread; null where the profile has none. */
  readonly range: { readonly low: number; readonly high: number } | null;
  /** Median of a run's steps, of every run. */
  readonly runs: readonly number[];
  /** Of each run its place in the order in which all runs of the job were made, from 0. */
  readonly order?: readonly number[];
  /** Of each run whether other work ran beside it; results of before do not say. */
  readonly disturbed?: readonly boolean[];
  readonly predictedBytes: number;
  readonly measuredBytes: number;
}

export interface Statistics {
  readonly plans: number;
  readonly timeError: { readonly mean: number; readonly signed: number; readonly worst: number };
  readonly memoryError: { readonly mean: number; readonly worst: number };
  /** Kendall's τ-b of the times as they are; null where one side has no order. */
  readonly kendallTau: number | null;
  /**
   * The same where plans whose predicted ranges touch, and times that differ by less than the noise, are
   * ties.
   */
  readonly kendallTauWithTies: number | null;
  /** Part of the pairs that are ties of the prediction, and of the measurement. */
  readonly predictedTies: number;
  readonly measuredTies: number;
  /** Median over the plans of how far its runs lie apart. */
  readonly noise: number;
  /**
   * A plan's first run taken as the prediction of its second: what no prediction can do better than on this
   * machine. Null where plans ran once. `worst` is the largest error, `kendallTau` null where one side has no
   * order.
   */
  readonly repetition: {
    readonly mean: number;
    readonly worst: number;
    readonly kendallTau: number | null;
  } | null;
  /** Part of the measured times that lie in the predicted range; null without ranges. */
  readonly withinRange: number | null;
  /** Slowest over fastest measured plan, less one: what there is to be told apart. */
  readonly spread: number;
  readonly best: { readonly plan: string; readonly predictedRank: number; readonly candidate: boolean };
  /**
   * How much slower than the best the plan is that was predicted first, the one that a run of every candidate
   * chooses, and the best candidate.
   */
  readonly firstSlowerBy: number;
  readonly chosenSlowerBy: number;
  readonly bestCandidateSlowerBy: number;
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;
export const measuredOf = ({ runs }: Pick<Compared, "runs">): number => quantile(runs, 0.5);
export const timeErrorOf = (one: Compared): number => one.predictedSeconds / measuredOf(one) - 1;

/**
 * Kendall's τ-b over all pairs.
 * @param first sign of the order of two items by one measure, 0 for a tie; @param second by the other.
 * @returns null where every pair is a tie of one of them.
 */
export function tauOf<T>(
  items: readonly T[],
  first: (a: T, b: T) => number,
  second: (a: T, b: T) => number,
): { readonly tau: number | null; readonly firstTies: number; readonly secondTies: number } {
  let concordance = 0;
  let untiedFirst = 0;
  let untiedSecond = 0;
  let pairs = 0;
  for (const [index, a] of items.entries()) {
    for (const b of items.slice(index + 1)) {
      const [x, y] = [Math.sign(first(a, b)), Math.sign(second(a, b))];
      concordance += x * y;
      untiedFirst += Math.abs(x);
      untiedSecond += Math.abs(y);
      pairs += 1;
    }
  }
  return {
    tau: untiedFirst === 0 || untiedSecond === 0 ? null : concordance / Math.sqrt(untiedFirst * untiedSecond),
    firstTies: pairs === 0 ? 0 : 1 - untiedFirst / pairs,
    secondTies: pairs === 0 ? 0 : 1 - untiedSecond / pairs,
  };
}

/** How far a plan's runs lie apart, in parts of their middle. */
const apart = (one: Compared): number => (Math.max(...one.runs) - Math.min(...one.runs)) / measuredOf(one);

function repetitionOf(compared: readonly Compared[]): Statistics["repetition"] {
  const pairs = compared.flatMap(({ runs: [first, second] }) =>
    first === undefined || second === undefined ? [] : [{ first, second }],
  );
  if (pairs.length === 0) return null;
  const errors = pairs.map(({ first, second }) => Math.abs(first / second - 1));
  return {
    mean: mean(errors),
    worst: Math.max(...errors),
    kendallTau: tauOf(
      pairs,
      (a, b) => a.first - b.first,
      (a, b) => a.second - b.second,
    ).tau,
  };
}

/**
 * What trials choose: every candidate runs once, then those run again that this does not tell apart; the
 * first runs of each stand for these.
 */
function chosenOf(candidates: readonly Compared[]): Compared {
  const made = new Map(candidates.map((one) => [one.rank, 1]));
  const tried = (): Tried[] =>
    candidates.flatMap(
      (one) =>
        triedOf(
          { rank: one.rank } as Candidate,
          one.runs.slice(0, made.get(one.rank)).map((seconds) => [seconds]),
          one.measuredBytes,
        ) ?? [],
    );
  const most = Math.min(...candidates.map(({ runs }) => runs.length));
  for (
    let next = trialToRepeat(tried(), Math.min(DEFAULT_TRIAL_REPEATS, most - 1));
    next;
    next = trialToRepeat(tried(), Math.min(DEFAULT_TRIAL_REPEATS, most - 1))
  )
    made.set(next.candidate.rank, (made.get(next.candidate.rank) ?? 0) + 1);
  const chosen = choiceOf(tried())?.chosen.rank;
  return candidates.find(({ rank }) => rank === chosen) ?? (candidates[0] as Compared);
}

/** Runs before and behind a run that say how fast the machine was then. */
const NEIGHBOURS = 5;
const PASSES = 8;

/**
 * The runs with the machine's changing speed taken out: plans that run by turns in random order are each
 * other's reference. A run's time is divided by the median, over the runs of other plans that were made just
 * before and behind it, of time over the plan's own middle.
 * @returns null where plans ran fewer than three times or it is not known when: a plan's middle would then be
 * the run itself.
 */
export function steadied(compared: readonly Compared[]): Compared[] | null {
  const runs = compared.flatMap(({ runs: seconds, order }, plan) =>
    seconds.map((time, index) => ({ plan, time, at: order?.[index] })),
  );
  const timed = runs.flatMap((run) =>
    run.at === undefined ? [] : [{ ...run, at: run.at, steady: run.time }],
  );
  if (timed.length < runs.length || compared.some((one) => one.runs.length < 3)) return null;
  // Again and again: a plan most of whose runs fell into slow minutes has its middle put right by those of
  // others.
  for (let pass = 0; pass < PASSES; pass += 1) {
    const middles = compared.map((_, plan) =>
      quantile(
        timed.filter((run) => run.plan === plan).map(({ steady }) => steady),
        0.5,
      ),
    );
    const slowness = timed.map((run) => {
      const near = timed.filter(
        (other) => other.plan !== run.plan && Math.abs(other.at - run.at) <= NEIGHBOURS,
      );
      return near.length === 0
        ? 1
        : quantile(
            near.map((other) => other.time / (middles[other.plan] as number)),
            0.5,
          );
    });
    for (const [index, run] of timed.entries()) run.steady = run.time / (slowness[index] as number);
  }
  return compared.map((one, plan) => ({
    ...one,
    runs: timed.filter((run) => run.plan === plan).map(({ steady }) => steady),
  }));
}

/**
 * The runs that nothing disturbed, of the plans that have some; null where it is not known, or no candidate
 * has one.
 */
export function undisturbed(compared: readonly Compared[]): Compared[] | null {
  if (compared.some(({ disturbed }) => disturbed === undefined)) return null;
  const quiet = compared.flatMap((one): Compared[] => {
    const kept = <T>(list: readonly T[]): T[] => list.filter((_, index) => one.disturbed?.[index] === false);
    const runs = kept(one.runs);
    return runs.length === 0
      ? []
      : [
          {
            ...one,
            runs,
            ...(one.order ? { order: kept(one.order) } : {}),
            disturbed: runs.map(() => false),
          },
        ];
  });
  return quiet.some(({ candidate }) => candidate) ? quiet : null;
}

/** How well the plans of one job were predicted. @throws RangeError without a plan, or a candidate. */
export function statisticsOf(compared: readonly Compared[]): Statistics {
  const candidates = compared.filter(({ candidate }) => candidate);
  if (candidates.length === 0) throw new RangeError("no candidate was compared");
  const fastestOf = (list: readonly Compared[], time: (one: Compared) => number): Compared =>
    list.reduce((best, one) => (time(one) < time(best) ? one : best));
  const noise = quantile(compared.map(apart), 0.5);
  const best = fastestOf(compared, measuredOf);
  const slower = (one: Compared): number => measuredOf(one) / measuredOf(best) - 1;
  const byPrediction = (a: Compared, b: Compared): number => a.predictedSeconds - b.predictedSeconds;
  const byMeasurement = (a: Compared, b: Compared): number => measuredOf(a) - measuredOf(b);
  const rangesApart = (a: Compared, b: Compared): number => {
    if (a.range === null || b.range === null) return byPrediction(a, b);
    return rangesTouch(a.range, b.range) ? 0 : a.range.low - b.range.low;
  };
  const beyondNoise = (a: Compared, b: Compared): number =>
    Math.abs(byMeasurement(a, b)) <= noise * Math.min(measuredOf(a), measuredOf(b)) ? 0 : byMeasurement(a, b);
  const tied = tauOf(compared, rangesApart, beyondNoise);
  const errors = compared.map(timeErrorOf);
  const memory = compared.map((one) => Math.abs(one.predictedBytes / one.measuredBytes - 1));
  const ranged = compared.filter(({ range }) => range !== null);
  const times = compared.map(measuredOf);
  return {
    plans: compared.length,
    timeError: {
      mean: mean(errors.map(Math.abs)),
      signed: mean(errors),
      worst: Math.max(...errors.map(Math.abs)),
    },
    memoryError: { mean: mean(memory), worst: Math.max(...memory) },
    kendallTau: tauOf(compared, byPrediction, byMeasurement).tau,
    kendallTauWithTies: tied.tau,
    predictedTies: tied.firstTies,
    measuredTies: tied.secondTies,
    noise,
    repetition: repetitionOf(compared),
    withinRange:
      ranged.length === 0
        ? null
        : mean(
            ranged.map((one) =>
              one.range && measuredOf(one) >= one.range.low && measuredOf(one) <= one.range.high ? 1 : 0,
            ),
          ),
    spread: Math.max(...times) / Math.min(...times) - 1,
    best: { plan: best.plan, predictedRank: best.rank, candidate: best.candidate },
    firstSlowerBy: slower(compared.reduce((first, one) => (one.rank < first.rank ? one : first))),
    chosenSlowerBy: slower(chosenOf(candidates)),
    bestCandidateSlowerBy: slower(fastestOf(candidates, measuredOf)),
  };
}
