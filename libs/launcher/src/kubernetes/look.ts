import { awayFor, healthOf, UNKNOWN_CAPACITY, type ClusterLook } from "../cluster-look.ts";
import { KubernetesApi } from "./api.ts";
import { isNotDone, jobSetsPath, NODES_PATH } from "./job.ts";
import { namespaceOf, type KubernetesSettings } from "./settings.ts";
import { nodesFor } from "./shortage.ts";
import { nodeFault, type Node } from "./status.ts";

/** Asks for the nodes that pods may go to, and whether JobSets can be listed where they are made. */
export async function lookAtCluster(settings: KubernetesSettings): Promise<ClusterLook> {
  try {
    const api = new KubernetesApi(settings);
    await api.ask({ path: jobSetsPath(namespaceOf(settings)), query: { limit: "1" } });
    const nodes = nodesFor(
      (await api.ask<{ readonly items: readonly Node[] }>({ path: NODES_PATH })).items,
      settings,
    );
    if (nodes.length === 0)
      return {
        capacity: { ...UNKNOWN_CAPACITY, nodes: 0 },
        health: awayFor("Kubernetes has no node as the cluster's settings want it"),
      };
    const { gpuResource } = settings;
    const gpus =
      gpuResource === undefined ? null : nodes.reduce((sum, node) => sum + gpusOf(node, gpuResource), 0);
    return {
      capacity: { ...UNKNOWN_CAPACITY, nodes: nodes.length, gpus },
      health: healthOf(
        nodes.length,
        nodes.flatMap((node) => nodeFault(node) ?? []),
      ),
    };
  } catch (error) {
    if (!isNotDone(error)) throw error;
    return {
      capacity: UNKNOWN_CAPACITY,
      health: awayFor(`Kubernetes does not answer: ${(error as Error).message}`),
    };
  }
}

const gpusOf = ({ status }: Node, gpuResource: string): number =>
  Number(status?.allocatable?.[gpuResource] ?? 0) || 0;
