import {
  conditionOf,
  isOver,
  isTrue,
  type Condition,
  type JobSetStatus,
  type Pod,
  type Workload,
} from "./status.ts";

/** Why a job does not run, for people. `remedy`: what to do where waiting alone does not help. */
export interface Reason {
  readonly words: string;
  readonly remedy?: string;
  /** The nodes that are there have no place for it, whatever others use: those that are lost count. */
  readonly isForWantOfNodes?: true;
}

const lasting = (words: string, remedy: string): Reason => ({ words, remedy });
const passing = (words: string): Reason => ({ words });

const QUEUE_REMEDY =
  "change queue of the cluster's kubernetes settings, or have whoever runs Kueue set it up";

/** Reasons for a workload without a reservation, or without admission: Kueue's, but for NoSuchTopology. */
const KUEUE: Readonly<Record<string, Reason>> = {
  WaitingForQuota: passing("what its queue may use is in use"),
  ExceedsMaxQuota: lasting(
    "it asks for more than its queue may ever use",
    "use fewer nodes, another queue, or have the quota of its queue raised",
  ),
  NoMatchingFlavor: lasting(
    "its queue has no nodes as it wants them",
    "change nodeSelector, tolerations or queue of the cluster's kubernetes settings",
  ),
  TopologyPlacementFailed: {
    words: "no part of the topology has room for all of its pods",
    isForWantOfNodes: true,
  },
  NoSuchTopology: lasting(
    "its queue knows no such part of a topology",
    "change requiredTopology, preferredTopology or queue of the cluster's kubernetes settings",
  ),
  WaitingForPreemptedWorkloads: passing("jobs of lower priority are giving their place to it"),
  Misconfigured: lasting("its queue is not there, or not set up", QUEUE_REMEDY),
  Suspended: passing("its queue is stopped"),
  PendingEvaluation: passing("Kueue has not decided yet"),
  WaitingForPodsReady: passing("Kueue waits until the pods of others are ready"),
  UnsatisfiedAdmissionChecks: passing("a check before its admission has not passed"),
  PendingDelayedTopologyRequests: passing("its place in the topology is not decided yet"),
  OnHold: passing("its queue is on hold"),
  Inadmissible: passing("its queue cannot admit it now"),
  Pending: passing("its queue does not admit it now"),
  Waiting: passing("it waits for its turn"),
};

