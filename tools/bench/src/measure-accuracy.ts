import { join } from "node:path";
import { CostModel, requiredMeasurements, unionOf } from "@internevo/cost-model";
import {
  countedDocuments,
  isDisturbed,
  planLabel,
  withoutDocuments,
  type Candidate,
  type JobSpec,
  type Measurement,
  type PackedDocuments,
  type Profile,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { DEFAULT_SLICE_ROUNDS } from "@internevo/profiles";
import { statisticsOf, type Compared, type Statistics } from "./accuracy-statistics.ts";
import { randomBy } from "./drawn.ts";
import { datasetOf, profileOf, runPlan, type Place } from "./measure.ts";

export interface AccuracyOptions extends Place {
  readonly directory: string;
  readonly place: string;
  /** Plans that are measured at most. */
  readonly plans: number;
  /** `sample`, by default: the candidates, and of the others a sample. `first`: in the order of the predictions. */
  readonly choose?: "sample" | "first";
  readonly repeat: number;
  readonly steps: number;
  readonly seed: number;
}

export interface AccuracyRow {
  readonly place: string;
  readonly job: string;
  /**
   * Families of plans that can run; all of them were measured where there are no more than were asked for.
   */
  readonly runnable: number;
  /** Measured of each run. */
  readonly steps: number;
  readonly statistics: Statistics;
  /** Of a job of packed documents: what they leave of attention. */
  readonly documents?: PackedDocuments;
  readonly compared: readonly Compared[];
  readonly warnings: readonly string[];
}

/** As many are tried by default. */
const CANDIDATES = 10;
const WARM_UP_STEPS = 1;
const MOST_FAMILIES = 1000;

export function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const list = [...items];
  for (let last = list.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [list[last], list[other]] = [list[other] as T, list[last] as T];
  }
  return list;
}

async function accuracyOn(spec: JobSpec, profile: Profile, options: AccuracyOptions): Promise<AccuracyRow> {
  const { directory, place, plans, choose = "sample", repeat, steps, seed, clustersFile, signal } = options;
  const random = randomBy(seed);
  const dataset = await datasetOf(spec, directory);
  const { runnableCandidates: runnable, warnings } = planJob(spec, profile, { top: MOST_FAMILIES });
  const others = runnable.slice(CANDIDATES);
  const chosen = [
    ...runnable.slice(0, CANDIDATES),
    ...(choose === "first" ? others : shuffled(others, random)).slice(0, Math.max(0, plans - CANDIDATES)),
  ];
  const measurements = new Map<Candidate, { readonly measurement: Measurement; readonly at: number }[]>(
    chosen.map((candidate) => [candidate, []]),
  );
  let made = 0;
  // Every round in an order of its own: what drifts meets all plans alike.
  for (let round = 0; round < repeat; round += 1) {
    for (const candidate of shuffled(chosen, random)) {
      const measured = await runPlan({
        spec,
        plan: candidate.plan,
        dataset,
        directory,
        warmupSteps: WARM_UP_STEPS,
        measuredSteps: steps,
        ...(clustersFile ? { clustersFile } : {}),
        ...(signal ? { signal } : {}),
      });
      if ("code" in measured)
        throw new Error(`${spec.name}, ${planLabel(candidate.plan)}: ${measured.message}`);
      measurements.get(candidate)?.push({ measurement: measured, at: made });
      made += 1;
    }
  }
  const counted = countedDocuments(spec);
  const asOneDocument = new CostModel(withoutDocuments(spec), profile);
  const compared = chosen.map((candidate): Compared => {
    const { plan, rank, predicted } = candidate;
    const own = measurements.get(candidate) ?? [];
    return {
      plan: planLabel(plan),
      rank,
      candidate: rank <= CANDIDATES,
      predictedSeconds: predicted.stepTimeSeconds,
      ...(counted === undefined
        ? {}
        : { oneDocumentSeconds: asOneDocument.predict(planOfJob(plan, spec)).stepTimeSeconds }),
      range: predicted.stepTimeRangeSeconds ?? null,
      runs: own.map(({ measurement }) => measurement.stepTimeSeconds),
      order: own.map(({ at }) => at),
      disturbed: own.map(({ measurement }) => isDisturbed(measurement)),
      predictedBytes: predicted.peakMemoryBytes,
      measuredBytes: Math.max(...own.map(({ measurement }) => measurement.peakMemoryBytes)),
    };
  });
  const statistics = statisticsOf(compared);
  const percent = (value: number): string => `${(100 * value).toFixed(1)}%`;
  console.error(
    `${place}, ${spec.name}: ${compared.length} of ${runnable.length} plans, error ${percent(statistics.timeError.mean)} (worst ${percent(statistics.timeError.worst)}), τ ${statistics.kendallTau?.toFixed(2) ?? "–"}, best is predicted ${statistics.best.predictedRank}, chosen slower by ${percent(statistics.chosenSlowerBy)}`,
  );
  return {
    place,
    job: spec.name,
    runnable: runnable.length,
    steps,
    statistics,
    ...(counted === undefined ? {} : { documents: counted }),
    compared,
    warnings,
  };
}

/** Profiles a cluster once for all jobs, and compares the plans of each with what they take. */
export async function measureAccuracy(
  specs: readonly JobSpec[],
  options: AccuracyOptions,
): Promise<{ profile: Profile; rows: AccuracyRow[] }> {
  const [first] = specs;
  if (!first) throw new Error("no job to compare");
  const { clustersFile, signal, directory } = options;
  const profile = await profileOf({
    cluster: first.cluster,
    needed: unionOf(specs.map(requiredMeasurements)),
    directory: join(directory, "profile"),
    // As services measure by default.
    effort: {
      minimumSamples: 5,
      maximumSecondsPerPoint: 0.25,
      targetRelativeSpread: 0.05,
      sliceRounds: DEFAULT_SLICE_ROUNDS,
    },
    ...(clustersFile ? { clustersFile } : {}),
    ...(signal ? { signal } : {}),
  });
  const rows: AccuracyRow[] = [];
  for (const spec of specs) rows.push(await accuracyOn(spec, profile, options));
  return { profile, rows };
}
