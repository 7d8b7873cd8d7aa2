import { jetstream, JetStreamApiError, type JetStreamManager } from "@nats-io/jetstream";
import { connect, headers, type NatsConnection } from "@nats-io/transport-node";
import { CATALOG, type Envelope, type MessageType } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { parseNatsUrl } from "./address.ts";
import { startConsumption, type Consumption, type ConsumeRequest } from "./consumption.ts";
import { ensureStreams, names } from "./topology.ts";

/**
 * The oldest server whose JetStream does what we rely on: durable pull consumers, delayed nak, work queues,
 * deduplication.
 */
export const OLDEST_SERVER = "2.9.0";

export interface BusOptions {
  /** `nats://[token@]host:port`, several separated by commas. */
  readonly url: string;
  /** Shown in the server's connection list. */
  readonly name: string;
  /**
   * Prefix of streams and subjects; installations that share a server need different ones. Default
   * `internevo`.
   */
  readonly namespace?: string;
  /** Told what happens to the connection. */
  readonly onStatus?: (status: { readonly type: string; readonly detail: string }) => void;
}

export interface PublishResult {
  readonly streamSequence: number;
  /** The broker had it already. */
  readonly duplicate: boolean;
}

export interface Bus {
  readonly namespace: string;
  readonly serverVersion: string;
  /**
   * Publishes durably; the envelope's id makes a second publication within two minutes void. Rejects after 5
   * s without an answer.
   */
  publish(envelope: Envelope): Promise<PublishResult>;
  /**
   * Works on a type's messages, one durable consumer a type shared by all processes; goes on after the broker
   * was away or lost its store.
   */
  consume<T extends MessageType>(request: ConsumeRequest<T>): Consumption;
  /**
   * Best effort: hears events that are published from now on; nothing is redelivered. @returns a function
   * that ends it.
   */
  listen<T extends MessageType>(type: T, handler: (envelope: Envelope<T>) => void): () => void;
  /** Whether the broker still keeps the message with that id at that place. */
  keeps(
    type: MessageType,
    message: { readonly id: string; readonly streamSequence: number },
  ): Promise<boolean>;
  isConnected(): boolean;
  close(): Promise<void>;
}

const numbers = (version: string): number[] =>
  version.replace(/^v/, "").split(/[.-]/).slice(0, 3).map(Number);

/** @throws ProblemError `unavailable`, with the version that was found. */
export function assertServerVersion(version: string): void {
  const found = numbers(version);
  const needed = numbers(OLDEST_SERVER);
  for (const [index, least] of needed.entries()) {
    const have = found[index] ?? 0;
    if (have > least) return;
    if (!(have >= least)) {
      throw new ProblemError(
        "unavailable",
        `the NATS server is version ${version}; ${OLDEST_SERVER} or newer is needed`,
        [
          {
            field: "NATS_URL",
            value: version,
            message: `is a server older than ${OLDEST_SERVER}`,
            remedy: `run nats-server ${OLDEST_SERVER} or newer, with JetStream`,
          },
        ],
      );
    }
  }
}

const STREAM_NOT_FOUND = 10059;
const decoder = new TextDecoder();

/**
 * Connects, and makes the streams. Afterwards it reconnects for ever.
 * @throws ProblemError `unavailable`: no server within 10 s, one that is too old, or without JetStream.
 */
