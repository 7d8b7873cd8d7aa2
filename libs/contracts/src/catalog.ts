import { Type, type Static, type TSchema } from "typebox";

/** The data of every command: which job. State lives in Postgres, never in a message. */
export const JobCommandSchema = Type.Object(
  { jobId: Type.String({ format: "uuid" }) },
  { additionalProperties: false },
);
export const WorkloadCommandSchema = Type.Object(
  { workloadId: Type.String({ format: "uuid" }), firingId: Type.String({ format: "uuid" }) },
  { additionalProperties: false },
);
export const JobEventSchema = Type.Object(
  {
    jobId: Type.String({ format: "uuid" }),
    from: Type.Union([Type.String(), Type.Null()]),
    to: Type.String(),
    reason: Type.Union([Type.String(), Type.Null()]),
  },
  { additionalProperties: false },
);

/** Streams. Commands form a work queue (one consumer each); events are kept for whoever listens. */
export const STREAMS = {
  commands: { name: "COMMANDS", subjectPrefix: "command", retention: "workqueue" },
  events: { name: "EVENTS", subjectPrefix: "event", retention: "limits", maxAgeSeconds: 7 * 24 * 3600 },
} as const;

export interface MessageDefinition {
  readonly stream: keyof typeof STREAMS;
  /** Subject below the bus's namespace. */
  readonly subject: string;
  readonly schema: TSchema;
  /**
   * How long a consumer may be silent before the message is delivered again. Long work says "still working"
   * well within it.
   */
  readonly ackWaitSeconds: number;
  /**
   * Failed deliveries after which the message goes to the dead letters. Waiting for a lease is not a failure.
   */
  readonly maxDeliver: number;
}

const command = <S extends TSchema>(
  subject: string,
  schema: S,
  ackWaitSeconds = 10,
): MessageDefinition & { readonly schema: S } => ({
  stream: "commands",
  subject: `command.${subject}`,
  schema,
  ackWaitSeconds,
  maxDeliver: 8,
});

/** Every command and event of the product. The name is the message's type. */
export const CATALOG = {
  /** Measure the job's cluster, or reuse a fresh profile. Consumer: profiler. */
  "job.profile": command("job.profile", JobCommandSchema),
  /** Search the plans of the job. Consumer: planner. */
  "job.plan": command("job.plan", JobCommandSchema),
  /** Try the best runnable plans. Consumer: trial-runner. */
  "job.trial": command("job.trial", JobCommandSchema),
  /** Train with the winner. Consumer: executor-supervisor. */
  "job.run": command("job.run", JobCommandSchema),
  /** Plan a workload again. Consumer: replanner. */
  "workload.replan": command("workload.replan", WorkloadCommandSchema),
  /** A job went from one state to another, cancelling included: whoever works on it stops. */
  "job.transitioned": {
    stream: "events",
    subject: "event.job.transitioned",
    schema: JobEventSchema,
    ackWaitSeconds: 15,
    maxDeliver: 8,
  },
} as const satisfies Record<string, MessageDefinition>;
export type MessageType = keyof typeof CATALOG;
export type MessageData<T extends MessageType> = Static<(typeof CATALOG)[T]["schema"]>;

/**
 * What travels: the id is the outbox row's and the broker's message id, so that a second publication is
 * dropped.
 */
export interface Envelope<T extends MessageType = MessageType> {
  readonly id: string;
  readonly type: T;
  readonly occurredAt: string;
  /** W3C trace context of the job, the same through all its messages. */
  readonly traceparent: string;
  readonly data: MessageData<T>;
}
