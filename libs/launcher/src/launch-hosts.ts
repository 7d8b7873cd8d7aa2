import { readFile } from "node:fs/promises";
import { hostname } from "node:os";
import {
  ClustersSchema,
  HostClusterSchema,
  ProblemError,
  SlurmClusterSchema,
  validate,
  type Cluster,
  type Clusters,
  type HostCluster,
  type SlurmSettings,
} from "@internevo/domain";
import { Type } from "typebox";
import { yieldsWhenIdle } from "./command/local.ts";
import { RUN_MARKER } from "./process/processes.ts";

/** The variable that names the file with the installation's clusters. */
export const CLUSTERS_VARIABLE = "INTERNEVO_CLUSTERS";

/**
 * The clusters of hosts that an installation knows. The file is read anew each time, so that it may change under a running service.
 * @throws ProblemError `unavailable` when the file cannot be read or says something else.
 */
export async function readClusters(path: string): Promise<Clusters> {
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    throw new ProblemError(
      "unavailable",
      `the clusters file ${path} cannot be read: ${(error as Error).message}`,
      [
        {
          field: CLUSTERS_VARIABLE,
          value: path,
          message: "is no JSON file that can be read",
          remedy: "name the file that describes the clusters' hosts, or use launcher: local",
        },
      ],
    );
  }
  const what = `the clusters file ${path}`;
  // Each by itself first: an entry says by `slurm` which of the two it is, so that its faults are those of that kind.
  const entries = (parsed as { clusters?: unknown } | null)?.clusters;
  for (const [name, entry] of Object.entries(
    typeof entries === "object" && entries !== null ? entries : {},
  )) {
    const kind =
      typeof entry === "object" && entry !== null && "slurm" in entry
        ? SlurmClusterSchema
        : HostClusterSchema;
    validate(
      Type.Object({ clusters: Type.Object({ [name]: kind }) }),
      { clusters: { [name]: entry as unknown } },
      "unavailable",
      what,
    );
  }
  return validate(ClustersSchema, parsed, "unavailable", what);
}

const namesOf = (
  clusters: Clusters["clusters"],
  wanted: (cluster: Clusters["clusters"][string]) => boolean,
): string =>
  Object.entries(clusters)
    .flatMap(([name, each]) => (wanted(each) ? [name] : []))
    .join(", ") || "none";

/**
 * How the installation reaches a cluster that Slurm runs.
 * @throws ProblemError `job-invalid` when the installation does not know the cluster as one of Slurm's.
 */
export async function slurmOf(
  cluster: Pick<Cluster, "name">,
  clustersFile: string | undefined,
): Promise<SlurmSettings> {
  const refuse = (field: string, value: unknown, message: string, remedy: string): never => {
    throw new ProblemError("job-invalid", `no launcher here runs this cluster: ${field} ${message}`, [
      { field, value, message, remedy },
    ]);
  };
  if (clustersFile === undefined)
    return refuse(
      "cluster.launcher",
      "slurm",
      "is not available: this installation describes no Slurm cluster",
      `describe it in a file and set ${CLUSTERS_VARIABLE} where the services run, or use launcher: local`,
    );
  const { clusters } = await readClusters(clustersFile);
  const known = Object.hasOwn(clusters, cluster.name) ? clusters[cluster.name] : undefined;
  if (!known || !("slurm" in known))
    return refuse(
      "cluster.name",
      cluster.name,
      known ? "is described by its hosts here, not as a Slurm cluster" : "is no cluster of this installation",
      known ? "use launcher: ssh" : `use one of: ${namesOf(clusters, (each) => "slurm" in each)}`,
    );
  const { timeLimitSeconds, saveSeconds, rest, start } = known.slurm;
  if (rest && start === "mpirun") {
    throw new ProblemError(
      "unavailable",
      `the clusters file ${clustersFile} is not valid: clusters.${cluster.name}.slurm.start`,
      [
        {
          field: `clusters.${cluster.name}.slurm.start`,
          value: start,
          message: "does not go with rest: slurmrestd signals ranks without mpirun's knowledge",
          remedy: "use start: srun, or leave rest out",
        },
      ],
    );
  }
  if (timeLimitSeconds !== undefined && saveSeconds !== undefined && saveSeconds * 2 > timeLimitSeconds) {
    throw new ProblemError(
      "unavailable",
      `the clusters file ${clustersFile} is not valid: clusters.${cluster.name}.slurm.saveSeconds`,
      [
        {
          field: `clusters.${cluster.name}.slurm.saveSeconds`,
          value: saveSeconds,
          message: `is more than half of timeLimitSeconds ${timeLimitSeconds}`,
          remedy: `use ${Math.floor(timeLimitSeconds / 2)} or less, or raise timeLimitSeconds`,
        },
      ],
    );
  }
  return known.slurm;
}

