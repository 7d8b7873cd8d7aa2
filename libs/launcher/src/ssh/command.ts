import { PAUSES_VARIABLE, PMIX_ENVIRONMENT, YIELDS_VARIABLE } from "../environment.ts";
import { yieldsWhenIdle } from "../local/command.ts";
import { RUN_MARKER } from "../process/processes.ts";
import type { HostCluster } from "./settings.ts";

/** The command that runs `HOST COMMAND` on a host. */
const remoteShellOf = ({ remoteShell }: HostCluster): readonly string[] =>
  remoteShell ?? ["ssh", "-o", "BatchMode=yes"];

/** The command line that does nothing on a host but show that it can be reached. */
export const reachCommand = (cluster: HostCluster, host: string): string[] => [
  ...(cluster.enter ?? []),
  ...remoteShellOf(cluster),
  host,
  "true",
];

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
 * The command line that starts ranks on hosts with Open MPI and a remote shell. Consecutive ranks fill a
 * host, as the planner's mesh assumes. mpirun gets SIGKILL when its parent dies; the daemons on the hosts
 * notice that it is gone, and end their ranks. Program, configuration and data must lie at the same paths on
 * every host.
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
    remoteShellOf(cluster).join(" "),
    // From here to each host: hosts need not reach each other by the remote shell.
    "--mca",
    "plm_rsh_no_tree_spawn",
    "1",
    ...(network === undefined
      ? []
      : ["--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network]),
    // Over TCP, large messages otherwise go as one "put", which the other side asks for behind all that it is
    // sending itself: ranks that send to each other then take turns, and reach half of the bandwidth of a
    // link that carries both ways at once.
    "--mca",
    "btl_tcp_flags",
    "send",
    // Where it is not known that hosts have a core for every thread, ranks give theirs away while they wait.
    "--mca",
    "mpi_yield_when_idle",
    used.some(({ cores }) => yieldsWhenIdle(ranksPerNode, options.threadsPerRank, cores)) ? "1" : "0",
    "--mca",
    "orte_base_help_aggregate",
    "0",
    ...[
      RUN_MARKER,
      "LC_ALL",
      "OMP_NUM_THREADS",
      "OPENBLAS_NUM_THREADS",
      ...Object.keys(PMIX_ENVIRONMENT),
      ...(process.env[YIELDS_VARIABLE] === "1" ? [PAUSES_VARIABLE] : []),
      ...(options.exported ?? []),
    ].flatMap((name) => ["-x", name]),
    options.program,
    "--config",
    options.configPath,
  ];
}
