import { Type, type Static, type TSchema } from "typebox";

const strict = { additionalProperties: false } as const;

const LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
const NAME = `${LABEL}(\\.${LABEL})*`;
/** The part of a key behind its prefix, and the value of a label. */
const WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";
const KEY = `(${NAME}/)?${WORD}`;

const text = (pattern: string, maxLength: number) => ({ minLength: 1, maxLength, pattern: `^${pattern}$` });
/** The name of an object. */
const Name = (description: string) => Type.String({ ...text(NAME, 253), description });
/** A name, or the key of a label or annotation. */
const Key = (description: string) => Type.String({ ...text(KEY, 317), description });
const Names = (description: string) =>
  Type.Optional(Type.Array(Name(""), { maxItems: 100, description, uniqueItems: true }));
const AbsolutePath = (description: string) =>
  Type.String({ ...text("/[^\\u0000-\\u001f:]*", 4096), description });
const Bytes = (description: string) =>
  Type.Optional(Type.Integer({ minimum: 1, maximum: 2 ** 50, description }));
const Seconds = (description: string, minimum: number, maximum = 366 * 86_400) =>
  Type.Optional(Type.Integer({ minimum, maximum, description }));
const keyed = <Value extends TSchema>(value: Value, description: string) =>
  Type.Optional(Type.Record(Type.String({ pattern: `^${KEY}$` }), value, { ...strict, description }));

const Toleration = Type.Object(
  {
    key: Type.Optional(Key("of the taint; default: every taint")),
    operator: Type.Optional(Type.Enum(["Exists", "Equal"], { description: "default Equal" })),
    value: Type.Optional(Type.String({ maxLength: 63 })),
    effect: Type.Optional(Type.Enum(["NoSchedule", "PreferNoSchedule", "NoExecute"])),
    tolerationSeconds: Type.Optional(Type.Integer({ minimum: 0 })),
  },
  strict,
);

const Volume = Type.Object(
  {
    claim: Type.Optional(Name("a PersistentVolumeClaim of the namespace")),
    hostPath: Type.Optional(AbsolutePath("a folder that every node has mounted")),
    mountPath: AbsolutePath("where pods see it: the same path as the services"),
    readOnly: Type.Optional(Type.Boolean({ default: false })),
  },
  strict,
);

/**
 * How an installation reaches a Kubernetes cluster, and what its pods ask for. A job names the cluster and says how
 * many nodes and ranks.
 */
export const KubernetesSettingsSchema = Type.Object(
  {
    image: Type.String({ ...text("[A-Za-z0-9][^\\s]*", 1000), description: "of the pods" }),
    imagePullPolicy: Type.Optional(Type.Enum(["Always", "IfNotPresent", "Never"])),
    imagePullSecrets: Names("secrets with which images are pulled, by name"),
    programs: Type.Optional(
      AbsolutePath("where the image has the native programs; default: where the services have them"),
    ),
    kubeconfig: Type.Optional(AbsolutePath("how the API server is reached; default: as a pod is told")),
    context: Type.Optional(Type.String({ minLength: 1, maxLength: 253, description: "of the kubeconfig" })),
    namespace: Type.Optional(
      Type.String({ ...text(LABEL, 63), description: "of JobSets and pods; default: default" }),
    ),
    queue: Type.Optional(Name("Kueue's LocalQueue; default: Kueue is not asked")),
    queuePriorityClass: Type.Optional(Name("Kueue's WorkloadPriorityClass")),
    priorityClass: Type.Optional(Name("PriorityClass of the pods")),
    requiredTopology: Type.Optional(Key("label of nodes: all pods in one domain of it")),
    preferredTopology: Type.Optional(Key("the same, where it can be had")),
    serviceAccount: Type.Optional(Name("of the pods; they get no token of it")),
    secrets: Names("secrets whose members become variables of the ranks, by name"),
    environment: Type.Optional(
      Type.Record(Type.String({ pattern: "^[A-Za-z_][A-Za-z0-9_]*$" }), Type.String({ maxLength: 10_000 }), {
        ...strict,
        description: "variables of the ranks",
      }),
    ),
    gpuResource: Type.Optional(
      Key("resource of which a pod gets one for each rank, nvidia.com/gpu for instance; default: none"),
    ),
    cpuPerRank: Type.Optional(
      Type.Number({ minimum: 0.001, maximum: 10_000, description: "default: the threads of a rank" }),
    ),
    memoryPerNodeBytes: Bytes("memory of a pod, asked for and not exceeded; default: the namespace's"),
    sharedMemoryBytes: Bytes("bound of /dev/shm, which is memory of the pod; default: the pod's"),
    resources: keyed(
      Type.String({ ...text("[0-9]+(\\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", 40) }),
      "more resources of each pod, RDMA devices for instance",
    ),
    annotations: keyed(
      Type.String({ maxLength: 10_000 }),
      "of the pods, as network plug-ins want them for instance",
    ),
    nodeSelector: keyed(
      Type.String({ maxLength: 63, pattern: `^(${WORD})?$` }),
      "labels that nodes must have",
    ),
    tolerations: Type.Optional(Type.Array(Toleration, { maxItems: 100 })),
    hostNetwork: Type.Optional(Type.Boolean({ default: false, description: "the node's own network" })),
    lockMemory: Type.Optional(
      Type.Boolean({ default: false, description: "IPC_LOCK, which RDMA needs to register memory" }),
    ),
    volumes: Type.Optional(
      Type.Array(Volume, { maxItems: 100, description: "shared by all pods and the services" }),
    ),
    directory: Type.Optional(
      AbsolutePath(
        "for scripts, events and logs of jobs, on one of the volumes; default: the data directory",
      ),
    ),
    mpirunOptions: Type.Optional(
      Type.Array(Type.String({ ...text("[^\\u0000-\\u001f]+", 4096) }), {
        maxItems: 100,
        description: "more options of Open MPI's mpirun",
      }),
    ),
    saveSeconds: Seconds(
      "how long ranks may take to write a checkpoint when their pods are taken away; default 120",
      1,
      86_400,
    ),
    queueLimitSeconds: Seconds(
      "a job that has waited for so long is taken back; default: it may wait for ever",
      1,
    ),
    nodeLossSeconds: Seconds(
      "a job that needs more nodes than are left is taken back after so long; default 600",
      0,
    ),
  },
  strict,
);
export type KubernetesSettings = Static<typeof KubernetesSettingsSchema>;

export const KubernetesClusterSchema = Type.Object({ kubernetes: KubernetesSettingsSchema }, strict);
export type KubernetesCluster = Static<typeof KubernetesClusterSchema>;

export const namespaceOf = ({ namespace = "default" }: KubernetesSettings): string => namespace;
export const saveSecondsOf = ({ saveSeconds = 120 }: KubernetesSettings): number => saveSeconds;
