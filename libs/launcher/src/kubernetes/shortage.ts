import { formatSeconds } from "@internevo/domain";
import type { GivenUp } from "../scheduled/followed-ranks.ts";
import type { Reason } from "./reasons.ts";
import type { KubernetesSettings } from "./settings.ts";
import { namesInWords, nodeFault, type Node } from "./status.ts";

const NODE_LOSS_SECONDS = 600;
/** Reasons come and go while controllers look at a job for the first time: those that stay so long count. */
export const LASTING_SECONDS = 30;

/** Nodes that the settings let pods on, whether they can take any now or not. */
export const nodesFor = (
  nodes: readonly Node[],
  { nodeSelector = {}, gpuResource }: Pick<KubernetesSettings, "nodeSelector" | "gpuResource">,
): readonly Node[] =>
  nodes.filter(
    ({ metadata, status }) =>
      Object.entries(nodeSelector).every(([key, value]) => metadata.labels?.[key] === value) &&
      (gpuResource === undefined || (status?.allocatable?.[gpuResource] ?? "0") !== "0"),
  );

/** What a job that waits is judged by. */
export interface Waiting {
  readonly reason: Reason;
  /** Every node of the cluster; empty where they cannot be listed. */
  readonly nodes: readonly Node[];
  /** Kueue has admitted it, or is not asked: it is the scheduler's to place. */
  readonly isAdmitted: boolean;
}

/** Watches a job that waits: tells when waiting on is of no use. */
export class WaitWatch {
  readonly #settings: KubernetesSettings;
  readonly #wanted: number;
  readonly #submittedAt: number;
  #lasting: { readonly words: string; readonly since: number } | undefined;
  #shortSince: number | undefined;

  /** @param submittedAt milliseconds since the epoch. */
  constructor(settings: KubernetesSettings, wanted: number, submittedAt: number) {
    this.#settings = settings;
    this.#wanted = wanted;
    this.#submittedAt = submittedAt;
  }

  /** It runs: what was against it is over. */
  runs(): void {
    this.#lasting = undefined;
    this.#shortSince = undefined;
  }

  /** @returns why the job is to be taken back; undefined while it may wait. */
  look(waiting: Waiting): GivenUp | undefined {
    return this.#shortage(waiting) ?? this.#never(waiting.reason) ?? this.#tooLong(waiting.reason);
  }

  #shortage({ reason, nodes, isAdmitted }: Waiting): GivenUp | undefined {
    const { nodeLossSeconds = NODE_LOSS_SECONDS } = this.#settings;
    const suited = nodesFor(nodes, this.#settings);
    const faults = suited.flatMap((node) => nodeFault(node) ?? []);
    const usable = suited.length - faults.length;
    const isOfNodes = isAdmitted || reason.isForWantOfNodes === true;
    if (nodes.length === 0 || !isOfNodes || usable >= this.#wanted) {
      this.#shortSince = undefined;
      return undefined;
    }
    this.#shortSince ??= performance.now();
    const seconds = (performance.now() - this.#shortSince) / 1000;
    if (seconds < nodeLossSeconds) return undefined;
    const out = faults.length === 0 ? "" : `: ${namesInWords(faults)}`;
    return {
      failure: {
        code: "not-started",
        message: `it needs ${this.#wanted} nodes, and ${usable} can take pods since ${formatSeconds(seconds)}${out}`,
        remedy:
          "bring nodes back and let the job go on (internevo resume), or use fewer nodes; " +
          "with cluster.minNodes training goes on by itself",
      },
      nodesLeft: usable,
    };
  }

  #never({ words, remedy }: Reason): GivenUp | undefined {
    if (remedy === undefined) {
      this.#lasting = undefined;
      return undefined;
    }
    if (this.#lasting?.words !== words) this.#lasting = { words, since: performance.now() };
    return performance.now() - this.#lasting.since < LASTING_SECONDS * 1000
      ? undefined
      : { failure: { code: "not-started", message: `Kubernetes will not start it: ${words}`, remedy } };
  }

  #tooLong({ words }: Reason): GivenUp | undefined {
    const { queueLimitSeconds } = this.#settings;
    if (queueLimitSeconds === undefined || Date.now() - this.#submittedAt < queueLimitSeconds * 1000)
      return undefined;
    return {
      failure: {
        code: "not-started",
        message: `Kubernetes did not start it within ${formatSeconds(queueLimitSeconds)}: ${words}`,
        remedy: "raise queueLimitSeconds of the cluster's kubernetes settings, or ask for fewer nodes",
      },
    };
  }
}
