import { runsHere, usesGpus, type JobSpec, type ProblemDetail } from "@internevo/domain";
import type { LaunchCapabilities } from "@internevo/launcher";

/** What runs on this cluster, and worse than it might. */
export function clusterWarnings(
  { cluster }: Pick<JobSpec, "cluster">,
  { cores }: Pick<LaunchCapabilities, "cores">,
): ProblemDetail[] {
  const ranks = cluster.nodes * cluster.gpusPerNode;
  if (!runsHere(cluster) || usesGpus(cluster) || cores === undefined || ranks <= cores) return [];
  return [
    {
      field: "cluster.gpusPerNode",
      value: cluster.gpusPerNode,
      message: `gives ${ranks} ranks, and this machine has ${cores} core${cores === 1 ? "" : "s"}`,
      remedy:
        `use ${cores}: ranks that share a core make every step ` +
        "slower, and their times say little of a real cluster",
    },
  ];
}
