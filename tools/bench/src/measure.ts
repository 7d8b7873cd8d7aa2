import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { requiredMeasurements, type RequiredMeasurements } from "@internevo/cost-model";
import type { TrainerConfig, TrainerEvent } from "@internevo/contracts";
import {
  DEFAULT_MOST_OTHERS_PERCENT,
  resolveJob,
  worldSize,
  type Cluster,
  type Failure,
  type HostUse,
  type JobSpec,
  type Measurement,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { countPackedDocuments, prepareData, type PreparedData } from "@internevo/data";
import {
  launchRanks,
  launchTarget,
  measurementOf,
  probeIn,
  trainerConfig,
  trainerIn,
} from "@internevo/launcher";
import { buildMesh, clusterRanks } from "@internevo/plan";
import { measureProfile } from "@internevo/profiling";
import { DEFAULT_MOST_SPREAD_PERCENT, DEFAULT_SLICE_ROUNDS, type MeasuringEffort } from "@internevo/profiles";
import { parse } from "yaml";

/** What the benchmarks of this folder share: real ranks of this machine, without services. */
export const repository = resolve(import.meta.dirname, "../../..");
export const native = process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(repository, "native", "dist");
const THREADS_PER_RANK = 1;

/** A job of a file; what is relative in it means the place of the file. */
export async function readJob(path: string): Promise<JobSpec> {
  const spec = resolveJob(parse(await readFile(path, "utf8")));
  const { data } = spec;
  const absolute = (relative: string): string => resolve(dirname(path), relative);
  if (data === null) return spec;
  const located = <Source extends { paths: string[] } | { path: string }>(source: Source): Source =>
    "paths" in source
      ? { ...source, paths: source.paths.map(absolute) }
      : { ...source, path: absolute(source.path) };
  return withDocuments({
    ...spec,
    data: data.format === "mixture" ? { ...data, sources: data.sources.map(located) } : located(data),
  });
}

/** A job with what its packed documents leave of attention, as a submitted one has it. */
export async function withDocuments(spec: JobSpec): Promise<JobSpec> {
  const documents = (await countPackedDocuments(spec.data, { ...spec, ranks: clusterRanks(spec) }))
    ?.documents;
  return documents === undefined ? spec : { ...spec, documents };
}

/** Runs `work` with a folder of its own, which is gone afterwards. */
export async function withScratch<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "internevo-bench-"));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export async function datasetOf(spec: JobSpec, directory: string): Promise<PreparedData> {
  if (!spec.data) throw new Error(`the job ${spec.name} has no data`);
  return prepareData(spec.data, directory, {
    vocabularySize: spec.model.vocabularySize,
    sequenceLengthTokens: spec.sequenceLengthTokens,
  });
}

const EFFORT: MeasuringEffort = {
  minimumSamples: 7,
  maximumSecondsPerPoint: 0.5,
  targetRelativeSpread: 0.05,
  sliceRounds: DEFAULT_SLICE_ROUNDS,
};

/** What is measured on hosts, and how it is stopped. */
export interface Place {
  /** Describes the hosts of clusters with `launcher: ssh`. */
  readonly clustersFile?: string;
  /** Ends the ranks at once. */
  readonly signal?: AbortSignal;
}

/** A measurement was stopped from outside. */
export class Stopped extends Error {
  override readonly name = "Stopped";
}

/** Measures a cluster with the probe: all that these are, which several jobs may have asked for. */
export async function profileOf(
  options: Place & {
    readonly cluster: Cluster;
    readonly needed: RequiredMeasurements;
    readonly directory: string;
    readonly effort?: MeasuringEffort;
  },
): Promise<Profile> {
  const {
    cluster,
    needed,
    directory,
    effort = EFFORT,
    clustersFile,
    signal = new AbortController().signal,
  } = options;
  const outcome = await measureProfile({
    probe: probeIn(native),
    trainer: trainerIn(native),
    cluster,
    clustersFile,
    needed,
    threadsPerRank: THREADS_PER_RANK,
    effort,
    // As services measure by default.
    limits: {
      mostSpreadPercent: DEFAULT_MOST_SPREAD_PERCENT,
      mostOthersPercent: DEFAULT_MOST_OTHERS_PERCENT,
      againSeconds: 60,
    },
    runDirectory: join(directory, "probe"),
    signal,
    timeoutSeconds: 900,
    onProgress: (done, total, message) => {
      if (done % 25 === 0) console.error(`profile ${done}/${total}: ${message}`);
    },
  });
  if (outcome.status === "stopped") throw new Stopped("the probe was stopped");
  if (outcome.status !== "measured") throw new Error(`the probe did not finish: ${JSON.stringify(outcome)}`);
  return outcome.profile;
}

