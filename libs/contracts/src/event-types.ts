/** An event of the product: what it is, and the version of its data. */
interface EventDescription {
  /**
   * Of the data. Members may be added within a version. Whoever takes one away, or changes what it means, makes
   * another version.
   */
  readonly version: number;
  readonly summary: string;
}

/**
 * Every event of the product. They are few for each job: what a job does every step or every second is no event.
 */
export const EVENTS = {
  "job.transitioned": {
    version: 1,
    summary: "A job went from one state to another. Its first event has no state before.",
  },
  "profile.measured": {
    version: 1,
    summary: "A cluster was measured for a job or a workload, and its profile was stored.",
  },
  "planning.done": { version: 1, summary: "The plans of a job or a workload were searched." },
  "trial.ended": {
    version: 1,
    summary: "A plan was tried for real. What a trial measures when it is repeated is no event.",
  },
  "attempt.begun": {
    version: 1,
    summary: "The ranks of a training are started, for the first time or again.",
  },
  "attempt.ended": { version: 1, summary: "The ranks of a training have ended." },
  "checkpoint.written": { version: 1, summary: "A training wrote a checkpoint that it can go on from." },
  "proposal.made": { version: 1, summary: "A better plan for a workload was found." },
  "proposal.transitioned": {
    version: 1,
    summary:
      "A proposal for a workload was answered, tried by a run, applied to it, taken back or superseded.",
  },
  "plan-change.transitioned": {
    version: 1,
    summary:
      "A change of a run's plan was asked for, made, or ended: kept, taken back, or left because of something else.",
  },
  "queue.waiting": {
    version: 1,
    summary: "A job began to wait for its hosts: others have them, or go first.",
  },
  "queue.granted": {
    version: 1,
    summary: "A job got the hosts that it asked for, at once or after it had waited.",
  },
  "queue.gave-way": {
    version: 1,
    summary: "A job gave its hosts up for a more urgent one, and waits for them again.",
  },
} as const satisfies Record<string, EventDescription>;
export type EventType = keyof typeof EVENTS;
export const EVENT_TYPES = Object.keys(EVENTS) as readonly EventType[];
export const isEventType = (type: string): type is EventType => type in EVENTS;
