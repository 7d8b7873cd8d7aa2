import { rankEnvironment } from "../environment.ts";
import type { Size } from "../scheduled/begin.ts";
import { POD_FILES } from "./script.ts";
import { namespaceOf, saveSecondsOf, type KubernetesSettings } from "./settings.ts";

/** A question by which we write our fields of an object, whether it is there or not: server-side apply. */
export const IS_APPLIED = {
  method: "PATCH",
  query: { fieldManager: "internevo", force: "true" },
  contentType: "application/apply-patch+yaml",
} as const;
export const JOBSET_API = "jobset.x-k8s.io/v1alpha2";
export const SHARED_MEMORY_PATH = "/dev/shm";
/** The label that finds everything of a launch. */
export const LAUNCH_LABEL = "internevo.dev/launch";
/** The only replicated job of a JobSet. */
const RANKS = "ranks";
/** A node that is lost keeps its pods no longer: the supervisor has another attempt to begin. */
const LOST_NODE_SECONDS = 30;

/** What a launch asks for. */
export interface JobSetRequest extends Size {
  /** Finds the JobSet again: no other launch has it. */
  readonly marker: string;
  /** What is launched, for people. */
  readonly label: string;
  readonly program: string;
  readonly threadsPerRank: number;
  readonly settings: KubernetesSettings;
  /** On a volume that all pods share: its script is what they run. */
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
}

export const jobSetName = (marker: string): string => `internevo-${marker}`;

/** How the pod of an index calls itself, and is found by the headless service. */
export const podHostname = (marker: string, index: number): string =>
  `${jobSetName(marker)}-${RANKS}-0-${index}`;

const given = <T extends object>(value: T): { [Key in keyof T]?: NonNullable<T[Key]> } =>
  Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined)) as {
    [Key in keyof T]?: NonNullable<T[Key]>;
  };

/** A quantity as the API server writes it too, so that nothing differs when it is applied again. */
export const cpuQuantity = (cpus: number): string =>
  Number.isInteger(cpus) ? String(cpus) : `${Math.ceil(cpus * 1000)}m`;

function resourcesOf({ settings, ranksPerNode, threadsPerRank }: JobSetRequest) {
  const { gpuResource, cpuPerRank = threadsPerRank, memoryPerNodeBytes, resources } = settings;
  // Kubernetes wants the same request and limit of what cannot be shared out twice.
  const whole = {
    ...(gpuResource === undefined ? {} : { [gpuResource]: String(ranksPerNode) }),
    ...(memoryPerNodeBytes === undefined ? {} : { memory: String(memoryPerNodeBytes) }),
    ...resources,
  };
  return {
    requests: { cpu: cpuQuantity(cpuPerRank * ranksPerNode), ...whole },
    ...(Object.keys(whole).length === 0 ? {} : { limits: whole }),
  };
}

function environmentOf({ settings, marker, threadsPerRank, environment }: JobSetRequest) {
  const values = {
    // The image has what the service's own environment would say.
    ...rankEnvironment({ base: {}, marker, temporaryDirectory: "/tmp", threadsPerRank }),
    OMPI_ALLOW_RUN_AS_ROOT: "1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1",
    ...environment,
    ...settings.environment,
  };
  return [
    ...Object.entries(values).map(([name, value]) => ({ name, value })),
    { name: "POD_UID", valueFrom: { fieldRef: { fieldPath: "metadata.uid" } } },
  ];
}

function containerOf(request: JobSetRequest) {
  const { settings, directory } = request;
  const { volumes = [], secrets = [], lockMemory = false } = settings;
  return {
    name: RANKS,
    image: settings.image,
    ...given({ imagePullPolicy: settings.imagePullPolicy }),
    command: ["/bin/bash", `${directory}/${POD_FILES.script}`],
    env: environmentOf(request),
    ...(secrets.length === 0 ? {} : { envFrom: secrets.map((name) => ({ secretRef: { name } })) }),
    resources: resourcesOf(request),
    ...(lockMemory ? { securityContext: { capabilities: { add: ["IPC_LOCK"] } } } : {}),
    volumeMounts: [
      { name: "shared-memory", mountPath: SHARED_MEMORY_PATH },
      ...volumes.map(({ mountPath, readOnly }, index) => ({
        name: `volume-${index}`,
        mountPath,
        ...given({ readOnly }),
      })),
    ],
  };
}