export async function connectBus(options: BusOptions): Promise<Bus> {
  const namespace = options.namespace ?? "internevo";
  if (!/^[A-Za-z0-9_-]{1,60}$/.test(namespace)) {
    throw new ProblemError("bad-request", "the namespace is not valid", [
      {
        field: "namespace",
        value: namespace,
        message: "must be a word",
        remedy: "use letters, digits, - and _",
      },
    ]);
  }
  const address = parseNatsUrl(options.url);
  const connection = await openConnection(options, address);
  const naming = names(namespace);
  const stop = new AbortController();
  const consumptions = new Set<Consumption>();
  let connected = true;
  let manager: JetStreamManager;
  try {
    assertServerVersion(connection.info?.version ?? "0.0.0");
    if (!connection.info?.jetstream)
      throw new ProblemError("unavailable", "the NATS server runs without JetStream", [
        { field: "NATS_URL", message: "has no JetStream", remedy: "start nats-server with -js" },
      ]);
    manager = await ensureStreams(connection, namespace);
  } catch (error) {
    await connection.close();
    throw error;
  }
  const client = jetstream(connection, { timeout: 5000 });

  const reensure = () => ensureStreams(connection, namespace);
  void (async () => {
    for await (const status of connection.status()) {
      if (status.type === "disconnect") connected = false;
      if (status.type === "reconnect") {
        connected = true;
        // Pulls died with the old server; its store may be gone as well.
        for (const consumption of consumptions) consumption.restart();
      }
      if (status.type !== "ping")
        options.onStatus?.({
          type: status.type,
          detail: "server" in status ? String(status.server) : "error" in status ? String(status.error) : "",
        });
    }
  })();

  const publishOnce = async (envelope: Envelope): Promise<PublishResult> => {
    const extra = headers();
    extra.set("traceparent", envelope.traceparent);
    const acknowledged = await client.publish(naming.subject(envelope.type), JSON.stringify(envelope), {
      msgID: envelope.id,
      headers: extra,
      expect: { streamName: naming.stream(CATALOG[envelope.type].stream) },
    });
    return { streamSequence: acknowledged.seq, duplicate: acknowledged.duplicate };
  };

  return {
    namespace,
    serverVersion: connection.info?.version ?? "",
    async publish(envelope) {
      try {
        return await publishOnce(envelope);
      } catch (error) {
        // The store may be gone. Whoever publishes is told why it failed; that its streams could not be made
        // again is told beside.
        if (connected && !stop.signal.aborted)
          await reensure().catch((failure: unknown) =>
            options.onStatus?.({ type: "streams-missing", detail: String(failure) }),
          );
        throw error;
      }
    },
    consume(request) {
      const consumption = startConsumption({ connection, namespace, ensureStreams: reensure, request });
      consumptions.add(consumption);
      void consumption.done.then(() => consumptions.delete(consumption));
      return consumption;
    },
    listen(type, handler) {
      const subscription = connection.subscribe(naming.subject(type), {
        callback: (error, message) => {
          if (error) return options.onStatus?.({ type: "listening-failed", detail: String(error) });
          try {
            handler(JSON.parse(decoder.decode(message.data)) as Envelope<typeof type>);
          } catch (failure) {
            options.onStatus?.({ type: "unreadable-event", detail: String(failure) });
          }
        },
      });
      return () => subscription.unsubscribe();
    },
    async keeps(type, message) {
      try {
        const kept = await manager.streams.getMessage(naming.stream(CATALOG[type].stream), {
          seq: message.streamSequence,
        });
        // After the loss of the store another message may sit at that place.
        return kept !== null && kept.header.get("Nats-Msg-Id") === message.id;
      } catch (error) {
        if (!(error instanceof JetStreamApiError) || error.code !== 404) throw error;
        // No such message, or the whole store is gone.
        if (error.apiError().err_code === STREAM_NOT_FOUND) await reensure();
        return false;
      }
    },
    isConnected: () => connected,
    async close() {
      if (stop.signal.aborted) return;
      stop.abort();
      await Promise.all([...consumptions].map((consumption) => consumption.stop()));
      // A broker that is away takes nothing more: what it has not confirmed is the outbox's to send again.
      await connection
        .flush()
        .catch((error: unknown) => options.onStatus?.({ type: "flush-failed", detail: String(error) }));
      await connection.close();
    },
  };
}

async function openConnection(
  options: BusOptions,
  address: ReturnType<typeof parseNatsUrl>,
): Promise<NatsConnection> {
  const { tls, ...server } = address;
  try {
    return await connect({
      ...server,
      ...(tls ? { tls: {} } : {}),
      name: options.name,
      timeout: 10_000,
      maxReconnectAttempts: -1,
      reconnectTimeWait: 250,
      reconnectJitter: 100,
      pingInterval: 5000,
      maxPingOut: 2,
      ignoreClusterUpdates: address.servers.length === 1,
    });
  } catch (error) {
    throw new ProblemError(
      "unavailable",
      `no NATS server answers at ${address.servers.join(", ")}: ${error instanceof Error ? error.message : String(error)}`,
      [
        {
          field: "NATS_URL",
          value: address.servers.join(","),
          message: "cannot be reached",
          remedy: "start the server, or correct NATS_URL",
        },
      ],
      { cause: error },
    );
  }
}
