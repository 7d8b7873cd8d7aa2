import {
  AckPolicy,
  DiscardPolicy,
  jetstreamManager,
  JetStreamApiError,
  RetentionPolicy,
  StorageType,
  type ConsumerInfo,
  type JetStreamManager,
} from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { COMMANDS, STREAMS, subjectOf, type CommandType, type MessageType } from "@internevo/contracts";

const NANOSECONDS = 1e9;
/** How long the broker drops a second publication of an id; beyond it the inbox does. */
const DUPLICATE_WINDOW_SECONDS = 120;
const STREAM_NAME_IN_USE = 10058;
const CONSUMER_EXISTS = 10148;

export type StreamKey = keyof typeof STREAMS;

/** Names of one installation on a broker that it may share with others. */
export const names = (namespace: string) => ({
  stream: (key: StreamKey) => `${namespace}_${STREAMS[key].name}`,
  /** @param project of an event that is published; without it those of all projects */
  subject: (type: MessageType, project?: string) => `${namespace}.${subjectOf(type, project)}`,
  consumer: (type: CommandType) => type.replaceAll(".", "_"),
});

const isApiError = (error: unknown, codes: readonly number[]): boolean =>
  error instanceof JetStreamApiError && codes.includes(error.apiError().err_code);

async function ensureStream(manager: JetStreamManager, namespace: string, key: StreamKey): Promise<void> {
  const definition = STREAMS[key];
  const settings = {
    subjects: [`${namespace}.${definition.subjectPrefix}.>`],
    max_age: "maxAgeSeconds" in definition ? definition.maxAgeSeconds * NANOSECONDS : 0,
    duplicate_window: DUPLICATE_WINDOW_SECONDS * NANOSECONDS,
    discard: definition.retention === "workqueue" ? DiscardPolicy.New : DiscardPolicy.Old,
    // Not bytes: the server would set them aside for every installation that shares it.
    max_msgs: 1_000_000,
  };
  const name = names(namespace).stream(key);
  try {
    await manager.streams.add({
      name,
      retention: definition.retention === "workqueue" ? RetentionPolicy.Workqueue : RetentionPolicy.Limits,
      storage: StorageType.File,
      ...settings,
    });
  } catch (error) {
    // It is there with other settings: of an earlier version.
    if (!isApiError(error, [STREAM_NAME_IN_USE])) throw error;
    await manager.streams.update(name, settings);
  }
}

/** Makes what is missing of streams; repeating it changes nothing. */
export async function ensureStreams(
  connection: NatsConnection,
  namespace: string,
): Promise<JetStreamManager> {
  const manager = await jetstreamManager(connection, { checkAPI: false });
  for (const key of Object.keys(STREAMS) as StreamKey[]) await ensureStream(manager, namespace, key);
  return manager;
}

/** Makes the durable pull consumer of a command where it is missing. */
export async function ensureConsumer(
  manager: JetStreamManager,
  namespace: string,
  type: CommandType,
): Promise<ConsumerInfo> {
  const naming = names(namespace);
  const { ackWaitSeconds } = COMMANDS[type];
  const stream = naming.stream("commands");
  const consumer = naming.consumer(type);
  const settings = {
    filter_subject: naming.subject(type),
    ack_wait: ackWaitSeconds * NANOSECONDS,
    // Deliveries that only wait for a lease must not use up a budget: failures are counted in the database.
    max_deliver: -1,
    // What comes again later counts too: however much of it there is, it keeps nothing else from being delivered.
    max_ack_pending: 100_000,
  };
  try {
    return await manager.consumers.add(stream, {
      durable_name: consumer,
      ack_policy: AckPolicy.Explicit,
      ...settings,
    });
  } catch (error) {
    if (!isApiError(error, [CONSUMER_EXISTS])) throw error;
    return await manager.consumers.update(stream, consumer, settings);
  }
}