/** Unless a feature of Kueue is switched on, its reasons are general, and only the message tells more. */
const GENERAL = ["Pending", "Inadmissible", "Waiting"];
const MESSAGES: readonly (readonly [RegExp, string])[] = [
  [/insufficient unused quota/, "WaitingForQuota"],
  [/insufficient quota .*> maximum capacity/, "ExceedsMaxQuota"],
  [/Queue \S+ doesn't exist/, "Misconfigured"],
  [/Queue \S+ is (inactive|stopped)/, "Suspended"],
  [/topology .*fit/, "TopologyPlacementFailed"],
  [/no requested topology level|does not support TopologyAwareScheduling/, "NoSuchTopology"],
  [/untolerated taint|doesn't match node affinity|unavailable in ClusterQueue/, "NoMatchingFlavor"],
];

/** The reason that a condition of Kueue has, by its message where it is a general one. */
const kueuesReason = ({ reason = "PendingEvaluation", message = "" }: Partial<Condition>): string =>
  (GENERAL.includes(reason) ? MESSAGES.find(([words]) => words.test(message))?.[1] : undefined) ?? reason;

/** What a container that does not run yet waits for. */
const CONTAINER: Readonly<Record<string, Reason>> = {
  ContainerCreating: passing("its container is being made"),
  PodInitializing: passing("its container is being made"),
  ...Object.fromEntries(
    ["ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable"].map((reason) => [
      reason,
      lasting(
        "its image cannot be pulled",
        "change image or imagePullSecrets of the cluster's kubernetes settings",
      ),
    ]),
  ),
  InvalidImageName: lasting(
    "its image has no valid name",
    "change image of the cluster's kubernetes settings",
  ),
  ErrImageNeverPull: lasting(
    "its image is not on the node, and may not be pulled",
    "change imagePullPolicy of the cluster's kubernetes settings, or load the image on every node",
  ),
  CreateContainerConfigError: lasting(
    "a secret that it names is not there",
    "create it in the namespace, or change secrets of the cluster's kubernetes settings",
  ),
  CreateContainerError: lasting(
    "its container cannot be made",
    "see the events of the pod: kubectl describe pod",
  ),
  RunContainerError: lasting(
    "its container cannot be started",
    "see the events of the pod: kubectl describe pod",
  ),
};

/** Reasons of the scheduler. */
const SCHEDULING: Readonly<Record<string, Reason>> = {
  Unschedulable: passing("no node has room for it"),
  SchedulingGated: passing("a gate holds it back from the scheduler"),
};

/** Kueue fills nodes, and knows nothing of pods that do not share one. */
const CROWDED = lasting(
  "its topology puts several of its pods on one node",
  "let each pod ask for more than half of a node: all of its GPUs, or more by cpuPerRank or memoryPerNodeBytes of " +
    "the cluster's kubernetes settings",
);

/** Whether a pod has been given a node on which another one of its launch is. */
const isCrowded = ({ spec }: Pod, { message = "" }: Condition): boolean =>
  spec?.nodeSelector?.["kubernetes.io/hostname"] !== undefined && /pod anti-affinity/.test(message);

const known = (table: Readonly<Record<string, Reason>>, reason: string | undefined): Reason =>
  (reason !== undefined && Object.hasOwn(table, reason) ? table[reason] : undefined) ??
  passing(reason ?? "nobody has said why");

const inFull = (reason: Reason, message: string | undefined): Reason => ({
  ...reason,
  words: message === undefined || message === "" ? reason.words : `${reason.words} (${message})`,
});

/** Why Kueue holds a workload back; undefined: it does not. */
function heldByKueue(workload: Workload): Reason | undefined {
  if (workload.spec?.active === false) {
    const evicted = conditionOf(workload, "Evicted");
    return inFull(
      lasting("Kueue has deactivated it", "set active of its workload, or submit the job again"),
      isTrue(evicted) ? evicted?.message : undefined,
    );
  }
  const admitted = conditionOf(workload, "Admitted");
  if (isTrue(admitted)) return undefined;
  const reserved = conditionOf(workload, "QuotaReserved");
  const held: Condition | undefined = isTrue(reserved) ? admitted : reserved;
  return inFull(known(KUEUE, kueuesReason(held ?? {})), held?.message);
}

/** Why a pod does not run; undefined: it runs, or is over. */
function heldPod(pod: Pod): Reason | undefined {
  if (isOver(pod) || pod.status?.phase === "Running") return undefined;
  const scheduled = conditionOf(pod, "PodScheduled");
  if (scheduled?.status === "False")
    return inFull(
      isCrowded(pod, scheduled) ? CROWDED : known(SCHEDULING, scheduled.reason),
      scheduled.message,
    );
  const waiting = pod.status?.containerStatuses?.find(({ state }) => state?.waiting)?.state?.waiting;
  if (waiting) return inFull(known(CONTAINER, waiting.reason), waiting.message);
  return passing(
    pod.spec?.nodeName === undefined
      ? "the scheduler has not looked at it yet"
      : "its node has not taken it up yet",
  );
}

/** The reason of most of the pods that do not run; one for which waiting does not help goes before others. */
function dominant(pods: readonly Pod[], nodes: number): Reason | undefined {
  const counts = new Map<string, { readonly reason: Reason; count: number }>();
  for (const pod of pods) {
    const reason = heldPod(pod);
    if (!reason) continue;
    const counted = counts.get(reason.words) ?? { reason, count: 0 };
    counted.count += 1;
    counts.set(reason.words, counted);
  }
  const weight = ({ reason, count }: { readonly reason: Reason; readonly count: number }): number =>
    (reason.remedy === undefined ? 0 : nodes) + count;
  const [first] = [...counts.values()].sort((a, b) => weight(b) - weight(a));
  if (!first) return undefined;
  const { reason, count } = first;
  return {
    ...reason,
    words: count === 1 && nodes === 1 ? reason.words : `${count} of ${nodes} pods: ${reason.words}`,
  };
}

/** Everything that the API server tells of a launch. */
export interface Seen {
  readonly jobSet: JobSetStatus | undefined;
  /** Kueue's; undefined where Kueue has made none, or cannot be asked. */
  readonly workload: Workload | undefined;
  readonly pods: readonly Pod[];
}

/** Whether every pod of a launch runs, or has run. */
export const allRun = ({ pods }: Pick<Seen, "pods">, nodes: number): boolean =>
  pods.filter((pod) => pod.status?.phase === "Running" || isOver(pod)).length >= nodes;

/**
 * Why a launch does not run. @param queue Kueue's, where the cluster's settings name one. @returns undefined: it runs,
 * or is over.
 */
export function waitingReason(
  { jobSet, workload, pods }: Seen,
  { queue, nodes }: { readonly queue: string | undefined; readonly nodes: number },
): Reason | undefined {
  if (jobSet?.status?.terminalState !== undefined && jobSet.status.terminalState !== "") return undefined;
  const held = workload && heldByKueue(workload);
  if (held)
    return { ...held, words: `in Kueue's queue${queue === undefined ? "" : ` ${queue}`}: ${held.words}` };
  if (jobSet?.spec?.suspend === true && workload === undefined)
    return passing(
      queue === undefined ? "somebody has suspended its JobSet" : "Kueue has not taken it up yet",
    );
  if (pods.length < nodes && !pods.some(isOver))
    return dominant(pods, nodes) ?? passing("its pods have not been made yet");
  return dominant(pods, nodes);
}

/** Why pods were taken away. */
const DISRUPTIONS: Readonly<Record<string, string>> = {
  PreemptionByScheduler: "a pod of higher priority took its place",
  DeletionByTaintManager: "its node was lost, or tainted",
  EvictionByEvictionAPI: "it was evicted, as when a node is drained",
  DeletionByPodGC: "its node is gone",
  TerminationByKubelet: "its node ran short of something, or shut down",
};

const ENDS: Readonly<Record<string, string>> = {
  OOMKilled: "it used more memory than it may",
  Evicted: "its node ran short of something",
  NodeLost: "its node was lost",
  Shutdown: "its node shut down",
  NodeShutdown: "its node shut down",
  UnexpectedAdmissionError: "its node could not give it the devices that it asked for",
  DeadlineExceeded: "its time limit was over",
};

/** How a pod ended that did not end well; undefined: it has not, or nothing is to be said. */
export function podEnd(pod: Pod): { readonly words: string; readonly outOfMemory: boolean } | undefined {
  const disrupted = conditionOf(pod, "DisruptionTarget");
  const terminated = pod.status?.containerStatuses?.find(({ state }) => state?.terminated)?.state?.terminated;
  const where = pod.spec?.nodeName === undefined ? "" : ` on ${pod.spec.nodeName}`;
  const told = (words: string, outOfMemory = false) => ({
    words: `pod ${pod.metadata.name}${where}: ${words}`,
    outOfMemory,
  });
  if (terminated?.reason === "OOMKilled") return told(ENDS["OOMKilled"] ?? "", true);
  if (isTrue(disrupted))
    return told(DISRUPTIONS[disrupted?.reason ?? ""] ?? disrupted?.message ?? "it was disrupted");
  if (pod.status?.phase !== "Failed") return undefined;
  const { reason, message } = pod.status;
  if (reason !== undefined)
    return told(`${ENDS[reason] ?? reason}${message === undefined || message === "" ? "" : ` (${message})`}`);
  return told(terminated === undefined ? "it failed" : `it ended with exit code ${terminated.exitCode}`);
}

/** Why Kueue took the place of a launch away; undefined: it did not. */
export function evictionWords(workload: Workload | undefined): string | undefined {
  const evicted = workload && conditionOf(workload, "Evicted");
  return isTrue(evicted)
    ? `Kueue took its place away: ${evicted?.message ?? evicted?.reason ?? ""}`
    : undefined;
}
