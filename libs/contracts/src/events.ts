import {
  AttemptSchema,
  FailureSchema,
  JOB_STATES,
  PlanChangeSchema,
  PlanSchema,
  PrioritySchema,
  ProposalSchema,
  TRIAL_STATES,
} from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import { EVENT_TYPES, EVENTS, type EventType } from "./event-types.ts";

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const Id = Type.String({ format: "uuid" });
const Name = Type.String();

const ofJob = { jobId: Id, jobName: Name };
/** One of the two is null: a job asked, or a workload that is planned by a schedule. */
const ofJobOrWorkload = {
  jobId: nullable(Id),
  jobName: nullable(Name),
  workloadId: nullable(Id),
  workloadName: nullable(Name),
};
const seconds = (description: string) => Type.Number({ minimum: 0, description });

const PlannedSchema = Type.Object({
  plan: PlanSchema,
  stepTimeSeconds: seconds("predicted"),
  tokensPerGpuPerSecond: Type.Number({ description: "predicted" }),
  peakMemoryBytes: Type.Number({ description: "predicted, of the rank that needs most" }),
});

const ofQueue = {
  ...ofJob,
  hosts: Type.Array(Type.String(), { description: "that the job asked for" }),
  gpus: Type.Integer({ minimum: 0 }),
};

/** What each event says. A subscriber must ignore members that it does not know. */
export const EVENT_DATA = {
  "job.transitioned": Type.Object({
    ...ofJob,
    from: nullable(Type.Enum(JOB_STATES)),
    to: Type.Enum(JOB_STATES),
    reason: nullable(Type.String()),
  }),
  "profile.measured": Type.Object({
    ...ofJobOrWorkload,
    profileId: Id,
    profileName: Name,
    clusterKey: Type.String({ description: "launcher, name and shape of the cluster" }),
    freshForSeconds: seconds("after which the cluster is measured again"),
  }),
  "planning.done": Type.Object({
    ...ofJobOrWorkload,
    planningId: Id,
    profileId: nullable(Id),
    evaluated: Type.Integer({ minimum: 0, description: "plans that were looked at" }),
    feasible: Type.Integer({ minimum: 0, description: "plans that fit" }),
    best: Type.Union([PlannedSchema, Type.Null()], {
      description: "the fastest that the trainer can run; null: there is none",
    }),
  }),
  "trial.ended": Type.Object({
    ...ofJob,
    trialId: Id,
    rank: Type.Integer({ minimum: 1, description: "the plan's place by prediction" }),
    plan: PlanSchema,
    state: Type.Enum(TRIAL_STATES),
    predictedStepTimeSeconds: seconds("what the planner had said"),
    stepTimeSeconds: nullable(seconds("measured")),
    tokensPerGpuPerSecond: nullable(Type.Number()),
    peakMemoryBytes: nullable(Type.Number()),
    failure: nullable(FailureSchema),
  }),
  "attempt.begun": Type.Object({
    ...ofJob,
    number: AttemptSchema.properties.number,
    resumedFromStep: AttemptSchema.properties.resumedFromStep,
  }),
  "attempt.ended": Type.Object({
    ...ofJob,
    number: AttemptSchema.properties.number,
    state: AttemptSchema.properties.state,
    lastStep: AttemptSchema.properties.lastStep,
    failure: AttemptSchema.properties.failure,
    gaveWayTo: nullable(Type.String({ description: "who got the hosts, in words" })),
  }),
  "checkpoint.written": Type.Object({
    ...ofJob,
    attempt: AttemptSchema.properties.number,
    step: Type.Integer({ minimum: 0 }),
    bytes: Type.Integer({ minimum: 0 }),
    seconds: seconds("from its begin until it was complete"),
  }),
  "proposal.made": Type.Object({
    workloadId: Id,
    workloadName: Name,
    proposalId: Id,
    predictedGain: Type.Number({ description: "1 − proposed step time / current step time" }),
    current: Type.Union([PlanSchema, Type.Null()], { description: "null: no plan was in use" }),
    proposed: PlanSchema,
  }),
  "proposal.transitioned": Type.Object({
    workloadId: Id,
    workloadName: Name,
    proposalId: Id,
    to: ProposalSchema.properties.state,
    jobId: ProposalSchema.properties.jobId,
    predictedGain: ProposalSchema.properties.predictedGain,
    measuredGain: ProposalSchema.properties.measuredGain,
    current: Type.Union([PlanSchema, Type.Null()], { description: "null: no plan was in use" }),
    proposed: PlanSchema,
    reason: ProposalSchema.properties.reason,
  }),
  "plan-change.transitioned": Type.Object({
    ...ofJob,
    planChangeId: Id,
    to: PlanChangeSchema.properties.state,
    origin: PlanChangeSchema.properties.origin,
    planBefore: PlanSchema,
    planAfter: PlanSchema,
    predictedGain: Type.Number({
      description: "1 − predicted step time after / before; 0 while no other plan was found",
    }),
    measuredGain: PlanChangeSchema.properties.measuredGain,
    appliedAtStep: PlanChangeSchema.properties.appliedAtStep,
    reason: PlanChangeSchema.properties.reason,
  }),
  "queue.waiting": Type.Object({ ...ofQueue, priority: PrioritySchema }),
  "queue.granted": Type.Object({
    ...ofQueue,
    waitedSeconds: seconds("in all its waits; 0: it got them at once"),
  }),
  "queue.gave-way": Type.Object({
    ...ofQueue,
    gaveWayTo: nullable(Type.String({ description: "who got the hosts, in words; null: nobody any more" })),
  }),
} as const satisfies Record<EventType, TSchema>;
export type EventData<T extends EventType> = Static<(typeof EVENT_DATA)[T]>;
export const EventTypeSchema = Type.Enum(EVENT_TYPES as [EventType, ...EventType[]]);