/** Measures a job's cluster with the probe, for this job. */
export const profileFor = (spec: JobSpec, directory: string, place: Place = {}): Promise<Profile> =>
  profileOf({ cluster: spec.cluster, needed: requiredMeasurements(spec), directory, ...place });

/** What a run said: its start, and every step from the first. */
export interface Observed {
  readonly started: Extract<TrainerEvent, { event: "started" }>;
  readonly steps: readonly Extract<TrainerEvent, { event: "step" }>[];
  /** What the hosts did meanwhile. */
  readonly hosts: readonly HostUse[];
}

export interface ObserveOptions extends Place {
  readonly spec: JobSpec;
  readonly plan: Plan;
  readonly dataset: PreparedData;
  readonly directory: string;
  readonly steps: number;
  readonly threadsPerRank?: number;
  /** Of another build than {@link native}. */
  readonly native?: string;
  readonly timeline?: TrainerConfig["timeline"];
  /** Of the forward pass, where it is not the plan's: by modules, which no plan has. */
  readonly forwardOverlap?: TrainerConfig["plan"]["forwardOverlap"];
}

/** Trains a plan from the first step, and gives every event. @throws Stopped when the signal ended it. */
export async function observePlan(options: ObserveOptions): Promise<Observed | Failure> {
  const {
    spec,
    plan,
    dataset,
    directory,
    steps,
    timeline,
    forwardOverlap,
    clustersFile,
    signal,
    threadsPerRank = THREADS_PER_RANK,
    native: build = native,
  } = options;
  const config = trainerConfig({
    spec,
    plan,
    mesh: buildMesh(plan),
    dataset,
    steps,
    checkpoint: null,
    threadsPerRank,
    ...(timeline ? { timeline } : {}),
  });
  const events: TrainerEvent[] = [];
  const outcome = await launchRanks({
    program: trainerIn(build),
    config: forwardOverlap === undefined ? config : { ...config, plan: { ...config.plan, forwardOverlap } },
    ranks: worldSize(plan),
    threadsPerRank,
    ...(await launchTarget(spec.cluster, clustersFile)),
    runDirectory: join(directory, "run"),
    timeoutSeconds: 600,
    ...(signal ? { killSignal: signal } : {}),
    onEvent: (event) => events.push(event),
  });
  if (outcome.status === "stopped" || signal?.aborted === true) throw new Stopped("the run was stopped");
  if (outcome.status === "failed") return outcome.failure;
  const started = events.find((event) => event.event === "started");
  if (!started) throw new Error("the ranks ended without saying that they began");
  return {
    started,
    steps: events.filter((event) => event.event === "step"),
    hosts: events.flatMap((event) => (event.event === "hosts" ? event.hosts : [])),
  };
}

/** Trains `warmupSteps + measuredSteps` steps of a plan, from the first. */
export async function runPlan(
  options: Omit<ObserveOptions, "steps"> & { readonly warmupSteps: number; readonly measuredSteps: number },
): Promise<Measurement | Failure> {
  const { warmupSteps, measuredSteps } = options;
  const observed = await observePlan({ ...options, steps: warmupSteps + measuredSteps });
  return "code" in observed
    ? observed
    : measurementOf({
        ...observed,
        job: options.spec,
        warmupSteps,
        measuredSteps,
        mostOthersPercent: DEFAULT_MOST_OTHERS_PERCENT,
      });
}
