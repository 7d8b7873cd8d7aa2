import {
  formatBytes,
  ProblemError,
  usesGpus,
  writeBytes,
  type Cluster,
  type JobSpec,
  type ProblemDetail,
} from "@internevo/domain";
import { hostsOf, slurmOf, type CudaHost } from "@internevo/launcher";

/** Sizes that a person is told to write are whole ones. */
const MIB = 2 ** 20;

/** What can start ranks here. */
export interface LaunchCapabilities {
  readonly slurm: boolean;
  /** Describes the hosts of clusters with `launcher: ssh`; undefined: none are known. */
  readonly clustersFile?: string | undefined;
  /** More ranks than this are not started on one machine. */
  readonly maximumLocalRanks: number;
  readonly localMemoryBytes: number;
  readonly cores?: number | undefined;
  /** Where checkpoints are written, as this machine sees it; undefined: unknown. */
  readonly dataDirectory?: string | undefined;
  /** What ranks on GPUs of this machine have; undefined: unknown. */
  readonly cuda?: CudaHost | undefined;
}

/** Why ranks on GPUs cannot start on this machine. */
function gpuFaults({ nodes, gpusPerNode }: Cluster, cuda: CudaHost): ProblemDetail[] {
  const plansOnly = "or ask for the plan only: `internevo plan`";
  if (!cuda.hasBackend) {
    return [
      {
        field: "cluster.device",
        value: "cuda",
        message: "needs the CUDA backend, and the native programs here were built without it",
        remedy: `build it with INTERNEVO_CUDA=1 in the environment of \`npm run setup\`, use device: cpu, ${plansOnly}`,
      },
    ];
  }
  const ranks = nodes * gpusPerNode;
  if (cuda.gpus === null || ranks <= cuda.gpus) return [];
  return [
    {
      field: "cluster.gpusPerNode",
      value: gpusPerNode,
      message: `gives ${ranks} ranks on GPUs, and this machine shows ${cuda.gpus} NVIDIA GPU${cuda.gpus === 1 ? "" : "s"}`,
      remedy: `${cuda.gpus === 0 ? "use device: cpu, or launcher: ssh or slurm" : `use ${cuda.gpus} at most, or launcher: ssh or slurm`}, ${plansOnly}`,
    },
  ];
}

/** What runs on this cluster, and worse than it might. */
export function clusterWarnings(
  { cluster }: Pick<JobSpec, "cluster">,
  { cores }: Pick<LaunchCapabilities, "cores">,
): ProblemDetail[] {
  const ranks = cluster.nodes * cluster.gpusPerNode;
  if (cluster.launcher !== "local" || usesGpus(cluster) || cores === undefined || ranks <= cores) return [];
  return [
    {
      field: "cluster.gpusPerNode",
      value: cluster.gpusPerNode,
      message: `gives ${ranks} ranks, and this machine has ${cores} core${cores === 1 ? "" : "s"}`,
      remedy: `use ${cores}: ranks that share a core make every step slower, and their times say little of a real cluster`,
    },
  ];
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
      details.push({
        field: "cluster.launcher",
        value: "slurm",
        message: "is not available: this installation has no Slurm client",
        remedy: "install Slurm's client where the services run, or use launcher: local",
      });
    }
  } else {
    const ranks = cluster.nodes * cluster.gpusPerNode;
    if (cluster.nodes > 1) {
      details.push({
        field: "cluster.nodes",
        value: cluster.nodes,
        message: "is more than the one machine that launcher: local has",
        remedy:
          "use nodes: 1 with all ranks in gpusPerNode, or launcher: ssh or slurm, or ask for the plan only: `internevo plan`",
      });
    }
    if (usesGpus(cluster) && capabilities.cuda) details.push(...gpuFaults(cluster, capabilities.cuda));
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
        value: writeBytes(cluster.memoryPerGpuBytes),
        message: `times ${ranks} ranks is ${formatBytes(ranks * cluster.memoryPerGpuBytes)}, and this machine has ${formatBytes(capabilities.localMemoryBytes)}`,
        remedy: `use ${writeBytes(Math.floor(capabilities.localMemoryBytes / ranks / MIB) * MIB)} or less`,
      });
    }
  }
  const [first] = details;
  if (first)
    throw new ProblemError(
      "job-invalid",
      `no launcher here runs this cluster: ${first.field} ${first.message}`,
      details,
    );
}
