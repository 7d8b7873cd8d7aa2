import type { ProfileRecord } from "@internevo/contracts";
import { MOST_LISTED_RANKS, type FirstCounts } from "@internevo/cost-model";
import { clusterKey, type JobSpec, type MeasuredFirst, type Profile } from "@internevo/domain";
import { type Probe } from "@internevo/launcher";
import { clusterRanks } from "@internevo/plan";
import { programDigest } from "@internevo/profiling";
import { PROBE_VERSION, THREADS_VERSION } from "@internevo/profiles";
import { newestProfile, type Database } from "@internevo/store";

/** What decides whether a stored profile still says something about what would be measured now. */
export interface Measuring {
  readonly probe: Probe;
  readonly threadsPerRank: number;
}

const isComparable = (profile: Profile, digest: string, threadsPerRank: number): boolean =>
  profile.provenance.versions[PROBE_VERSION] === digest &&
  profile.provenance.versions[THREADS_VERSION] === String(threadsPerRank);

/**
 * The newest profile of a cluster that new jobs use: fresh, and of this probe. @param acceptsOld one that is not fresh
 * will do. @throws an error of the file system where the probe is not built.
 */
export async function freshProfile(
  database: Database,
  { cluster }: Pick<JobSpec, "cluster">,
  { probe, threadsPerRank }: Measuring,
  acceptsOld = false,
): Promise<ProfileRecord | undefined> {
  const stored = await newestProfile(database.db, clusterKey(cluster), { freshOnly: !acceptsOld });
  return stored && isComparable(stored.profile, await programDigest(probe), threadsPerRank)
    ? stored
    : undefined;
}

/**
 * About how long it takes to measure so many points, by the last measurement of the cluster; null where there
 * was none, or there is nothing to measure.
 */
export function measuringSeconds(count: number, last: Profile | undefined): number | null {
  const secondsPerPoint = last?.quality?.secondsPerPoint;
  return count === 0 || secondsPerPoint === undefined ? null : secondsPerPoint * count;
}

/**
 * What a job would measure first if it were submitted now.
 * @param count `firstCounts` of `@internevo/cost-model`, where it keeps nobody waiting
 * @returns undefined where that is not known: the programs are not built on this machine, or the cluster is
 * very large.
 */
export async function measuredFirst(
  database: Database,
  spec: JobSpec,
  measuring: Measuring,
  count: (spec: JobSpec, fresh: Profile | undefined) => Promise<FirstCounts>,
): Promise<MeasuredFirst | undefined> {
  const { cluster } = spec;
  if (cluster.profile !== null) return { missing: 0, noisy: 0, seconds: null, profile: cluster.profile };
  if (clusterRanks(spec) > MOST_LISTED_RANKS) return undefined;
  let fresh: ProfileRecord | undefined;
  try {
    fresh = spec.measureAgain === true ? undefined : await freshProfile(database, spec, measuring);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  }
  const { missing, noisy } = await count(spec, fresh?.profile);
  const last = fresh ?? (await newestProfile(database.db, clusterKey(cluster)));
  return {
    missing,
    noisy,
    seconds: measuringSeconds(missing + noisy, last?.profile),
    profile: fresh?.profile.name ?? null,
  };
}
