import type { ProfileRecord } from "@internevo/contracts";
import {
  bothMeasurements,
  firstMeasurements,
  measurementCount,
  requiredMeasurements,
  stillNoisyMeasurements,
  type Measurements,
} from "@internevo/cost-model";
import {
  aboutSeconds,
  clusterKey,
  DEFAULT_PROJECT,
  formatCounted,
  schedulerOf,
  type Failure,
  type JobSpec,
  type Profile,
} from "@internevo/domain";
import { assertProgram, type Probe, type Trainer } from "@internevo/launcher";
import { measurementRuns, measureProfile, type MeasureProfileOutcome } from "@internevo/profiling";
import { freshProfileWith, qualityOf, type NoiseLimits, type MeasuringEffort } from "@internevo/profiles";
import {
  newestProfile,
  storeGivenProfile,
  storeProfile,
  type Asker,
  type Database,
  type Transaction,
} from "@internevo/store";
import { launchDirectory, measuredSoFarPath } from "./directories.ts";
import { launchSignals } from "./launch-signals.ts";
import { freshProfile, measuringSeconds } from "./measured-first.ts";
import { namedProfile } from "./named-profile.ts";
import { reserveLaunch } from "./reserve-launch.ts";
import { retryLostRanks, tooManyLost } from "./retry-lost-ranks.ts";

export interface ProfilingSettings {
  readonly probe: Probe;
  readonly trainer: Trainer;
  readonly dataDirectory: string;
  /** Where installations of this machine see each other. */
  readonly machineDirectory: string;
  readonly clustersFile?: string | undefined;
  readonly threadsPerRank: number;
  /** Attempts in a row that may lose ranks without a newly measured point. */
  readonly lostRankLimit: number;
  /** Of a probe that hangs, beyond what its points may take. */
  readonly silenceSeconds: number;
  readonly freshForSeconds: number;
  readonly effort: MeasuringEffort;
  readonly limits: NoiseLimits;
}

export interface ObtainProfileOptions {
  readonly settings: ProfilingSettings;
  readonly database: Database;
  readonly spec: JobSpec;
  /** What the cluster is measured for. */
  readonly asker: Asker;
  readonly signal: AbortSignal;
  /** Claims hosts, all or none, as a command's context does; throws while others go first. */
  readonly claimHosts: (hosts: readonly string[]) => Promise<void>;
  /** Throws when the leases are not held any more: see the launcher's option. */
  readonly confirm: () => Promise<void>;
  /** @param waits somebody else is at work; default: no. */
  readonly onProgress: (message: string, done: number, total: number, waits?: boolean) => void;
  readonly onLog?: (line: string) => void;
  /** For the log of the service: names paths and processes of others. */
  readonly onDetails: (message: string) => void;
  /** A stored profile will do that is not fresh any more, or noisy: who holds the cluster keeps it from being measured. */
  readonly acceptsOld?: boolean;
  /** Keeps what is measured apart from other measurements for the same job: see {@link measuredSoFarPath}. */
  readonly look?: string;
}

export interface ObtainedProfile {
  readonly profile: Profile;
  readonly how: "given" | "fresh" | "measured";
  /** Stores what was measured, once; @returns the profile's id. */
  readonly persist: (tx: Transaction) => Promise<string>;
}

export type ObtainProfileOutcome =
  | ({ readonly status: "obtained" } & ObtainedProfile)
  /** Ranks were lost in too many attempts in a row without a newly measured point. */
  | { readonly status: "lost"; readonly failure: Failure }
  | { readonly status: "failed"; readonly failure: Failure };

async function given(
  database: Database,
  name: string,
  { project = DEFAULT_PROJECT, cluster: { launcher } }: JobSpec,
): Promise<ObtainedProfile> {
  const asker = { project, launcher };
  const { profile, storedId } = await namedProfile(database.db, name, "cluster.profile", asker);
  return { profile, how: "given", persist: async (tx) => storedId ?? storeGivenProfile(tx, profile) };
}

