import { refuseEntry } from "../clusters-file.ts";
import { SHARED_MEMORY_PATH } from "./objects.ts";
import type { KubernetesCluster, KubernetesSettings } from "./settings.ts";

interface Contradiction {
  /** Below the cluster's settings. */
  readonly field: string;
  readonly value: unknown;
  readonly message: string;
  readonly remedy: string;
}

const trimmed = (path: string): string => path.replace(/\/+$/, "");

/** Whether pods see a path: it lies on one of the volumes. */
export const isMounted = (
  { volumes = [] }: Pick<KubernetesSettings, "volumes">,
  path: string,
  toWrite: boolean,
): boolean =>
  volumes.some(
    ({ mountPath, readOnly = false }) =>
      !(toWrite && readOnly) && `${trimmed(path)}/`.startsWith(`${trimmed(mountPath)}/`),
  );

function ofVolumes({ volumes = [] }: KubernetesSettings): Contradiction[] {
  return volumes.flatMap(({ claim, hostPath, mountPath }, index) => {
    const field = `volumes.${index}`;
    if ((claim === undefined) === (hostPath === undefined))
      return [
        {
          field,
          value: claim ?? null,
          message: `has ${claim === undefined ? "neither" : "both"} of claim and hostPath`,
          remedy: "name the claim, or the folder that every node has mounted",
        },
      ];
    const isTaken =
      trimmed(mountPath) === SHARED_MEMORY_PATH ||
      volumes.slice(0, index).some((other) => trimmed(other.mountPath) === trimmed(mountPath));
    return isTaken
      ? [
          {
            field: `${field}.mountPath`,
            value: mountPath,
            message: "is where something else is mounted",
            remedy: "mount the volume at a path of its own",
          },
        ]
      : [];
  });
}

function ofQueue(settings: KubernetesSettings): Contradiction[] {
  const { queue, queuePriorityClass, requiredTopology, preferredTopology } = settings;
  if (requiredTopology !== undefined && preferredTopology !== undefined)
    return [
      {
        field: "preferredTopology",
        value: preferredTopology,
        message: "does not go with requiredTopology",
        remedy: "leave one of them out",
      },
    ];
  if (queue !== undefined) return [];
  return Object.entries({ queuePriorityClass, requiredTopology, preferredTopology }).flatMap(
    ([field, value]) =>
      value === undefined
        ? []
        : [
            {
              field,
              value,
              message: "is read by Kueue, and the settings name no queue of it",
              remedy: "name Kueue's LocalQueue in queue, or leave it out",
            },
          ],
  );
}

function ofPods(settings: KubernetesSettings): Contradiction[] {
  const { context, kubeconfig, directory, gpuResource, resources = {} } = settings;
  const found: Contradiction[] = [];
  if (context !== undefined && kubeconfig === undefined)
    found.push({
      field: "context",
      value: context,
      message: "is a part of a kubeconfig, and none is named",
      remedy: "name the file in kubeconfig",
    });
  if (directory !== undefined && !isMounted(settings, directory, true))
    found.push({
      field: "directory",
      value: directory,
      message: "lies on no volume that pods can write",
      remedy: "add the file system to volumes, mounted at the same path as where the services run",
    });
  const own = ["cpu", "memory", ...(gpuResource === undefined ? [] : [gpuResource])];
  for (const name of Object.keys(resources).filter((each) => own.includes(each)))
    found.push({
      field: `resources.${name}`,
      value: resources[name],
      message: "follows from the other settings and the job",
      remedy: "use cpuPerRank, memoryPerNodeBytes or gpuResource",
    });
  return found;
}

/**
 * The settings of a cluster that Kubernetes runs. @throws ProblemError `unavailable` where they contradict each
 * other.
 */
export function kubernetesSettings(
  { kubernetes }: KubernetesCluster,
  name: string,
  clustersFile: string,
): KubernetesSettings {
  const [first] = [...ofVolumes(kubernetes), ...ofQueue(kubernetes), ...ofPods(kubernetes)];
  if (first)
    return refuseEntry(
      clustersFile,
      `clusters.${name}.kubernetes.${first.field}`,
      first.value,
      first.message,
      first.remedy,
    );
  return kubernetes;
}