/** Where the published schemas are, by name. */
export const SCHEMAS_URL = "https://internevo.dev/schemas/";
/** The file of the published description of all events. */
export const ASYNCAPI_FILE = "asyncapi.json";
/** Names an event's data, with its version. */
export const versionedName = (type: EventType): string => `${type}.v${EVENTS[type].version}`;

/** What the types of all our events begin with. */
export const TYPE_PREFIX = "dev.internevo.";
/** What is the same in every event. */
export const CLOUD_EVENT_CONSTANTS = { specversion: "1.0", datacontenttype: "application/json" } as const;
/** What CloudEvents calls the type of an event, for example `dev.internevo.job.transitioned.v1`. */
export const cloudEventType = (type: EventType): string => TYPE_PREFIX + versionedName(type);

/** What `application/json` says less precisely. */
export const CLOUD_EVENTS_MEDIA_TYPE = "application/cloudevents+json";

/** The envelope of an event: CloudEvents 1.0 as JSON, with two attributes beyond it. */
export const cloudEventSchema = <S extends TSchema>(type: string, dataschema: string, data: S) =>
  Type.Object({
    specversion: Type.Literal("1.0"),
    id: Type.String({ format: "uuid", description: "the same however often the event comes" }),
    source: Type.String({ description: "urn:internevo:NAMESPACE, the installation" }),
    type: Type.Literal(type),
    subject: Type.String({ description: "what it is about, for example job/ID" }),
    time: Type.String({ format: "date-time", description: "when it happened" }),
    datacontenttype: Type.Literal("application/json"),
    dataschema: Type.Literal(dataschema),
    project: Type.String({ description: "whose job or workload it is about" }),
    traceparent: Type.String({
      description: "W3C trace context of the job, the same through all its events",
    }),
    data,
  });
export type CloudEvent<D = unknown> = Omit<Static<ReturnType<typeof cloudEventSchema>>, "data"> & {
  readonly data: D;
};

const dataSchemaUrl = (type: EventType): string =>
  `${SCHEMAS_URL}${ASYNCAPI_FILE}#/components/schemas/${versionedName(type)}`;

/** The schema of an event as it travels. */
export const eventSchema = (type: EventType): TSchema =>
  cloudEventSchema(cloudEventType(type), dataSchemaUrl(type), EVENT_DATA[type]);

/** What of an event does not follow from its type. */
export interface EventParts {
  readonly id: string;
  readonly type: EventType;
  readonly occurredAt: string;
  readonly traceparent: string;
  readonly project: string;
  readonly data: unknown;
}

/** @param namespace of the installation on its broker. */
export const cloudEventSource = (namespace: string): string => `urn:internevo:${namespace}`;

/** An event as it travels. @param namespace of the installation */
export function cloudEventOf(event: EventParts, namespace: string): CloudEvent {
  const { jobId, workloadId } = event.data as { jobId?: string | null; workloadId?: string | null };
  return {
    ...CLOUD_EVENT_CONSTANTS,
    id: event.id,
    source: cloudEventSource(namespace),
    type: cloudEventType(event.type),
    subject: typeof jobId === "string" ? `job/${jobId}` : `workload/${workloadId ?? ""}`,
    time: event.occurredAt,
    dataschema: dataSchemaUrl(event.type),
    project: event.project,
    traceparent: event.traceparent,
    data: event.data,
  };
}

/** The reverse of {@link cloudEventOf}. @throws TypeError for what is no event of that type. */
export function eventOf(type: EventType, text: string): EventParts {
  const event = JSON.parse(text) as Partial<CloudEvent>;
  const { id, time, traceparent, project, data } = event;
  if (
    event.type !== cloudEventType(type) ||
    typeof id !== "string" ||
    typeof time !== "string" ||
    typeof traceparent !== "string" ||
    typeof project !== "string"
  )
    throw new TypeError(`is no event ${cloudEventType(type)}`);
  return { id, type, occurredAt: time, traceparent, project, data };
}