/**
 * A profile that holds what the planner needs for a job: the one that the job names, a stored one that is
 * fresh, of this probe and complete, or a new measurement under the cluster's lease. A fresh one that lacks
 * some shapes is completed: only those are measured, and the whole is as old as its oldest part. A fresh one
 * that is noisy is not as good as a quiet one: the noisy points that the job needs are measured again, each
 * once while the profile is fresh. A job that asks for it measures everything again.
 * @throws ProblemError for a named profile that is missing, or a probe that is not built; the signal's
 * reason.
 */
export async function obtainProfile(options: ObtainProfileOptions): Promise<ObtainProfileOutcome> {
  const { settings, database, spec } = options;
  const { cluster } = spec;
  if (cluster.profile !== null)
    return { status: "obtained", ...(await given(database, cluster.profile, spec)) };
  await assertProgram(settings.probe);
  await assertProgram(settings.trainer);
  const needed = requiredMeasurements(spec);
  const key = clusterKey(cluster);
  const newest = (): Promise<ProfileRecord | undefined> =>
    freshProfile(database, spec, settings, options.acceptsOld);
  const first = (stored: ProfileRecord | undefined): Measurements => {
    const { missing, noisy } = firstMeasurements(stored?.profile, needed);
    // Noisy ones are better than none until the cluster is free.
    return options.acceptsOld ? missing : bothMeasurements(missing, noisy);
  };
  const reuse = (stored: ProfileRecord | undefined): ObtainProfileOutcome | undefined => {
    if (!stored || measurementCount(first(stored)) > 0) return undefined;
    const words = goesOnWithNoisyWords(stored.profile, needed);
    if (words !== undefined) options.onLog?.(words);
    return { status: "obtained", profile: stored.profile, how: "fresh", persist: async () => stored.id };
  };

  const again = spec.measureAgain === true;
  const early = again ? undefined : reuse(await newest());
  if (early) return early;
  const reservation = await reserveLaunch({
    ...settings,
    cluster,
    claimHosts: options.claimHosts,
    confirm: options.confirm,
    use: "measure",
    signal: options.signal,
    onWait: (message) => options.onProgress(message, 0, 1, true),
    onNotice: (message) => options.onLog?.(message),
    onDetails: options.onDetails,
  });
  try {
    // Somebody may have measured while this job waited.
    const base = again ? undefined : await newest();
    const late = reuse(base);
    if (late) return late;
    return await measure(options, base, first(base), key);
  } finally {
    reservation.release();
  }
}

/**
 * A new measurement of all that the planner needs for a job, for who has what it runs on reserved already.
 * @throws ProblemError for a program that is not built; the signal's reason.
 */
export async function measureAnew(
  options: Omit<ObtainProfileOptions, "claimHosts" | "onDetails">,
): Promise<ObtainProfileOutcome> {
  const { settings, spec } = options;
  await assertProgram(settings.probe);
  await assertProgram(settings.trainer);
  return measure(options, undefined, requiredMeasurements(spec), clusterKey(spec.cluster));
}

/** A profile with a newer measurement of some of its points, and how quiet both are together. */
function completed(older: Profile, newer: Profile): Profile {
  const merged = freshProfileWith(older, newer);
  const { quality } = newer;
  return quality
    ? {
        ...merged,
        quality: qualityOf(merged, quality, {
          ...quality,
          disturbances: [...quality.disturbances, ...(older.quality?.disturbances ?? [])],
        }),
      }
    : merged;
}

/** What a job says that plans with noisy points; undefined where it needs none. */
function goesOnWithNoisyWords(profile: Profile, needed: Measurements): string | undefined {
  const points = measurementCount(stillNoisyMeasurements(profile, needed));
  return points === 0
    ? undefined
    : `goes on with ${formatCounted(points, "noisy point")} of profile ${profile.name}, measured again before: ` +
        "measureAgain: true measures everything anew";
}

/** How many times the time of a point the probe may take for one, with a busy machine's waits. */
const POINT_PATIENCE = 20;

/**
 * Measures these points, in as many attempts as it takes while each measures some of them.
 * @param runs how often something is run for it, the total of the progress.
 */
