import type { KubernetesApi } from "./api.ts";
import { jobSetsPath, podsPath, type LaunchedJobSet } from "./job.ts";
import type { Seen } from "./reasons.ts";
import {
  isLostPod,
  isOver,
  nodeFault,
  type JobSetStatus,
  type Node,
  type Pod,
  type Workload,
} from "./status.ts";
import { WatchedNodes } from "./watched-nodes.ts";
import { WatchedList } from "./watched.ts";

const KUEUE = "kueue.x-k8s.io";

/** Keeps what the API server tells of one launch: JobSet, pods, nodes, and the workload that Kueue has made of it. */
export class LaunchWatch {
  readonly #api: KubernetesApi;
  readonly #job: LaunchedJobSet;
  readonly #jobSets: WatchedList<JobSetStatus>;
  readonly #pods: WatchedList<Pod>;
  readonly #nodes: WatchedNodes;
  #workloads: WatchedList<Workload> | undefined;
  #isOver = false;

  constructor(api: KubernetesApi, job: LaunchedJobSet) {
    this.#api = api;
    this.#job = job;
    const { namespace } = job;
    this.#jobSets = new WatchedList(api, jobSetsPath(namespace), {
      fieldSelector: `metadata.name=${job.name}`,
    });
    this.#pods = new WatchedList(api, podsPath(namespace), job.selection);
    this.#nodes = new WatchedNodes(api);
  }

  /** Begins to watch Kueue's workload: it is found by the JobSet's identity. */
  async withWorkload(): Promise<void> {
    const { uid, settings } = this.#job.record;
    if (settings.queue === undefined || uid === null || this.#workloads) return;
    const group = await this.#api.find<{ readonly preferredVersion: { readonly groupVersion: string } }>({
      path: `/apis/${KUEUE}`,
    });
    if (!group || this.#isOver) return;
    this.#workloads ??= new WatchedList(
      this.#api,
      `/apis/${group.preferredVersion.groupVersion}/namespaces/${this.#job.namespace}/workloads`,
      { labelSelector: `${KUEUE}/job-uid=${uid}` },
    );
  }

  get seen(): Seen {
    return {
      jobSet: this.#jobSets.objects[0],
      workload: this.#workloads?.objects[0],
      pods: this.#pods.objects,
    };
  }

  get nodes(): readonly Node[] {
    return this.#nodes.nodes;
  }

  /** Why JobSet and pods may not be as they are told; undefined: they are. */
  get away(): string | undefined {
    return this.#jobSets.away ?? this.#pods.away;
  }

  /** Whether pods were made, and nothing of them runs any more. */
  get isIdle(): boolean {
    return this.#pods.objects.every(isOver);
  }

  /** Whether a pod has gone with its node. Nobody may ever tell of its end. */
  get hasLostPod(): boolean {
    return this.#pods.objects.some((pod) => isLostPod(pod, this.nodes));
  }

  /** Nodes of its pods that can take none now, in words. */
  get nodesOut(): readonly string[] {
    const used = new Set(this.#pods.objects.map(({ spec }) => spec?.nodeName));
    return this.nodes.flatMap((node) => (used.has(node.metadata.name) ? (nodeFault(node) ?? []) : []));
  }

  close(): void {
    this.#isOver = true;
    for (const list of [this.#jobSets, this.#pods, this.#nodes, this.#workloads]) list?.close();
  }
}
