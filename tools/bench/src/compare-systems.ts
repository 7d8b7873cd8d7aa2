import { join } from "node:path";
import { requiredMeasurements, unionOf } from "@internevo/cost-model";
import {
  choiceOf,
  DEFAULT_TRIAL_REPEATS,
  planLabel,
  quantile,
  trialToRepeat,
  type Candidate,
  type JobSpec,
  type Plan,
  type Profile,
  type Tried,
} from "@internevo/domain";
import { DEFAULT_SLICE_ROUNDS } from "@internevo/profiles";
import { datasetOf, observePlan, profileOf, type Place } from "./measure.ts";
import { fastestOf, INTERNEVO, SYSTEMS, type System } from "./systems.ts";
import { triedOf } from "./tried.ts";

export interface CompareOptions extends Place {
  readonly directory: string;
  /** Plans tried: of ours, and of each other system. */
  readonly candidates: number;
  readonly baselineCandidates: number;
  /** Interleaved runs of the winners. */
  readonly rounds: number;
  /** Measured steps of a run take about so long. */
  readonly secondsPerRun: number;
}

/** A plan that was run: its first step is not counted. */
export interface TriedPlan {
  readonly label: string;
  readonly plan: Plan;
  readonly rank: number;
  readonly predictedSeconds: number;
  readonly stepSeconds: readonly number[];
}

export interface SystemResult {
  readonly system: System["id"];
  /** Of InternEvo all plans that were found to fit, of the others families of them; 0: none fits. */
  readonly feasible: number;
  readonly tried: readonly TriedPlan[];
  /** The fastest measured, and its interleaved runs; null where nothing fits. */
  readonly winner: {
    readonly label: string;
    readonly plan: Plan;
    readonly rank: number;
    readonly predictedSeconds: number;
    readonly medianStepSeconds: number;
    readonly rounds: readonly number[];
    readonly tokensPerSecond: number;
  } | null;
}

export interface Row {
  readonly model: string;
  readonly sequenceLengthTokens: number;
  readonly systems: readonly SystemResult[];
  /** Our tokens a second over theirs; null where no plan of theirs fits. */
  readonly overMegatron: number | null;
  readonly overUlysses: number | null;
}

const MOST_STEPS = 8;
const LEAST_STEPS = 2;

async function stepsOf(
  spec: JobSpec,
  candidate: Candidate,
  dataset: Awaited<ReturnType<typeof datasetOf>>,
  options: CompareOptions,
): Promise<number[]> {
  const { directory, secondsPerRun, clustersFile, signal } = options;
  const measured = Math.min(
    MOST_STEPS,
    Math.max(LEAST_STEPS, Math.ceil(secondsPerRun / candidate.predicted.stepTimeSeconds)),
  );
  const observed = await observePlan({
    spec,
    plan: candidate.plan,
    dataset,
    directory,
    steps: 1 + measured,
    ...(clustersFile ? { clustersFile } : {}),
    ...(signal ? { signal } : {}),
  });
  if ("code" in observed) throw new Error(`${spec.name}, ${planLabel(candidate.plan)}: ${observed.message}`);
  return observed.steps.slice(1).map((step) => step.stepTimeSeconds);
}

/** A plan, and the steps of each of its runs. */
interface Runs {
  readonly candidate: Candidate;
  readonly seconds: number[][];
}

const median = (values: readonly number[]): number => quantile(values, 0.5);

const triedPlan = ({ plan, rank, predicted }: Candidate, runs: readonly number[][]): TriedPlan => ({
  label: planLabel(plan),
  plan,
  rank,
  predictedSeconds: predicted.stepTimeSeconds,
  stepSeconds: runs.flat(),
});

const winnerOf = (
  { plan, rank, predicted }: Candidate,
  rounds: number[],
  { globalBatchTokens }: JobSpec,
): SystemResult["winner"] => ({
  label: planLabel(plan),
  plan,
  rank,
  predictedSeconds: predicted.stepTimeSeconds,
  medianStepSeconds: median(rounds),
  rounds,
  tokensPerSecond: globalBatchTokens / median(rounds),
});

