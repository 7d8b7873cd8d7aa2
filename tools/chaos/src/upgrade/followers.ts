import type { InternEvoClient } from "@internevo/client";
import type { JobStreamEvent } from "@internevo/contracts";

/** A step as a follower of a job's events heard of it. */
export interface HeardStep {
  readonly event: number;
  readonly step: number;
  readonly attempt: number;
  readonly loss: number;
}

/** What somebody heard who followed a job's events. */
export interface Heard {
  readonly name: string;
  readonly steps: HeardStep[];
  /** Events whose number was not above the one before. */
  outOfOrder: number;
  reconnects: number;
}

const stepOf = ({ id, data }: JobStreamEvent): HeardStep => ({
  event: id,
  step: data["step"] as number,
  attempt: data["attempt"] as number,
  loss: data["loss"] as number,
});

/**
 * Follows a job from its first event to its end, by the number of the last event that was heard.
 * @param hopSeconds after so long the stream is left and opened again, perhaps at another door; null: only where it
 * breaks
 */
export async function follow(
  name: string,
  client: InternEvoClient,
  jobId: string,
  hopSeconds: number | null,
): Promise<Heard> {
  const heard: Heard = { name, steps: [], outOfOrder: 0, reconnects: 0 };
  let last = 0;
  for (;;) {
    const hop = hopSeconds === null ? undefined : AbortSignal.timeout(hopSeconds * 1000);
    try {
      const events = client.jobEvents(jobId, {
        lastEventId: last,
        onReconnect: () => void (heard.reconnects += 1),
        ...(hop === undefined ? {} : { signal: hop }),
      });
      for await (const event of events) {
        if (event.id <= last) heard.outOfOrder += 1;
        last = event.id;
        if (event.type === "step") heard.steps.push(stepOf(event));
      }
      return heard;
    } catch (error) {
      if (hop?.aborted !== true) throw error;
      heard.reconnects += 1;
    }
  }
}
