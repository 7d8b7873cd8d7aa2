import type { KubernetesApi } from "./api.ts";
import { NODES_PATH } from "./job.ts";
import type { Node } from "./status.ts";
import { WatchedList } from "./watched.ts";

/** What is read of a node: an API server tells ten times as much. */
const keptOf = ({ metadata, spec, status }: Node): Node => ({
  metadata: {
    name: metadata.name,
    uid: metadata.uid,
    ...(metadata.labels ? { labels: metadata.labels } : {}),
  },
  spec: spec?.unschedulable === true ? { unschedulable: true } : {},
  status: {
    conditions: (status?.conditions ?? []).filter(({ type }) => type === "Ready"),
    allocatable: status?.allocatable ?? {},
  },
});

interface Shared {
  readonly list: WatchedList<Node>;
  users: number;
}

/** Of this process, by how their API servers are reached. */
const everyCluster = new Map<string, Shared>();

/**
 * The nodes of a cluster. They are watched once, however many launches follow them: a cluster may have thousands of
 * nodes, and a supervisor hundreds of launches.
 */
export class WatchedNodes {
  readonly #key: string;
  readonly #shared: Shared;
  #isOpen = true;

  constructor(api: KubernetesApi) {
    this.#key = api.identity;
    const shared = everyCluster.get(this.#key) ?? {
      list: new WatchedList<Node>(api, NODES_PATH, {}, keptOf),
      users: 0,
    };
    shared.users += 1;
    everyCluster.set(this.#key, shared);
    this.#shared = shared;
  }

  /** None until they have been listed, and where the account may not list them. */
  get nodes(): readonly Node[] {
    return this.#shared.list.objects;
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#shared.users -= 1;
    if (this.#shared.users > 0) return;
    this.#shared.list.close();
    everyCluster.delete(this.#key);
  }
}
