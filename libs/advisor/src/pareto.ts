import { withoutHeadroom, type Candidate, type JobSpec, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";

export interface ParetoOptions {
  /** Points at most; the front is cut at its slow end. */
  readonly points?: number;
  readonly signal?: AbortSignal;
}

/** Lets whoever waits for a signal, or draws progress, have a turn between two searches. */
const pause = (): Promise<void> => new Promise((settle) => setTimeout(settle));

/**
 * The Pareto-optimal plans: from the fastest one that fits the cluster down to
 * the one that needs the least memory. Exact: each point is the fastest plan below the memory of the one
 * before (ε-constraint method).
 */
export async function paretoFront(
  given: JobSpec,
  profile: Profile,
  { points = 1000, signal }: ParetoOptions = {},
): Promise<Candidate[]> {
  const job = withoutHeadroom(given);
  const front: Candidate[] = [];
  let limit = job.cluster.memoryPerGpuBytes;
  while (front.length < points) {
    await pause();
    signal?.throwIfAborted();
    const best = planJob({ ...job, cluster: { ...job.cluster, memoryPerGpuBytes: limit } }, profile, {
      top: 1,
    }).candidates[0];
    if (best === undefined) break;
    front.push(best);
    limit = best.predicted.peakMemoryBytes - 1;
    if (limit < 1) break;
  }
  return front;
}
