import { CLUSTER_NAME_IN_KEY } from "./job.ts";
import { LAUNCHERS, type LauncherKind } from "./launchers.ts";

/** A stored profile that is called by its own name, or by its cluster's. */
export interface CalledProfile {
  readonly name: string;
  readonly clusterKey: string;
  /** Whose it is; null: the installation's. */
  readonly project: string | null;
  readonly createdAt: string;
}

/** Who names a profile, and for what. */
export interface ProfileAsker {
  /** Whose profiles are meant first; null: the installation's. */
  readonly project: string | null;
  /** Of the cluster of the job that it is named for; null: it is named for no job. */
  readonly launcher: LauncherKind | null;
}

const measured = new RegExp(CLUSTER_NAME_IN_KEY);

/** What ran the cluster that a profile was measured of; undefined for one that was given. */
const launcherOf = ({ clusterKey }: CalledProfile): LauncherKind | undefined =>
  measured.test(clusterKey) ? LAUNCHERS.find((kind) => clusterKey.startsWith(`${kind}:`)) : undefined;

/** Those that are meant before the others; all where there are none. */
function first<T>(of: readonly T[], isFirst: (one: T) => boolean): readonly T[] {
  const found = of.filter(isFirst);
  return found.length > 0 ? found : of;
}

/**
 * What a name means of the profiles that are called so. Those of one's own project come first, then those whose own
 * name it is, then those of clusters. Anybody may measure a cluster of any name, so a job means the clusters that its
 * own launcher runs, and of their sizes the newest profile. Several are left where the name does not settle it: also
 * where some are of GPUs, and some are not.
 * @param called of every cluster and project the newest
 */
export function meantProfiles<T extends CalledProfile>(
  called: readonly T[],
  name: string,
  { project, launcher }: ProfileAsker,
): readonly T[] {
  const ofProject = first(called, (one) => one.project === project);
  const named = first(ofProject, (one) => one.name === name);
  if (launcher === null) return named;
  const ofLauncher = first(named, (one) => launcherOf(one) === launcher);
  const launchers = new Set(ofLauncher.map(launcherOf));
  const devices = new Set(ofLauncher.map(({ clusterKey }) => clusterKey.endsWith(":cuda")));
  if (launchers.size > 1 || launchers.has(undefined) || devices.size > 1) return ofLauncher;
  return ofLauncher.toSorted((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt)).slice(0, 1);
}