function podOf(request: JobSetRequest) {
  const { settings } = request;
  const { volumes = [], tolerations = [], imagePullSecrets = [], hostNetwork = false } = settings;
  return {
    restartPolicy: "Never",
    terminationGracePeriodSeconds: saveSecondsOf(settings),
    automountServiceAccountToken: false,
    ...(imagePullSecrets.length === 0
      ? {}
      : { imagePullSecrets: imagePullSecrets.map((name) => ({ name })) }),
    ...given({
      serviceAccountName: settings.serviceAccount,
      priorityClassName: settings.priorityClass,
      nodeSelector: settings.nodeSelector,
    }),
    ...(hostNetwork ? { hostNetwork, dnsPolicy: "ClusterFirstWithHostNet" } : {}),
    tolerations: [
      ...tolerations,
      ...["not-ready", "unreachable"].map((state) => ({
        key: `node.kubernetes.io/${state}`,
        operator: "Exists",
        effect: "NoExecute",
        tolerationSeconds: LOST_NODE_SECONDS,
      })),
    ],
    // A plan's nodes are nodes: two pods of a launch do not share one.
    affinity: {
      podAntiAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: [
          {
            labelSelector: { matchLabels: { [LAUNCH_LABEL]: request.marker } },
            topologyKey: "kubernetes.io/hostname",
          },
        ],
      },
    },
    containers: [containerOf(request)],
    volumes: [
      {
        name: "shared-memory",
        emptyDir: {
          medium: "Memory",
          ...(settings.sharedMemoryBytes === undefined
            ? {}
            : { sizeLimit: String(settings.sharedMemoryBytes) }),
        },
      },
      ...volumes.map(({ claim, hostPath, readOnly }, index) => ({
        name: `volume-${index}`,
        ...(claim === undefined
          ? { hostPath: { path: hostPath, type: "Directory" } }
          : { persistentVolumeClaim: { claimName: claim, ...given({ readOnly }) } }),
      })),
    ],
  };
}

/**
 * The JobSet of a launch: a pod for each node, in the order of their indices. Nothing in it starts anything again:
 * a rank that is lost means another attempt, from a checkpoint whose steps the supervisor has compared.
 */
export function jobSetOf(request: JobSetRequest) {
  const { marker, nodes, settings } = request;
  const { queue, queuePriorityClass, requiredTopology, preferredTopology } = settings;
  const labels = {
    "app.kubernetes.io/name": "internevo",
    "app.kubernetes.io/component": request.program,
    "app.kubernetes.io/managed-by": "internevo",
    [LAUNCH_LABEL]: marker,
  };
  const topology = given({
    "kueue.x-k8s.io/podset-required-topology": requiredTopology,
    "kueue.x-k8s.io/podset-preferred-topology": preferredTopology,
  });
  return {
    apiVersion: JOBSET_API,
    kind: "JobSet",
    metadata: {
      name: jobSetName(marker),
      namespace: namespaceOf(settings),
      labels: {
        ...labels,
        ...given({ "kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": queuePriorityClass }),
      },
      annotations: { "internevo.dev/label": request.label },
    },
    spec: {
      network: { enableDNSHostnames: true, publishNotReadyAddresses: true },
      successPolicy: { operator: "All" },
      failurePolicy: { maxRestarts: 0 },
      replicatedJobs: [
        {
          name: RANKS,
          replicas: 1,
          template: {
            spec: {
              completionMode: "Indexed",
              completions: nodes,
              parallelism: nodes,
              backoffLimit: 0,
              template: {
                metadata: { labels, annotations: { ...settings.annotations, ...topology } },
                spec: podOf(request),
              },
            },
          },
        },
      ],
    },
  };
}

export type JobSetObject = ReturnType<typeof jobSetOf>;