/**
 * The hosts that a job's cluster runs on: its first `nodes`.
 * @throws ProblemError `job-invalid` when the installation does not know the cluster, or it is smaller than the job's.
 */
export async function hostsOf(
  cluster: Pick<Cluster, "name" | "nodes" | "gpusPerNode">,
  clustersFile: string | undefined,
): Promise<HostCluster> {
  const refuse = (field: string, value: unknown, message: string, remedy: string): never => {
    throw new ProblemError("job-invalid", `no launcher here runs this cluster: ${field} ${message}`, [
      { field, value, message, remedy },
    ]);
  };
  if (clustersFile === undefined) {
    return refuse(
      "cluster.launcher",
      "ssh",
      "is not available: this installation describes no hosts",
      `set ${CLUSTERS_VARIABLE} where the services run, or use launcher: local`,
    );
  }
  const { clusters } = await readClusters(clustersFile);
  const known = Object.hasOwn(clusters, cluster.name) ? clusters[cluster.name] : undefined;
  if (!known || "slurm" in known)
    return refuse(
      "cluster.name",
      cluster.name,
      known ? "is run by Slurm here" : "is no cluster of this installation",
      known ? "use launcher: slurm" : `use one of: ${namesOf(clusters, (each) => !("slurm" in each))}`,
    );
  if (cluster.nodes > known.hosts.length)
    return refuse(
      "cluster.nodes",
      cluster.nodes,
      `is more than the ${known.hosts.length} hosts of ${cluster.name}`,
      `use ${known.hosts.length} or fewer`,
    );
  const hosts = known.hosts.slice(0, cluster.nodes);
  const narrow = hosts.find((host) => host.slots < cluster.gpusPerNode);
  if (narrow)
    return refuse(
      "cluster.gpusPerNode",
      cluster.gpusPerNode,
      `is more than the ${narrow.slots} slots of host ${narrow.name}`,
      `use ${narrow.slots} or fewer`,
    );
  return { ...known, hosts };
}

/** The names by which a host calls itself. */
const OWN_NAMES = ["localhost", "127.0.0.1", "::1"];

/** This machine, as locks and records name it. */
export const ownHost = (): string => hostname();

const hostId = (name: string): string => (OWN_NAMES.includes(name) ? ownHost() : name);

/** The hosts that a launch takes, each once, in the order of the alphabet; none where Slurm chooses them. */
export function launchedHosts({
  launcher,
  hosts,
}: {
  readonly launcher: Cluster["launcher"];
  readonly hosts?: Pick<HostCluster, "hosts"> | undefined;
}): string[] {
  if (launcher === "slurm") return [];
  return launcher === "local"
    ? [ownHost()]
    : [...new Set((hosts?.hosts ?? []).map(({ name }) => hostId(name)))].sort();
}

