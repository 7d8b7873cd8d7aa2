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
import { ProblemError } from "@internevo/domain";
import { COMMANDS, STREAMS, subjectOf, type CommandType, type MessageType } from "@internevo/contracts";

const NANOSECONDS = 1e9;
/** How long the broker drops a second publication of an id; beyond it the inbox does. */
const DUPLICATE_WINDOW_SECONDS = 120;
/** Where the server is in a cluster: one of three may be lost, and its disk with it. */
const CLUSTER_REPLICAS = 3;
/** The cluster has too few servers, or too few of them are there; or the server is in no cluster. */
const TOO_FEW_SERVERS = [10005, 10074];
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

/** @throws ProblemError `unavailable`: not so many servers are there. */
async function ensureStream(
  manager: JetStreamManager,
  namespace: string,
  key: StreamKey,
  replicas: number,
): Promise<void> {
  const definition = STREAMS[key];
  const settings = {
    subjects: [`${namespace}.${definition.subjectPrefix}.>`],
    max_age: "maxAgeSeconds" in definition ? definition.maxAgeSeconds * NANOSECONDS : 0,
    duplicate_window: DUPLICATE_WINDOW_SECONDS * NANOSECONDS,
    discard: definition.retention === "workqueue" ? DiscardPolicy.New : DiscardPolicy.Old,
    // Not bytes: the server would set them aside for every installation that shares it.
    max_msgs: 1_000_000,
    num_replicas: replicas,
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
    // It is there with other settings: of an earlier version, or of a server that was alone.
    if (!isApiError(error, [STREAM_NAME_IN_USE])) throw tooFewServers(error, replicas);
    await manager.streams.update(name, settings).catch((failure: unknown) => {
      throw tooFewServers(failure, replicas);
    });
  }
}

/** What is told of an error where it says that replicas find no place. */
function tooFewServers(error: unknown, replicas: number): unknown {
  if (!isApiError(error, TOO_FEW_SERVERS)) return error;
  return new ProblemError(
    "unavailable",
    `NATS keeps streams on ${replicas} servers here, and not so many are there: ${(error as Error).message}`,
    [
      {
        field: "INTERNEVO_NATS_REPLICAS",
        value: replicas,
        message: "is more than the servers that have JetStream and are there",
        remedy: "start the other servers of the cluster, or set it to 1",
      },
    ],
    { cause: error },
  );
}

/**
 * Makes what is missing of streams; repeating it changes nothing.
 * @param replicas servers that keep each message; undefined: three in a cluster, else one
 * @throws ProblemError `unavailable`: not so many servers are there.
 */
export async function ensureStreams(
  connection: NatsConnection,
  namespace: string,
  replicas = connection.info?.cluster === undefined ? 1 : CLUSTER_REPLICAS,
): Promise<JetStreamManager> {
  const manager = await jetstreamManager(connection, { checkAPI: false });
  for (const key of Object.keys(STREAMS) as StreamKey[])
    await ensureStream(manager, namespace, key, replicas);
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