async function measureOn(
  options: Omit<ObtainProfileOptions, "claimHosts" | "onDetails">,
  missing: Measurements,
  runs: number,
): Promise<MeasureProfileOutcome> {
  const { settings, spec, signal, asker } = options;
  const owner = "jobId" in asker ? asker.jobId : asker.workloadId;
  const { killSignal, detachSignal } = launchSignals(spec.cluster, signal);
  const points = measurementCount(missing);
  let kept = 0;
  return retryLostRanks({
    launch: async () => {
      const outcome = await measureProfile({
        probe: settings.probe,
        trainer: settings.trainer,
        cluster: spec.cluster,
        clustersFile: settings.clustersFile,
        needed: missing,
        threadsPerRank: settings.threadsPerRank,
        effort: settings.effort,
        limits: settings.limits,
        runDirectory: launchDirectory(settings.dataDirectory, spec.cluster, owner, "profile"),
        signal: killSignal,
        detachSignal,
        confirm: options.confirm,
        onQueue: (message, waits) => options.onProgress(message, 0, runs, waits),
        // Where a scheduler chooses the nodes, another attempt may get others.
        ...(schedulerOf(spec.cluster) === null
          ? {
              keep: {
                path: measuredSoFarPath(settings.dataDirectory, owner, options.look),
                freshForSeconds: settings.freshForSeconds,
                onKept: (count: number) => (kept = count),
              },
            }
          : {}),
        // Every point has its own bound, and waiting for busy cores comes on top.
        silenceSeconds: settings.silenceSeconds + POINT_PATIENCE * settings.effort.maximumSecondsPerPoint,
        timeoutSeconds: 600 + POINT_PATIENCE * points * settings.effort.maximumSecondsPerPoint,
        onProgress: (done, total, message) => options.onProgress(message, done, total),
        ...(options.onLog ? { onLog: options.onLog } : {}),
      });
      // Ranks that hang say as little of the cluster as ranks that are gone.
      return outcome.status === "failed" && outcome.failure.code === "timeout"
        ? { ...outcome, failure: { ...outcome.failure, code: "rank-lost" } }
        : outcome;
    },
    failureOf: (outcome) => (outcome.status === "failed" ? outcome.failure : undefined),
    limit: settings.lostRankLimit,
    signal,
    progress: () => kept,
    onRetry: (failure, inSeconds) =>
      options.onLog?.(`${failure.message}: measures on in ${formatCounted(inSeconds, "second")}`),
  });
}

async function measure(
  options: Omit<ObtainProfileOptions, "claimHosts" | "onDetails">,
  base: ProfileRecord | undefined,
  missing: Measurements,
  key: string,
): Promise<ObtainProfileOutcome> {
  const { settings, signal } = options;
  const points = measurementCount(missing);
  const runs = measurementRuns(missing, settings.effort.sliceRounds);
  const last = base ?? (await newestProfile(options.database.db, key));
  const seconds = measuringSeconds(points, last?.profile);
  options.onProgress(
    `measures ${base ? "only what the fresh profile lacks or has noisily: " : ""}${formatCounted(points, "point")}${runs === points ? "" : ` in ${formatCounted(runs, "run")}`}${seconds === null ? "" : `, ${aboutSeconds(seconds)}`}`,
    0,
    runs,
  );
  const begin = Date.now();
  const measured = await measureOn(options, missing, runs);
  if (measured.status === "stopped") {
    signal.throwIfAborted();
    return { status: "failed", failure: { code: "internal", message: "the probe was stopped" } };
  }
  if (measured.status === "failed")
    return measured.failure.code === "rank-lost"
      ? {
          status: "lost",
          failure: tooManyLost(settings.lostRankLimit, "a newly measured point", measured.failure),
        }
      : { status: "failed", failure: measured.failure };
  const profile = base ? completed(base.profile, measured.profile) : measured.profile;
  // Points of an earlier attempt are as old as the first of them.
  const { measuredAt } = measured.profile.provenance;
  const olderSeconds = measuredAt === null ? 0 : Math.max(0, begin - Date.parse(measuredAt)) / 1000;
  const leftSeconds = Math.min(
    settings.freshForSeconds - olderSeconds,
    base ? (Date.parse(base.freshUntil) - Date.now()) / 1000 : Infinity,
  );
  return {
    status: "obtained",
    profile,
    how: "measured",
    persist: (tx) =>
      storeProfile(
        tx,
        { clusterKey: key, profile, freshForSeconds: Math.max(0, leftSeconds) },
        options.asker,
      ),
  };
}
