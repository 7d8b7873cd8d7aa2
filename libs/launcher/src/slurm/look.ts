import { awayFor, healthOf, UNKNOWN_CAPACITY, type ClusterLook } from "../cluster-look.ts";
import { controlOf } from "./launch.ts";
import type { SlurmSettings } from "./settings.ts";
import { describeNode } from "./words.ts";

/** Asks Slurm for the nodes of the cluster's partition; all nodes where it has none of its own. */
export async function lookAtPartition(settings: SlurmSettings): Promise<ClusterLook> {
  const { partition } = settings;
  try {
    const all = await controlOf(settings).nodes();
    const nodes =
      partition === undefined ? all : all.filter(({ partitions }) => partitions.includes(partition));
    if (nodes.length === 0)
      return {
        capacity: { ...UNKNOWN_CAPACITY, nodes: 0 },
        health: awayFor(`Slurm has no node of partition ${partition ?? ""}`),
      };
    const faults = nodes.filter(({ usable }) => !usable).map(describeNode);
    return { capacity: { ...UNKNOWN_CAPACITY, nodes: nodes.length }, health: healthOf(nodes.length, faults) };
  } catch (error) {
    return {
      capacity: UNKNOWN_CAPACITY,
      health: awayFor(`Slurm does not answer: ${(error as Error).message}`),
    };
  }
}
