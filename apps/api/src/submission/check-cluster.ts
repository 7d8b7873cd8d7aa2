import { formatBytes, ProblemError, usesGpus, type JobSpec, type ProblemDetail } from "@internevo/domain";
import { hostsOf, slurmOf } from "@internevo/launcher";

/** What can start ranks here. */
export interface LaunchCapabilities {
  readonly slurm: boolean;
  /** Describes the hosts of clusters with `launcher: ssh`; undefined: none are known. */
  readonly clustersFile?: string | undefined;
  /** More ranks than this are not started on one machine. */
  readonly maximumLocalRanks: number;
  readonly localMemoryBytes: number;
}

/**
 * Checks that something here can run the job's cluster.
 * @throws ProblemError `job-invalid`
 */
export async function checkCluster(spec: JobSpec, capabilities: LaunchCapabilities): Promise<void> {
  const { cluster } = spec;
  if (cluster.launcher === "ssh") return void (await hostsOf(cluster, capabilities.clustersFile));
  const details: ProblemDetail[] = [];
  if (cluster.launcher === "slurm") {
    const settings = await slurmOf(cluster, capabilities.clustersFile);
    if (!settings.rest && !capabilities.slurm) {
      details.push({ field: "cluster.launcher", value: "slurm", message: "is not available: this installation has no Slurm client", remedy: "install Slurm's client where the services run, or use launcher: local" });
    }
  } else {
    const ranks = cluster.nodes * cluster.gpusPerNode;
    if (cluster.nodes > 1) {
      details.push({ field: "cluster.nodes", value: cluster.nodes, message: "is more than the one machine that launcher: local has", remedy: "use nodes: 1 with all ranks in gpusPerNode, or launcher: ssh or slurm, or ask for the plan only: `internevo plan`" });
    }
    if (ranks > capabilities.maximumLocalRanks) {
      details.push({
        field: "cluster.gpusPerNode",
        value: cluster.gpusPerNode,
        message: `gives ${ranks} ranks, and this machine starts ${capabilities.maximumLocalRanks} at most`,
        remedy: "use fewer, or launcher: ssh or slurm, or ask for the plan only: `internevo plan`",
      });
    } else if (!usesGpus(cluster) && ranks * cluster.memoryPerGpuBytes > capabilities.localMemoryBytes) {
      details.push({
        field: "cluster.memoryPerGpu",
        value: cluster.memoryPerGpuBytes,
        message: `times ${ranks} ranks is ${formatBytes(ranks * cluster.memoryPerGpuBytes)}, and this machine has ${formatBytes(capabilities.localMemoryBytes)}`,
        remedy: `use ${formatBytes(Math.floor(capabilities.localMemoryBytes / ranks))} or less`,
      });
    }
  }
  const [first] = details;
  if (first) throw new ProblemError("job-invalid", `no launcher here runs this cluster: ${first.field} ${first.message}`, details);
}
