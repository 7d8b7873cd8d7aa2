import { STREAMS, subjectOf } from "./catalog.ts";
import { EVENT_TYPES, EVENTS, type EventType } from "./event-types.ts";
import { CLOUD_EVENTS_MEDIA_TYPE, EVENT_DATA, eventSchema, versionedName } from "./events.ts";

/** Raised when an event is added, or one gets another version. */
const DOCUMENT_VERSION = "1.0.0";
const refTo = (...path: readonly string[]) => ({ $ref: `#/${path.join("/")}` });

const channelOf = (type: EventType) => ({
  address: `{namespace}.${subjectOf(type, "{project}")}`,
  summary: EVENTS[type].summary,
  parameters: {
    namespace: refTo("components", "parameters", "namespace"),
    project: refTo("components", "parameters", "project"),
  },
  messages: { [versionedName(type)]: refTo("components", "messages", versionedName(type)) },
});

const messageOf = (type: EventType) => ({
  name: versionedName(type),
  title: type,
  summary: EVENTS[type].summary,
  contentType: CLOUD_EVENTS_MEDIA_TYPE,
  payload: {
    ...eventSchema(type),
    properties: {
      ...(eventSchema(type) as unknown as { readonly properties: object }).properties,
      data: refTo("components", "schemas", versionedName(type)),
    },
  },
});

const ofEach = <T>(entry: (type: EventType) => readonly [string, T]): Record<string, T> =>
  Object.fromEntries(EVENT_TYPES.map(entry));

/** Every event of the product on its NATS subject, as an AsyncAPI 3 document. */
export const asyncApi = (): object => ({
  asyncapi: "3.0.0",
  info: {
    title: "InternEvo events",
    version: DOCUMENT_VERSION,
    description:
      "What jobs, workloads and the queue do, as CloudEvents 1.0. The stream NAMESPACE_" +
      `${STREAMS.events.name} of NATS JetStream keeps them for ${STREAMS.events.maxAgeSeconds / 86_400} days. ` +
      "An event may come more than once, always with the same id. Ignore members that you do not know.",
    license: { name: "Apache-2.0" },
  },
  defaultContentType: CLOUD_EVENTS_MEDIA_TYPE,
  channels: ofEach((type) => [type, channelOf(type)]),
  operations: ofEach((type) => [
    `publish ${type}`,
    { action: "send", channel: refTo("channels", type), summary: EVENTS[type].summary },
  ]),
  components: {
    parameters: {
      namespace: {
        description: "of the installation on its broker: INTERNEVO_NAMESPACE",
        default: "internevo",
      },
      project: {
        description: "whose job or workload the event is about; a subscription with * hears of all",
        examples: ["default"],
      },
    },
    messages: ofEach((type) => [versionedName(type), messageOf(type)]),
    schemas: ofEach((type) => [versionedName(type), EVENT_DATA[type]]),
  },
});
