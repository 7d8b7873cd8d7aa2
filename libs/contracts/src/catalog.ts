import { Type, type Static, type TSchema } from "typebox";
import type { EventType } from "./event-types.ts";
import type { EVENT_DATA } from "./events.ts";

/** The data of every command: which job. State lives in Postgres, never in a message. */
export const JobCommandSchema = Type.Object(
  { jobId: Type.String({ format: "uuid" }) },
  { additionalProperties: false },
);
export const WorkloadCommandSchema = Type.Object(
  { workloadId: Type.String({ format: "uuid" }), firingId: Type.String({ format: "uuid" }) },
  { additionalProperties: false },
);
/** Streams. Commands form a work queue (one consumer each); events are kept for whoever listens. */
export const STREAMS = {
  commands: { name: "COMMANDS", subjectPrefix: "command", retention: "workqueue" },
  events: { name: "EVENTS", subjectPrefix: "event", retention: "limits", maxAgeSeconds: 7 * 24 * 3600 },
} as const;

export interface MessageDefinition {
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
  subject: `command.${subject}`,
  schema,
  ackWaitSeconds,
  maxDeliver: 8,
});

/** Every command of the product. The name is the message's type. */
export const COMMANDS = {
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
} as const satisfies Record<string, MessageDefinition>;
export type CommandType = keyof typeof COMMANDS;
/** Every command and every event. */
export type MessageType = CommandType | EventType;
export type MessageData<T extends MessageType> = T extends CommandType
  ? Static<(typeof COMMANDS)[T]["schema"]>
  : T extends EventType
    ? Static<(typeof EVENT_DATA)[T]>
    : never;
export const isCommandType = (type: string): type is CommandType => type in COMMANDS;
export const streamOf = (type: MessageType): keyof typeof STREAMS =>
  isCommandType(type) ? "commands" : "events";

/**
 * The subject of a message, below the bus's namespace. Events have their project in it, so that a subscriber can
 * ask for those of one. @param project of an event; `*` stands for all of them
 */
export const subjectOf = (type: MessageType, project = "*"): string =>
  isCommandType(type) ? COMMANDS[type].subject : `${STREAMS.events.subjectPrefix}.${project}.${type}`;

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
  /** Whose job or workload an event is about; commands have none. */
  readonly project?: string;
  readonly data: MessageData<T>;
}