/** Whether ranks of a launch compute on this machine: its own, those of a cluster that it is a host of, and those of places in it, such as a testbed. */
export const usesThisMachine = (
  target: Parameters<typeof launchedHosts>[0] & { readonly hosts?: Pick<HostCluster, "enter"> | undefined },
): boolean => target.hosts?.enter !== undefined || launchedHosts(target).includes(ownHost());

/** How {@link launchRanks} reaches a job's cluster: spread this into its options. @throws ProblemError as {@link hostsOf}. */
export async function launchTarget(
  cluster: Cluster,
  clustersFile: string | undefined,
): Promise<{
  readonly launcher: Cluster["launcher"];
  readonly ranksPerNode: number;
  readonly hosts?: HostCluster;
  readonly slurm?: SlurmSettings;
}> {
  const target = { launcher: cluster.launcher, ranksPerNode: cluster.gpusPerNode };
  if (cluster.launcher === "slurm") return { ...target, slurm: await slurmOf(cluster, clustersFile) };
  return cluster.launcher === "ssh" ? { ...target, hosts: await hostsOf(cluster, clustersFile) } : target;
}

export interface HostsCommandOptions {
  readonly program: string;
  readonly configPath: string;
  readonly ranks: number;
  readonly ranksPerNode: number;
  readonly threadsPerRank: number;
  readonly hosts: HostCluster;
  /** More variables that the ranks need. */
  readonly exported?: readonly string[];
}

/**
 * The command line that starts ranks on hosts with Open MPI and a remote shell. Consecutive ranks fill a host, as the planner's
 * mesh assumes. mpirun gets SIGKILL when its parent dies; the daemons on the hosts notice that it is gone, and end their ranks.
 * Program, configuration and data must lie at the same paths on every host.
 * @throws RangeError when the hosts have too few slots.
 */
export function hostsCommand(options: HostsCommandOptions): string[] {
  const { ranks, ranksPerNode, hosts: cluster } = options;
  const nodes = Math.ceil(ranks / ranksPerNode);
  const used = cluster.hosts.slice(0, nodes);
  if (used.length < nodes || used.some((host) => host.slots < ranksPerNode))
    throw new RangeError(
      `${ranks} ranks, ${ranksPerNode} a node, do not fit on hosts ${cluster.hosts.map((host) => `${host.name}:${host.slots}`).join(",")}`,
    );
  const network = cluster.network?.join(",");
  return [
    ...(cluster.enter ?? []),
    // After `enter`: changing credentials would clear the signal.
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "mpirun",
    "-np",
    String(ranks),
    "--oversubscribe",
    "--bind-to",
    "none",
    "--map-by",
    "slot",
    "--host",
    used.map((host) => `${host.name}:${ranksPerNode}`).join(","),
    "--mca",
    "plm",
    "rsh",
    "--mca",
    "plm_rsh_agent",
    (cluster.remoteShell ?? ["ssh", "-o", "BatchMode=yes"]).join(" "),
    // From here to each host: hosts need not reach each other by the remote shell.
    "--mca",
    "plm_rsh_no_tree_spawn",
    "1",
    ...(network === undefined
      ? []
      : ["--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network]),
    // Over TCP, large messages otherwise go as one "put", which the other side asks for behind all that it is sending itself: ranks
    // that send to each other then take turns, and reach half of the bandwidth of a link that carries both ways at once.
    "--mca",
    "btl_tcp_flags",
    "send",
    // Where it is not known that hosts have a core for every thread, ranks give theirs away while they wait.
    "--mca",
    "mpi_yield_when_idle",
    used.every(
      ({ cores }) => cores !== undefined && !yieldsWhenIdle(ranksPerNode, options.threadsPerRank, cores),
    )
      ? "0"
      : "1",
    "--mca",
    "orte_base_help_aggregate",
    "0",
    ...[RUN_MARKER, "LC_ALL", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", ...(options.exported ?? [])].flatMap(
      (name) => ["-x", name],
    ),
    options.program,
    "--config",
    options.configPath,
  ];
}
