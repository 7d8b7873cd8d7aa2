import { WAITS_FOR_CLUSTER, type ProfileRecord } from "@internevo/contracts";
import { requiredMeasurements } from "@internevo/cost-model";
import { clusterKey, type Failure, type JobSpec, type Profile } from "@internevo/domain";
import { countMissing, measurementCount, measureProfile, missingMeasurements, mergeProfiles, programDigest, assertProgram, THREADS_VERSION, PROBE_VERSION, type Measurements, type Probe, type ProbeEffort, type Trainer } from "@internevo/launcher";
import { newestProfile, storeGivenProfile, storeProfile, type Database, type Transaction } from "@internevo/store";
import { launchDirectory, launchResource } from "./directories.ts";
import { launchSignals } from "./launch-signals.ts";
import { namedProfile } from "./named-profile.ts";
import { retryLostRanks } from "./retry-lost-ranks.ts";

export interface ProfilingSettings {
  readonly probe: Probe;
  readonly trainer: Trainer;
  readonly dataDirectory: string;
  readonly clustersFile?: string | undefined;
  readonly threadsPerRank: number;
  readonly freshForSeconds: number;
  readonly effort: ProbeEffort;
}

export interface ObtainProfileOptions {
  readonly settings: ProfilingSettings;
  readonly database: Database;
  readonly spec: JobSpec;
  /** Job or workload that the cluster is measured for. */
  readonly owner: string;
  readonly signal: AbortSignal;
  /** Waits for a resource and keeps it, as a command's context does. */
  readonly reserve: (resource: string, onWait: () => void) => Promise<{ release(): Promise<void> }>;
  /** Throws when the leases are not held any more: see the launcher's option. */
  readonly confirm: () => Promise<void>;
  readonly onProgress: (message: string, done: number, total: number) => void;
  readonly onLog?: (line: string) => void;
}

export interface ObtainedProfile {
  readonly profile: Profile;
  readonly how: "given" | "fresh" | "measured";
  /** Stores what was measured, once; @returns the profile's id. */
  readonly persist: (tx: Transaction) => Promise<string>;
}

export type ObtainProfileOutcome = ({ readonly status: "obtained" } & ObtainedProfile) | { readonly status: "failed"; readonly failure: Failure };

async function given(database: Database, name: string): Promise<ObtainedProfile> {
  const { profile, storedId } = await namedProfile(database.db, name, "cluster.profile");
  return { profile, how: "given", persist: async (tx) => storedId ?? storeGivenProfile(tx, profile) };
}

/** Whether figures of a stored profile still say something about what would be measured now. */
const isComparable = (profile: Profile, digest: string, threadsPerRank: number): boolean =>
  profile.provenance.versions[PROBE_VERSION] === digest && profile.provenance.versions[THREADS_VERSION] === String(threadsPerRank);

/**
 * A profile that holds what the planner needs for a job: the one that the job names, a stored one that is fresh, of this probe and
 * complete, or a new measurement under the cluster's lease. A fresh one that lacks some shapes is completed: only those are
 * measured, and the whole is as old as its oldest part.
 * @throws ProblemError for a named profile that is missing, or a probe that is not built; the signal's reason.
 */
export async function obtainProfile(options: ObtainProfileOptions): Promise<ObtainProfileOutcome> {
  const { settings, database, spec } = options;
  const { cluster } = spec;
  if (cluster.profile !== null) return { status: "obtained", ...(await given(database, cluster.profile)) };
  await assertProgram(settings.probe);
  await assertProgram(settings.trainer);
  const needed = requiredMeasurements(spec);
  const digest = await programDigest(settings.probe);
  const key = clusterKey(cluster);
  const newest = async (): Promise<ProfileRecord | undefined> => {
    const stored = await newestProfile(database.db, key, { freshOnly: true });
    return stored && isComparable(stored.profile, digest, settings.threadsPerRank) ? stored : undefined;
  };
  const reuse = (stored: ProfileRecord | undefined): ObtainProfileOutcome | undefined =>
    stored && countMissing(stored.profile, needed) === 0 ? { status: "obtained", profile: stored.profile, how: "fresh", persist: async () => stored.id } : undefined;

  const early = reuse(await newest());
  if (early) return early;
  const reservation = await options.reserve(launchResource(cluster, options.owner), () => options.onProgress(WAITS_FOR_CLUSTER, 0, 1));
  try {
    // Somebody may have measured while this job waited.
    const base = await newest();
    const late = reuse(base);
    if (late) return late;
    return await measure(options, base, base ? missingMeasurements(base.profile, needed) : needed, key);
  } finally {
    await reservation.release();
  }
}

async function measure(options: ObtainProfileOptions, base: ProfileRecord | undefined, missing: Measurements, key: string): Promise<ObtainProfileOutcome> {
  const { settings, spec, signal } = options;
  const { killSignal, detachSignal } = launchSignals(spec.cluster, signal);
  const points = measurementCount(missing);
  const measured = await retryLostRanks(() => measureProfile({
    probe: settings.probe,
    trainer: settings.trainer,
    cluster: spec.cluster,
    clustersFile: settings.clustersFile,
    needed: missing,
    threadsPerRank: settings.threadsPerRank,
    effort: settings.effort,
    runDirectory: launchDirectory(settings.dataDirectory, spec.cluster, options.owner, "profile"),
    signal: killSignal,
    detachSignal,
    confirm: options.confirm,
    onQueue: (message) => options.onProgress(message, 0, points),
    // For a probe that hangs: every point has its own bound, and waiting for busy cores comes on top.
    timeoutSeconds: 600 + 20 * points * settings.effort.maximumSecondsPerPoint,
    onProgress: (done, total, message) => options.onProgress(message, done, total),
    ...(options.onLog ? { onLog: options.onLog } : {}),
  }), (outcome) => (outcome.status === "failed" ? outcome.failure : undefined));
  if (measured.status === "stopped") {
    signal.throwIfAborted();
    return { status: "failed", failure: { code: "internal", message: "the probe was stopped" } };
  }
  if (measured.status === "failed") return { status: "failed", failure: measured.failure };
  const profile = base ? mergeProfiles(base.profile, measured.profile) : measured.profile;
  const leftSeconds = base ? (Date.parse(base.freshUntil) - Date.now()) / 1000 : settings.freshForSeconds;
  return { status: "obtained", profile, how: "measured", persist: (tx) => storeProfile(tx, { clusterKey: key, profile, freshForSeconds: Math.max(0, leftSeconds) }) };
}
