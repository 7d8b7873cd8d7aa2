import {
  choiceWords,
  planLabel,
  rankWords,
  tiedWithFastest,
  type Candidate,
  type Choice,
  type PlanningResult,
  type Trial,
} from "@internevo/domain";

/** A plan as the tables and charts show it: predicted, and measured where it was tried. */
export interface PlanRow {
  readonly key: string;
  /** Place among the families of plans by prediction: the plan's number wherever it is shown. */
  readonly rank: number;
  /** Place among the measured ones; undefined where nothing was measured. */
  readonly place: number | undefined;
  readonly candidate: Candidate;
  readonly trial: Trial | undefined;
  readonly chosen: boolean;
}

export const plannedStepSeconds = (row: PlanRow): number => row.candidate.predicted.stepTimeSeconds;
export const measuredStepSeconds = (row: PlanRow): number | undefined => row.trial?.measured?.stepTimeSeconds;

/** Plans as the planner ranked them. */
export const candidateRows = (candidates: readonly Candidate[]): PlanRow[] =>
  candidates.map((candidate) => ({
    key: planLabel(candidate.plan),
    rank: candidate.rank,
    place: undefined,
    candidate,
    trial: undefined,
    chosen: false,
  }));

/**
 * The tried plans, or those that will be tried, and between them every better plan that the executor doesn't
 * run yet. The fastest predicted first.
 */
export function planRows(
  planning: PlanningResult | null,
  trials: readonly Trial[],
  chosen: Candidate | null,
): PlanRow[] {
  const rows = new Map<string, PlanRow>();
  const chosenKey = chosen ? planLabel(chosen.plan) : undefined;
  const times = trials.flatMap(({ measured }) => measured?.stepTimeSeconds ?? []).sort((a, b) => a - b);
  const placeOf = (trial: Trial | undefined): number | undefined =>
    trial?.measured ? times.indexOf(trial.measured.stepTimeSeconds) + 1 : undefined;
  const add = (candidate: Candidate, trial: Trial | undefined): void => {
    const key = planLabel(candidate.plan);
    if (!rows.has(key))
      rows.set(key, {
        key,
        rank: candidate.rank,
        place: placeOf(trial),
        candidate,
        trial,
        chosen: key === chosenKey,
      });
  };
  for (const trial of trials) add(trial.candidate, trial);
  if (planning) {
    if (trials.length === 0) for (const candidate of planning.runnableCandidates) add(candidate, undefined);
    const slowest = Math.max(0, ...[...rows.values()].map(plannedStepSeconds));
    const everything = rows.size === 0;
    for (const candidate of planning.candidates) {
      if (!candidate.runnable && (everything || candidate.predicted.stepTimeSeconds < slowest))
        add(candidate, undefined);
    }
  }
  return [...rows.values()].sort((a, b) => a.rank - b.rank);
}

export interface Comparison {
  readonly timeError: number | undefined;
  readonly memoryError: number | undefined;
}

/** (predicted − measured) / measured, of step time and of peak memory. */
export function compare(row: PlanRow): Comparison {
  const measured = row.trial?.measured;
  if (!measured) return { timeError: undefined, memoryError: undefined };
  const { predicted } = row.candidate;
  return {
    timeError: (predicted.stepTimeSeconds - measured.stepTimeSeconds) / measured.stepTimeSeconds,
    memoryError: (predicted.peakMemoryBytes - measured.peakMemoryBytes) / measured.peakMemoryBytes,
  };
}

/** Why this plan was chosen, in figures. */
export function reasonOfChoice(rows: readonly PlanRow[], choice: Choice | undefined): string | undefined {
  const chosen = rows.find((row) => row.chosen);
  if (!chosen || !choice || measuredStepSeconds(chosen) === undefined) return undefined;
  // Jobs of earlier versions were trained with the fastest, whatever tied with it.
  const words =
    planLabel(choice.chosen.plan) === chosen.key
      ? choiceWords(choice)
      : `Number ${chosen.place ?? "?"} of ${choice.measuredPlans} measured plans`;
  return `${words}. By prediction it is ${rankWords(chosen.rank)}.`;
}

/**
 * Keys of the plans whose range touches the fastest's: by what was measured of the cluster they take the same
 * time. Empty when there is one.
 */
export function tiedRows(rows: readonly PlanRow[]): ReadonlySet<string> {
  return new Set(
    tiedWithFastest(
      rows,
      plannedStepSeconds,
      ({ candidate }) => candidate.predicted.stepTimeRangeSeconds,
    ).map(({ key }) => key),
  );
}
