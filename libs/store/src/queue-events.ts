import { DEFAULT_PRIORITY, type QueuePriority } from "@internevo/domain";
import { jobEvent, type JobSubject } from "./events.ts";
import { jobOfLease } from "./leases.ts";
import type { OutboxMessage } from "./outbox.ts";
import type { WaitingCommand } from "./schema/messages.ts";
import type { GpuWork } from "./usage.ts";

/** What of a request for hosts its events tell. */
interface Asked {
  readonly owner: string;
  readonly hosts: readonly string[];
  readonly priority?: QueuePriority;
  readonly command: WaitingCommand;
}

/** Work that was put into the queue. */
export interface Joined {
  readonly request: Asked;
  /** Undefined: it is neither a job nor a workload. */
  readonly work: GpuWork | undefined;
  /** It did not wait before. */
  readonly isNew: boolean;
}

/** Only jobs are told of: scheduled measurements wait unseen. */
function subjectOf({ owner, command }: Asked, work: GpuWork | undefined): JobSubject | undefined {
  const jobId = jobOfLease(owner);
  if (jobId === undefined || !work) return undefined;
  return { jobId, jobName: work.name, project: work.project, traceparent: command.traceparent };
}

/** Work begins to wait. */
export function waitingEvent({ request, work }: Joined): OutboxMessage | undefined {
  const { hosts, priority = DEFAULT_PRIORITY } = request;
  const job = subjectOf(request, work);
  if (!job || !work || priority === "scheduled") return undefined;
  return jobEvent(job, "queue.waiting", { hosts: [...hosts], gpus: work.gpus, priority });
}

/** Work has its hosts. */
export function grantedEvent(
  waited: Asked & { readonly waitedSeconds: number },
  work: GpuWork | undefined,
): OutboxMessage | undefined {
  const job = subjectOf(waited, work);
  if (!job || !work) return undefined;
  return jobEvent(job, "queue.granted", {
    hosts: [...waited.hosts],
    gpus: work.gpus,
    waitedSeconds: waited.waitedSeconds,
  });
}

/** Work gave its hosts up, and waits for them again. */
export function gaveWayEvent({ request, work }: Joined, gaveWayTo: string | null): OutboxMessage | undefined {
  const job = subjectOf(request, work);
  if (!job || !work) return undefined;
  return jobEvent(job, "queue.gave-way", { hosts: [...request.hosts], gpus: work.gpus, gaveWayTo });
}
