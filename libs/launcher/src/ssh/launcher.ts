import { refuseCluster } from "../clusters-file.ts";
import { hostId, ownHost } from "../hosts.ts";
import type { DescribedCluster, Launcher } from "../launcher.ts";
import { runUnderMpirun } from "../mpirun/run.ts";
import { hostsCommand } from "./command.ts";
import { lookAtHosts } from "./look.ts";
import { HostClusterSchema, type HostCluster } from "./settings.ts";

/**
 * The cluster with the hosts that a job takes: its first `nodes`. @throws ProblemError `job-invalid` when it
 * is smaller than the job's.
 */
export function hostsFor(known: HostCluster, cluster: DescribedCluster): HostCluster {
  if (cluster.nodes > known.hosts.length)
    return refuseCluster(
      "cluster.nodes",
      cluster.nodes,
      `is more than the ${known.hosts.length} hosts of ${cluster.name}`,
      `use ${known.hosts.length} or fewer`,
    );
  const hosts = known.hosts.slice(0, cluster.nodes);
  const narrow = hosts.find((host) => host.slots < cluster.gpusPerNode);
  if (narrow)
    return refuseCluster(
      "cluster.gpusPerNode",
      cluster.gpusPerNode,
      `is more than the ${narrow.slots} slots of host ${narrow.name}`,
      `use ${narrow.slots} or fewer`,
    );
  return { ...known, hosts };
}

/** Ranks on hosts that a remote shell reaches: one mpirun here, and its daemons there. */
export const sshLauncher: Launcher<HostCluster> = {
  kind: "ssh",
  description: {
    member: "hosts",
    schema: HostClusterSchema,
    noun: "hosts",
    words: "is described by its hosts",
    // The schema of the entry has been checked.
    settingsOf: (entry, cluster) => hostsFor(entry as HostCluster, cluster),
    wholeOf: (entry) => entry as HostCluster,
  },
  faults: () => [],
  hosts: ({ hosts }) => [...new Set(hosts.map(({ name }) => hostId(name)))].sort(),
  look: (cluster, _here, signal) => lookAtHosts(cluster, signal),
  usesThisMachine: (cluster) => cluster.enter !== undefined || sshLauncher.hosts(cluster).includes(ownHost()),
  launch: (options, hosts) =>
    runUnderMpirun(options, {
      runsHere: false,
      hosts: sshLauncher.hosts(hosts),
      command: ({ configPath }) =>
        hostsCommand({
          program: options.program.path,
          configPath,
          ranks: options.ranks,
          ranksPerNode: options.ranksPerNode ?? options.ranks,
          hosts,
          threadsPerRank: options.threadsPerRank,
          exported: Object.keys(options.environment ?? {}),
        }),
    }),
  outliving: null,
  startWords: (ranks) => `mpirun -np ${ranks}`,
};