async function compareOn(spec: JobSpec, profile: Profile, options: CompareOptions): Promise<Row> {
  const dataset = await datasetOf(spec, options.directory);
  const chosen = SYSTEMS.map((system) => ({
    system,
    ...fastestOf(
      system,
      spec,
      profile,
      system === INTERNEVO ? options.candidates : options.baselineCandidates,
    ),
  }));
  const runs = new Map<string, Runs>();
  for (const { list } of chosen)
    for (const candidate of list) runs.set(planLabel(candidate.plan), { candidate, seconds: [] });
  const runsOf = ({ plan }: Candidate): readonly number[][] => runs.get(planLabel(plan))?.seconds ?? [];
  const tryOnce = async ([label, { candidate, seconds }]: [string, Runs]): Promise<void> => {
    seconds.push(await stepsOf(spec, candidate, dataset, options));
    console.error(
      `${spec.name}: ${label}: predicted ${(candidate.predicted.stepTimeSeconds * 1e3).toFixed(0)} ` +
        `ms, measured ${(median(seconds.at(-1) ?? []) * 1e3).toFixed(0)} ms`,
    );
  };
  for (const run of runs) await tryOnce(run);
  // As trials do, of each system by itself: what runs do not tell apart runs again.
  const triedOfSystem = (list: readonly Candidate[]): Tried[] =>
    list.flatMap((each) => triedOf(each, runsOf(each), each.predicted.peakMemoryBytes) ?? []);
  for (const { list } of chosen) {
    for (
      let next = trialToRepeat(triedOfSystem(list), DEFAULT_TRIAL_REPEATS);
      next;
      next = trialToRepeat(triedOfSystem(list), DEFAULT_TRIAL_REPEATS)
    ) {
      const label = planLabel(next.candidate.plan);
      await tryOnce([label, runs.get(label) as Runs]);
    }
  }
  const winners = chosen.map(({ list }) => choiceOf(triedOfSystem(list))?.chosen ?? null);
  const distinct = [
    ...new Map(winners.filter((each) => each !== null).map((each) => [planLabel(each.plan), each])).values(),
  ];
  const rounds = new Map(distinct.map((each) => [planLabel(each.plan), [] as number[]]));
  for (let round = 0; round < options.rounds; round += 1) {
    // In turns, and every other round backwards, so that what drifts meets all alike.
    for (const each of round % 2 === 0 ? distinct : distinct.toReversed())
      rounds.get(planLabel(each.plan))?.push(median(await stepsOf(spec, each, dataset, options)));
  }
  const systems = chosen.map(({ system, feasible, list }, index): SystemResult => {
    const winner = winners[index];
    return {
      system: system.id,
      feasible,
      tried: list.map((each) => triedPlan(each, runsOf(each))),
      winner: winner ? winnerOf(winner, rounds.get(planLabel(winner.plan)) ?? [], spec) : null,
    };
  });
  const speeds = systems.map(({ winner }) => winner?.tokensPerSecond ?? null);
  const over = (index: number): number | null =>
    speeds[0] === null || speeds[0] === undefined || speeds[index] === null || speeds[index] === undefined
      ? null
      : speeds[0] / speeds[index];
  return {
    model: spec.model.name,
    sequenceLengthTokens: spec.sequenceLengthTokens,
    systems,
    overMegatron: over(1),
    overUlysses: over(2),
  };
}

/**
 * Plans every job by one profile of the cluster, tries the fastest plans of each system for real as the
 * product does, and runs the fastest measured of each again in turns.
 */
export async function compareSystems(
  specs: readonly JobSpec[],
  options: CompareOptions,
): Promise<{ profile: Profile; rows: Row[] }> {
  const [first] = specs;
  if (!first) throw new Error("no job to compare on");
  const { clustersFile, signal, directory } = options;
  const place = { ...(clustersFile ? { clustersFile } : {}), ...(signal ? { signal } : {}) };
  const needed = unionOf(specs.map(requiredMeasurements));
  const profile = await profileOf({
    cluster: first.cluster,
    needed,
    directory: join(directory, "profile"),
    effort: {
      minimumSamples: 3,
      maximumSecondsPerPoint: 0.06,
      targetRelativeSpread: 0.1,
      sliceRounds: DEFAULT_SLICE_ROUNDS,
    },
    ...place,
  });
  const rows: Row[] = [];
  for (const spec of specs) rows.push(await compareOn(spec, profile, options));
  return { profile, rows };
}
