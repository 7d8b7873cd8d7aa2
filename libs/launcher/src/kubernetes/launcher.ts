import type { Launcher } from "../launcher.ts";
import { isMounted, kubernetesSettings } from "./contradictions.ts";
import { cancelKubernetesLeftover, launchOnKubernetes } from "./launch.ts";
import { lookAtCluster } from "./look.ts";
import { readKubernetesRecord } from "./record.ts";
import { KubernetesClusterSchema, type KubernetesCluster, type KubernetesSettings } from "./settings.ts";

/** Ranks as pods of a JobSet, which outlive whoever wrote it. */
export const kubernetesLauncher: Launcher<KubernetesSettings> = {
  kind: "kubernetes",
  description: {
    member: "kubernetes",
    schema: KubernetesClusterSchema,
    noun: "Kubernetes cluster",
    words: "is run by Kubernetes",
    // The schema of the entry has been checked.
    settingsOf: (entry, { name }, clustersFile) =>
      kubernetesSettings(entry as KubernetesCluster, name, clustersFile),
    wholeOf: (entry, name, clustersFile) =>
      kubernetesSettings(entry as KubernetesCluster, name, clustersFile),
  },
  faults: ({ launcher }, settings, { dataDirectory }) =>
    dataDirectory === undefined || isMounted(settings, dataDirectory, true)
      ? []
      : [
          {
            field: "cluster.launcher",
            value: launcher,
            message: `has pods that do not see the data directory ${dataDirectory}`,
            remedy: "add its file system to volumes of the cluster's kubernetes settings, at the same path",
          },
        ],
  hosts: () => [],
  look: (settings) => lookAtCluster(settings),
  usesThisMachine: () => false,
  launch: launchOnKubernetes,
  outliving: { left: readKubernetesRecord, endLeft: cancelKubernetesLeftover },
  startWords: (ranks) => `mpirun -np ${ranks}`,
};
