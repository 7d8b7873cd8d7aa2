import { CostModel, spreadFactors } from "@internevo/cost-model";
import {
  disturbedRunsWords,
  estimatedProfileWords,
  formatBytes,
  formatSeconds,
  isDisturbed,
  measurementOfPlan,
  rangesTouch,
  splitTerms,
  sumOfDifferences,
  termWords,
  type JobSpec,
  type Measurement,
  type Plan,
  type Prediction,
  type Profile,
  type Tried,
} from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { withRange } from "@internevo/search";
import { changesBetween, type FieldChange } from "./differences.ts";

/** One term of two plans; `difference` is b − a. */
export interface Term {
  readonly name: string;
  readonly a: number;
  readonly b: number;
  readonly difference: number;
}

/** What was measured of a plan. */
export interface Measured extends Pick<Measurement, "stepTimeSeconds" | "runStepTimeSeconds"> {
  /** Where other work ran beside every run of it. */
  readonly disturbed?: true;
}

export interface Explanation {
  readonly a: { readonly plan: Plan; readonly predicted: Prediction; readonly fits: boolean };
  readonly b: { readonly plan: Plan; readonly predicted: Prediction; readonly fits: boolean };
  readonly changes: readonly FieldChange[];
  /**
   * Seconds of a step by cause, the largest difference first; they add up to the difference of the step
   * times.
   */
  readonly time: readonly Term[];
  /** Bytes of the fullest rank by line, the largest difference first. */
  readonly memory: readonly Term[];
  /**
   * Whether the ranges of the two step times touch, so that only trials tell the plans apart; null where the
   * profile says no spread.
   */
  readonly tie: boolean | null;
  /**
   * Step times of both, where both were measured: they say which is faster, and the rest, which is predicted,
   * why.
   */
  readonly measured: { readonly a: Measured; readonly b: Measured } | null;
  readonly summary: string;
  /** Where the profile is estimated from published figures: says so. */
  readonly estimatedProfile?: string;
}

const byDifference = (x: Term, y: Term): number => Math.abs(y.difference) - Math.abs(x.difference);

function terms(a: Readonly<Record<string, number>>, b: Readonly<Record<string, number>>): Term[] {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return names
    .map((name) => ({ name, a: a[name] ?? 0, b: b[name] ?? 0, difference: (b[name] ?? 0) - (a[name] ?? 0) }))
    .filter((term) => term.a !== 0 || term.b !== 0)
    .sort(byDifference);
}

/** The terms on one side of the balance that tell the plans apart, the largest first. */
const sideOf = (
  terms: readonly Term[],
  sign: number,
  most: number,
  format: (value: number) => string,
): readonly Term[] =>
  splitTerms(terms, format)
    .differing.filter(({ difference }) => difference * sign > 0)
    .slice(0, most);

/** From this share of the difference on, the terms that are not named are summed up. */
const REST = 1 / 100;

function causes(time: readonly Term[], sign: 1 | -1): string {
  const named = sideOf(time, sign, 3, formatSeconds);
  const rest = Math.abs(
    sumOfDifferences(time.filter((term) => term.difference * sign > 0 && !named.includes(term))),
  );
  const words = named.map(
    ({ name, difference }) => `${formatSeconds(Math.abs(difference))} of ${termWords(name)}`,
  );
  if (words.length > 0 && rest > REST * Math.abs(sumOfDifferences(time)))
    words.push(`${formatSeconds(rest)} of the rest`);
  return words.join(", ");
}

/** A percentage with as many digits as it takes to be more than nothing. */
const percentage = (fraction: number): string =>
  fraction < 1e-6
    ? "less than 0.0001%"
    : `${fraction >= 0.001 ? (fraction * 100).toFixed(1) : (fraction * 100).toPrecision(1)}%`;

function memorySummary(a: Prediction, b: Prediction, memory: readonly Term[]): string {
  const difference = b.peakMemoryBytes - a.peakMemoryBytes;
  if (difference === 0) return " They need the same memory.";
  const sign = Math.sign(difference);
  const lines = sideOf(memory, sign, 2, formatBytes).map(({ name }) => termWords(name));
  return ` ${difference > 0 ? "A" : "B"} needs ${formatBytes(Math.abs(difference))} less memory (${lines.join(", ")}).`;
}

function tieSummary(tie: boolean | null): string {
  if (tie === null)
    return " The profile says no spread of its times: whether this is more than their error is not known.";
  return tie ? " The ranges of the two predictions touch: it is a tie, which only trials decide." : "";
}

