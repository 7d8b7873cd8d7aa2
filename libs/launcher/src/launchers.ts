import { ProblemError, type Cluster, type LauncherKind, type ProblemDetail } from "@internevo/domain";
import type { TSchema } from "typebox";
import { awayFor, UNKNOWN_CAPACITY, type ClusterLook } from "./cluster-look.ts";
import { readClusters, refuseCluster } from "./clusters-file.ts";
import { ownHost } from "./hosts.ts";
import type { LaunchOptions, LaunchOutcome } from "./launch-options.ts";
import type { DescribedCluster, LaunchCapabilities, Launcher } from "./launcher.ts";
import { kubernetesLauncher } from "./kubernetes/launcher.ts";
import { localLauncher } from "./local/launcher.ts";
import { assertProgram, type NativeProgram } from "./programs.ts";
import { slurmLauncher } from "./slurm/launcher.ts";
import { sshLauncher } from "./ssh/launcher.ts";
import { CLUSTERS_VARIABLE } from "./clusters-file.ts";

/** The launchers of this installation: a new one is a line here. */
const REGISTRY: Readonly<Record<LauncherKind, Launcher>> = {
  local: localLauncher,
  ssh: sshLauncher,
  slurm: slurmLauncher,
  kubernetes: kubernetesLauncher,
};
const ALL = Object.values(REGISTRY);

export const launcherOf = ({ launcher }: { readonly launcher: LauncherKind }): Launcher => REGISTRY[launcher];

/** How {@link launchRanks} reaches a cluster: spread this into its options. */
export interface LaunchTarget {
  readonly launcher: LauncherKind;
  readonly ranksPerNode: number;
  /** What the launcher needs to reach the cluster; only the launcher reads it. */
  readonly settings?: unknown;
}

/**
 * How a job's cluster is reached.
 * @throws ProblemError `job-invalid` when the installation does not know the cluster, or it is smaller than
 * the job's; ClustersFileError when the clusters file cannot be read, or its entry of the cluster is wrong.
 */
export async function launchTarget(
  cluster: DescribedCluster & Pick<Cluster, "launcher">,
  clustersFile: string | undefined,
): Promise<LaunchTarget> {
  const { description } = launcherOf(cluster);
  const target = { launcher: cluster.launcher, ranksPerNode: cluster.gpusPerNode };
  if (description === null) return target;
  if (clustersFile === undefined)
    return refuseCluster(
      "cluster.launcher",
      cluster.launcher,
      `is not available: this installation describes no ${description.noun}`,
      `describe one in a file and set ${CLUSTERS_VARIABLE} where the services run, or use launcher: local`,
    );
  const clusters = await readClusters(clustersFile, ALL);
  const known = Object.hasOwn(clusters, cluster.name) ? clusters[cluster.name] : undefined;
  if (known?.fault) throw known.fault;
  if (known?.launcher.kind === cluster.launcher)
    return { ...target, settings: description.settingsOf(known.entry, cluster, clustersFile) };
  const names = Object.entries(clusters).flatMap(([name, each]) =>
    each.launcher.kind === cluster.launcher ? [name] : [],
  );
  return refuseCluster(
    "cluster.name",
    cluster.name,
    known ? `${known.launcher.description?.words} here` : "is no cluster of this installation",
    known ? `use launcher: ${known.launcher.kind}` : `use one of: ${names.join(", ") || "none"}`,
  );
}

/** A cluster that jobs may name. */
export interface KnownCluster {
  readonly name: string;
  readonly launcher: LauncherKind;
  /** As claims name them; none where a scheduler shares nodes out. */
  readonly hosts: readonly string[];
  /** See {@link Launcher.look}. */
  look(signal: AbortSignal): Promise<ClusterLook>;
}

/**
 * The clusters of this installation: this machine under its own name, on which launchers that need no
 * description start ranks whatever a job calls it, and those of the clusters file.
 * @throws ClustersFileError when the clusters file cannot be read or is none of clusters.
 */
export async function knownClusters(here: LaunchCapabilities): Promise<readonly KnownCluster[]> {
  const { clustersFile } = here;
  const known = (name: string, launcher: Launcher, settings: unknown): KnownCluster => ({
    name,
    launcher: launcher.kind,
    hosts: launcher.hosts(settings),
    look: (signal) => launcher.look(settings, here, signal),
  });
  const machines = ALL.filter(({ description }) => description === null);
  const described = clustersFile === undefined ? {} : await readClusters(clustersFile, ALL);
  return [
    ...machines.map((launcher) => known(ownHost(), launcher, undefined)),
    ...Object.entries(described).map(([name, { launcher, entry, fault }]) => {
      if (fault) return unusable(name, launcher, fault);
      try {
        return known(name, launcher, launcher.description?.wholeOf(entry, name, clustersFile ?? ""));
      } catch (error) {
        return unusable(name, launcher, error);
      }
    }),
  ];
}

/** An entry that is wrong, or contradicts itself, is a cluster that nobody can use, and that hides no other. */
function unusable(name: string, { kind }: Launcher, error: unknown): KnownCluster {
  if (!(error instanceof ProblemError)) throw error;
  const [detail] = error.details;
  const message = detail ? `${detail.field} ${detail.message}: ${detail.remedy}` : error.message;
  const seen = { capacity: UNKNOWN_CAPACITY, health: awayFor(message) };
  return { name, launcher: kind, hosts: [], look: () => Promise.resolve(seen) };
}

/** See {@link Launcher.hosts}. */
export const launchedHosts = (target: Pick<LaunchTarget, "launcher" | "settings">): string[] =>
  launcherOf(target).hosts(target.settings);

/** See {@link Launcher.usesThisMachine}. */
export const usesThisMachine = (target: Pick<LaunchTarget, "launcher" | "settings">): boolean =>
  launcherOf(target).usesThisMachine(target.settings);

/**
 * Checks that something here can run a job's cluster.
 * @throws ProblemError as {@link launchTarget}, and `job-invalid` with all faults that the launcher finds.
 */
export async function checkCluster(cluster: Cluster, here: LaunchCapabilities): Promise<void> {
  const { settings } = await launchTarget(cluster, here.clustersFile);
  const details: ProblemDetail[] = launcherOf(cluster).faults(cluster, settings, here);
  const [first] = details;
  if (first)
    throw new ProblemError(
      "job-invalid",
      `no launcher here runs this cluster: ${first.field} ${first.message}`,
      details,
    );
}

/**
 * Runs a native program on ranks until it ends, and leaves no process behind. Every line of its standard
 * output must be an event of the program's schema: anything else ends the run as a failure. What an earlier,
 * killed owner of the same run directory left is ended first, or gone on with where ranks outlive their
 * supervisor.
 * @throws ProblemError `unavailable` when the program is missing; what `confirm` threw; whatever `onEvent`
 * threw, after the ranks were ended.
 */
export async function launchRanks<P extends NativeProgram<TSchema, TSchema>>(
  options: LaunchOptions<P>,
): Promise<LaunchOutcome> {
  await assertProgram(options.program);
  const isStopped = options.signal?.aborted === true || options.killSignal?.aborted === true;
  // One that was replaced would end its successor's ranks as leftovers.
  if (!isStopped) await options.confirm?.();
  const launcher = launcherOf(options);
  if (launcher.description !== null && options.settings === undefined)
    throw new TypeError(`launcher ${launcher.kind} needs the settings of its cluster`);
  return launcher.launch(options, options.settings);
}
