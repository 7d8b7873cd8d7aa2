import type { Named } from "./watched.ts";

/** What is read of the API's objects, as it writes them. */
export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
  readonly message?: string;
}

export interface JobSetStatus extends Named {
  readonly metadata: Named["metadata"] & { readonly deletionTimestamp?: string };
  readonly spec?: { readonly suspend?: boolean };
  readonly status?: { readonly conditions?: readonly Condition[]; readonly terminalState?: string };
}

export interface Workload extends Named {
  readonly spec?: { readonly active?: boolean; readonly queueName?: string };
  readonly status?: { readonly conditions?: readonly Condition[] };
}

interface ContainerStatus {
  readonly state?: {
    readonly waiting?: { readonly reason?: string; readonly message?: string };
    readonly terminated?: { readonly reason?: string; readonly exitCode: number; readonly message?: string };
  };
}

export interface Pod extends Named {
  readonly metadata: Named["metadata"] & { readonly deletionTimestamp?: string };
  readonly spec?: { readonly nodeName?: string; readonly nodeSelector?: Readonly<Record<string, string>> };
  readonly status?: {
    readonly phase?: string;
    readonly reason?: string;
    readonly message?: string;
    readonly conditions?: readonly Condition[];
    readonly containerStatuses?: readonly ContainerStatus[];
  };
}

export interface Node extends Named {
  readonly metadata: Named["metadata"] & { readonly labels?: Readonly<Record<string, string>> };
  readonly spec?: { readonly unschedulable?: boolean };
  readonly status?: {
    readonly conditions?: readonly Condition[];
    readonly allocatable?: Readonly<Record<string, string>>;
  };
}

export const conditionOf = (
  { status }: { readonly status?: { readonly conditions?: readonly Condition[] } },
  type: string,
): Condition | undefined => status?.conditions?.find((each) => each.type === type);

export const isTrue = (condition: Condition | undefined): boolean => condition?.status === "True";

/** Whether nothing of a pod runs any more. */
export const isOver = ({ status }: Pod): boolean =>
  status?.phase === "Succeeded" || status?.phase === "Failed";

/** Why a node can take no pod; undefined: it can. */
export function nodeFault(node: Node): string | undefined {
  const ready = conditionOf(node, "Ready");
  const { name } = node.metadata;
  if (!isTrue(ready))
    return `${name} is not ready${ready?.message === undefined ? "" : ` (${ready.message})`}`;
  return node.spec?.unschedulable === true ? `${name} is cordoned` : undefined;
}

/**
 * Whether a pod is on a node that cannot confirm its end: it is not ready, or gone. No node is known where they may
 * not be listed.
 */
export const isOnLostNode = ({ spec }: Pod, nodes: readonly Node[]): boolean => {
  const { nodeName } = spec ?? {};
  if (nodeName === undefined || nodes.length === 0) return false;
  const node = nodes.find(({ metadata }) => metadata.name === nodeName);
  return node === undefined || !isTrue(conditionOf(node, "Ready"));
};

/** Whether Kubernetes has taken a pod away from a lost node: should that come back, it would end the pod. */
export const isLostPod = (pod: Pod, nodes: readonly Node[]): boolean =>
  pod.metadata.deletionTimestamp !== undefined && !isOver(pod) && isOnLostNode(pod, nodes);

const MOST_NAMED = 16;

/** Names in a sentence: some of them where they are many. */
export const namesInWords = (names: readonly string[]): string =>
  names.length <= MOST_NAMED
    ? names.join(", ")
    : `${names.slice(0, MOST_NAMED).join(", ")} and ${names.length - MOST_NAMED} more`;
