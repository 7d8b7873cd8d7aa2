import type { JobStreamEvent } from "@internevo/contracts";
import type { TrackerPlace } from "@internevo/store";
import type { TrackedJob } from "./metrics.ts";

/** Some of a job's events, in order. */
export interface Batch {
  readonly job: TrackedJob;
  readonly events: readonly JobStreamEvent[];
}

/** Somewhere that metrics are sent to. */
export interface Tracker {
  readonly kind: "mlflow" | "tensorboard";
  /** Its kind and address: what was sent is remembered under it. */
  readonly key: string;
  /** Jobs that are sent at once. */
  readonly concurrency: number;
  /**
   * Sends events. It may be handed the same events again, after a death in between: what is sent twice is there once.
   * @returns where it is then
   * @throws StartOverError; every other error means that the same is tried again later
   */
  readonly send: (
    batch: Batch,
    place: TrackerPlace,
    signal: AbortSignal,
  ) => Promise<Omit<TrackerPlace, "lastEventId">>;
}

/** What was sent before is not there: everything has to be sent once more. */
export class StartOverError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "StartOverError";
  }
}

/** It was not sent, and whoever was asked says how long to wait. */
export class SendError extends Error {
  readonly retryAfterSeconds: number | null;

  constructor(message: string, retryAfterSeconds: number | null = null) {
    super(message);
    this.name = "SendError";
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