/** What trials measured of two plans; null unless they measured both. */
export function measuredOfBoth(trials: readonly Tried[], a: Plan, b: Plan): Explanation["measured"] {
  const of = (plan: Plan): Measured | undefined => {
    const measured = measurementOfPlan(trials, plan);
    if (measured === undefined) return undefined;
    const { stepTimeSeconds, runStepTimeSeconds } = measured;
    return {
      stepTimeSeconds,
      ...(runStepTimeSeconds ? { runStepTimeSeconds } : {}),
      ...(isDisturbed(measured) ? { disturbed: true } : {}),
    };
  };
  const [one, two] = [of(a), of(b)];
  return one && two ? { a: one, b: two } : null;
}

/** Whose times say little, since other work ran beside every run. */
function disturbedSummary({ a, b }: NonNullable<Explanation["measured"]>): string {
  if (a.disturbed && b.disturbed) return ` ${disturbedRunsWords("both", "their times say")}`;
  if (!a.disturbed && !b.disturbed) return "";
  return ` ${disturbedRunsWords(a.disturbed ? "A" : "B", "its time says")}`;
}

/** Of runs that overlap it is not known which plan is faster. */
function measuredSummary({ a, b }: NonNullable<Explanation["measured"]>): string {
  const [one, two] = [a.stepTimeSeconds, b.stepTimeSeconds];
  const both = `${formatSeconds(one)} and ${formatSeconds(two)} a step`;
  const disturbed = disturbedSummary({ a, b });
  if (one === two) return `Measured, A and B take the same time (${both}).${disturbed}`;
  const runs = [a, b].map(
    ({ stepTimeSeconds, runStepTimeSeconds = [] }) =>
      [
        Math.min(stepTimeSeconds, ...runStepTimeSeconds),
        Math.max(stepTimeSeconds, ...runStepTimeSeconds),
      ] as const,
  ) as [readonly [number, number], readonly [number, number]];
  const tie = runs[0][0] <= runs[1][1] && runs[1][0] <= runs[0][1] ? " Their runs overlap: it is a tie." : "";
  return (
    `Measured, ${one < two ? "A" : "B"} is ` +
    `${percentage(Math.max(one, two) / Math.min(one, two) - 1)} faster (A and B took ${both}).${tie}${disturbed}`
  );
}

function summaryOf(
  a: Prediction,
  b: Prediction,
  time: readonly Term[],
  memory: readonly Term[],
  tie: boolean | null,
): string {
  const [one, two] = [a.stepTimeSeconds, b.stepTimeSeconds];
  if (sumOfDifferences(time) === 0) {
    const saved = causes(time, 1);
    return `By prediction A and B take the same time.${saved === "" ? "" : ` What A saves, ${saved}, it pays elsewhere.`}${memorySummary(a, b, memory)}`;
  }
  const aWins = one < two;
  const ratio = aWins ? two / one : one / two;
  const saved = causes(time, aWins ? 1 : -1);
  const paid = causes(time, aWins ? -1 : 1);
  return `By prediction ${aWins ? "A" : "B"} is ${percentage(ratio - 1)} faster (${formatSeconds(Math.abs(one - two))} a step)${saved === "" ? "" : `: it saves ${saved}`}${paid === "" ? "" : `${saved === "" ? ": it" : ", and"} pays ${paid}`}.${memorySummary(a, b, memory)}${tieSummary(tie)}`;
}

/**
 * Whether two step times cannot be told apart by what was measured: their ranges touch. Null where there are
 * none.
 */
function isTie(a: Prediction, b: Prediction): boolean | null {
  const [one, two] = [a.stepTimeRangeSeconds, b.stepTimeRangeSeconds];
  return one === undefined || two === undefined ? null : rangesTouch(one, two);
}

/**
 * How one plan wins over another, term by term. @param measured both step times, where the job's trials
 * measured both plans
 */
export function explain(
  job: JobSpec,
  profile: Profile,
  a: PlanOfJob,
  b: PlanOfJob,
  measured: Explanation["measured"] = null,
): Explanation {
  const model = new CostModel(job, profile);
  const factorsOf = spreadFactors(job, profile);
  const side = (plan: PlanOfJob): Explanation["a"] => {
    const predicted = withRange(model.predict(plan), factorsOf?.(plan));
    return { plan, predicted, fits: model.memoryFault(plan) === null };
  };
  const [first, second] = [side(a), side(b)];
  const time = terms(first.predicted.time, second.predicted.time);
  const memory = terms(first.predicted.memory, second.predicted.memory);
  const tie = isTie(first.predicted, second.predicted);
  const predicted = summaryOf(
    first.predicted,
    second.predicted,
    time,
    memory,
    measured === null ? tie : false,
  );
  const summary = measured === null ? predicted : `${measuredSummary(measured)} ${predicted}`;
  const estimatedProfile = estimatedProfileWords(profile, job.cluster);
  return {
    a: first,
    b: second,
    changes: changesBetween(a, b),
    time,
    memory,
    tie,
    measured,
    summary,
    ...(estimatedProfile === undefined ? {} : { estimatedProfile }),
  };
}
