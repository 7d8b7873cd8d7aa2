import { formatSeconds, LET_IT_GO_ON } from "@internevo/domain";
import type { GivenUp } from "../scheduled/followed-ranks.ts";
import type { SlurmControl, SlurmJob } from "./control.ts";
import { describeNode, reasonWords, remedyOf } from "./words.ts";
import type { SlurmSettings } from "./settings.ts";

const NODE_LOSS_SECONDS = 600;
/**
 * Reasons and refusals come and go while Slurm looks at a job for the first time, or its controller starts:
 * those that stay so long count.
 */
export const LASTING_SECONDS = 10;
/** What Slurm says when it has too few nodes for a job, which it does not keep apart from busy ones. */
const MAY_LACK_NODES =
  /^(Resources|NodeDown|PartitionNodeLimit|PartitionConfig|BadConstraints|ReqNodeNotAvail|Nodes[ _]required)/;

/** Watches a job that waits: tells when waiting on is of no use. */
export class QueueWatch {
  readonly #control: SlurmControl;
  readonly #settings: SlurmSettings;
  readonly #nodes: number;
  readonly #submittedAt: number;
  #lasting: { readonly why: string; readonly since: number } | undefined;
  #shortSince: number | undefined;

  /** @param submittedAt milliseconds since the epoch. */
  constructor(control: SlurmControl, settings: SlurmSettings, nodes: number, submittedAt: number) {
    this.#control = control;
    this.#settings = settings;
    this.#nodes = nodes;
    this.#submittedAt = submittedAt;
  }

  /** @returns why the job is to be taken back; undefined while it may wait. */
  async look(job: SlurmJob): Promise<GivenUp | undefined> {
    const { queueLimitSeconds, nodeLossSeconds = NODE_LOSS_SECONDS } = this.#settings;
    const now = performance.now();
    const short = MAY_LACK_NODES.test(job.reason) ? await this.#shortage(job.partition) : undefined;
    if (!short) this.#shortSince = undefined;
    else {
      this.#shortSince ??= now;
      if (short.all >= this.#nodes && now - this.#shortSince >= nodeLossSeconds * 1000) {
        const message = `Slurm job ${job.id} needs ${this.#nodes} nodes, and ${short.usable} of partition ${job.partition} can take jobs since ${formatSeconds((now - this.#shortSince) / 1000)}${short.out === "" ? "" : `: ${short.out}`}`;
        const remedy =
          short.usable > 0
            ? `bring the nodes back and let the job go on (internevo resume), or submit it again with nodes: ${short.usable} or fewer: it can begin with this one's checkpoint (initialWeights); with cluster.minNodes training goes on by itself`
            : `bring the nodes back, and ${LET_IT_GO_ON}`;
        return { failure: { code: "not-started", message, remedy }, nodesLeft: short.usable };
      }
    }
    const never = short
      ? short.all < this.#nodes && {
          why: `it needs ${this.#nodes} nodes, and partition ${job.partition} has ${short.all}`,
          remedy: `use ${short.all} nodes or fewer, or another partition in the cluster's slurm settings`,
        }
      : remedyOf(job.reason) !== undefined && {
          why: `${reasonWords(job.reason)} (${job.reason})`,
          remedy: remedyOf(job.reason) as string,
        };
    if (!never) this.#lasting = undefined;
    else {
      if (this.#lasting?.why !== never.why) this.#lasting = { why: never.why, since: now };
      if (now - this.#lasting.since >= LASTING_SECONDS * 1000)
        return {
          failure: {
            code: "not-started",
            message: `Slurm will never start job ${job.id}: ${never.why}`,
            remedy: never.remedy,
          },
          ...(short ? { nodesLeft: short.usable } : {}),
        };
    }
    if (queueLimitSeconds !== undefined && Date.now() - this.#submittedAt >= queueLimitSeconds * 1000) {
      return {
        failure: {
          code: "not-started",
          message:
            `Slurm did not start job ${job.id} within ` +
            `${formatSeconds(queueLimitSeconds)}: ${reasonWords(job.reason)}`,
          remedy:
            "raise queueLimitSeconds of the cluster's slurm settings, or ask for fewer nodes or less time",
        },
      };
    }
    return undefined;
  }

  async #shortage(
    partition: string,
  ): Promise<{ readonly all: number; readonly usable: number; readonly out: string } | undefined> {
    const nodes = (await this.#control.nodes()).filter((node) => node.partitions.includes(partition));
    const usable = nodes.filter((node) => node.usable).length;
    if (usable >= this.#nodes) return undefined;
    const out = nodes.filter((node) => !node.usable);
    return {
      all: nodes.length,
      usable,
      out: [
        ...out.slice(0, 8).map(describeNode),
        ...(out.length > 8 ? [`and ${out.length - 8} more`] : []),
      ].join(", "),
    };
  }
}
