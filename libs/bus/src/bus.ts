import { setTimeout as sleep } from "node:timers/promises";
import {
  jetstream,
  JetStreamApiError,
  type JetStreamClient,
  type JetStreamManager,
} from "@nats-io/jetstream";
import { connect, headers, errors, type NatsConnection, type Status } from "@nats-io/transport-node";
import {
  cloudEventOf,
  eventOf,
  isCommandType,
  streamOf,
  type CommandType,
  type Envelope,
  type EventType,
  type MessageData,
  type MessageType,
} from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import { parseNatsUrl } from "./address.ts";
import { startConsumption, type Consumption, type ConsumeRequest } from "./consumption.ts";
import { ensureStreams, names } from "./topology.ts";

/**
 * The oldest server whose JetStream does what we rely on: durable pull consumers, delayed nak, work queues,
 * deduplication.
 */
export const OLDEST_SERVER = "2.9.0";

/** For so long a publication that failed counts against the broker: while there is any, it is tried more often. */
const REFUSED_SECONDS = 10;

/** How long a publication waits: a stream whose leader died has another one after some seconds. */
const PUBLISH_SECONDS = 2;

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
  /** Servers that keep each message. Default: three where the server is in a cluster, else one. */
  readonly replicas?: number;
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
   * Publishes durably; the envelope's id makes a second publication within two minutes void. Rejects after
   * {@link PUBLISH_SECONDS} without an answer.
   */
  publish(envelope: Envelope): Promise<PublishResult>;
  /**
   * Works on a type's messages, one durable consumer a type shared by all processes; goes on after the broker
   * was away or lost its store.
   */
  consume<T extends CommandType>(request: ConsumeRequest<T>): Consumption;
  /**
   * Best effort: hears events that are published from now on; nothing is redelivered. @returns a function
   * that ends it.
   */
  listen<T extends EventType>(type: T, handler: (envelope: Envelope<T>) => void): () => void;
  /** Whether the broker still keeps the message with that id at that place. */
  keeps(
    type: MessageType,
    message: { readonly id: string; readonly streamSequence: number },
  ): Promise<boolean>;
  isConnected(): boolean;
  /**
   * Whether JetStream answers for our streams now, and has taken what was published last. A server whose disk is full stays
   * connected, and takes nothing.
   */
  takesMessages(): Promise<boolean>;
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

/** A connection, its streams and the consumers that run over it. */
class NatsBus implements Bus {
  readonly namespace: string;
  readonly serverVersion: string;
  readonly #options: BusOptions;
  readonly #connection: NatsConnection;
  readonly #manager: JetStreamManager;
  readonly #naming: ReturnType<typeof names>;
  readonly #client: JetStreamClient;
  readonly #consumptions = new Set<Consumption>();
  #connected = true;
  #refusedAt = -Infinity;
  #closing = false;

  constructor(options: BusOptions, namespace: string, connection: NatsConnection, manager: JetStreamManager) {
    this.namespace = namespace;
    this.serverVersion = connection.info?.version ?? "";
    this.#options = options;
    this.#connection = connection;
    this.#manager = manager;
    this.#naming = names(namespace);
    this.#client = jetstream(connection, { timeout: PUBLISH_SECONDS * 1000 });
    void this.#followStatus();
  }

  async #followStatus(): Promise<void> {
    for await (const status of this.#connection.status()) {
      if (status.type === "disconnect") this.#connected = false;
      if (status.type === "reconnect") {
        this.#connected = true;
        // Pulls died with the old server; its store may be gone as well.
        for (const consumption of this.#consumptions) consumption.restart();
      }
      if (status.type !== "ping") this.#tell(status.type, statusDetail(status));
    }
  }

  #tell(type: string, detail: unknown): void {
    this.#options.onStatus?.({ type, detail: String(detail) });
  }

  readonly #ensureStreams = (): Promise<JetStreamManager> =>
    ensureStreams(this.#connection, this.namespace, this.#options.replicas);

  async publish(envelope: Envelope): Promise<PublishResult> {
    try {
      const published = await this.#publishOnce(envelope);
      this.#refusedAt = -Infinity;
      return published;
    } catch (error) {
      if (isRefusal(error)) this.#refusedAt = performance.now();
      // The store may be gone. Whoever publishes is told why it failed; that its streams could not be made
      // again is told beside. Without an answer the stream is there, and its servers look for a leader.
      if (this.#connected && !this.#closing && !(error instanceof errors.TimeoutError))
        await this.#ensureStreams().catch((failure: unknown) => this.#tell("streams-missing", failure));
      throw error;
    }
  }

  async #publishOnce(envelope: Envelope): Promise<PublishResult> {
    const extra = headers();
    extra.set("traceparent", envelope.traceparent);
    const { type, project } = envelope;
    const subject = this.#naming.subject(type, project);
    const acknowledged = await this.#client.publish(subject, this.#textOf(envelope), {
      msgID: envelope.id,
      headers: extra,
      expect: { streamName: this.#naming.stream(streamOf(type)) },
    });
    return { streamSequence: acknowledged.seq, duplicate: acknowledged.duplicate };
  }

  /** Commands are ours alone; events are read by others, who know CloudEvents. */
  #textOf({ type, project, ...parts }: Envelope): string {
    if (isCommandType(type)) return JSON.stringify({ type, ...parts });
    if (project === undefined) throw new TypeError(`the event ${type} names no project`);
    return JSON.stringify(cloudEventOf({ type, project, ...parts }, this.namespace));
  }

  consume<T extends CommandType>(request: ConsumeRequest<T>): Consumption {
    const consumption = startConsumption({
      connection: this.#connection,
      namespace: this.namespace,
      ensureStreams: this.#ensureStreams,
      request,
    });
    this.#consumptions.add(consumption);
    void consumption.done.then(() => this.#consumptions.delete(consumption));
    return consumption;
  }

  listen<T extends EventType>(type: T, handler: (envelope: Envelope<T>) => void): () => void {
    const subscription = this.#connection.subscribe(this.#naming.subject(type), {
      callback: (error, message) => {
        if (error) return this.#tell("listening-failed", error);
        try {
          const event = eventOf(type, decoder.decode(message.data));
          handler({ ...event, type, data: event.data as MessageData<T> });
        } catch (failure) {
          this.#tell("unreadable-event", failure);
        }
      },
    });
    return () => subscription.unsubscribe();
  }

  async keeps(
    type: MessageType,
    message: { readonly id: string; readonly streamSequence: number },
  ): Promise<boolean> {
    try {
      const kept = await this.#manager.streams.getMessage(this.#naming.stream(streamOf(type)), {
        seq: message.streamSequence,
      });
      // After the loss of the store another message may sit at that place.
      return kept !== null && kept.header.get("Nats-Msg-Id") === message.id;
    } catch (error) {
      if (!(error instanceof JetStreamApiError) || error.code !== 404) throw error;
      // No such message, or the whole store is gone.
      if (error.apiError().err_code === STREAM_NOT_FOUND) await this.#ensureStreams();
      return false;
    }
  }

  isConnected(): boolean {
    return this.#connected;
  }

  async takesMessages(): Promise<boolean> {
    if (!this.#connected || performance.now() - this.#refusedAt < 1000 * REFUSED_SECONDS) return false;
    const look = this.#manager.streams
      .info(this.#naming.stream("commands"))
      .catch((error: unknown) => {
        if (error instanceof JetStreamApiError && error.apiError().err_code === STREAM_NOT_FOUND)
          return this.#ensureStreams();
        throw error;
      })
      .then(
        () => true,
        () => false,
      );
    const bound = new AbortController();
    const late = sleep(1000 * PUBLISH_SECONDS, false, { signal: bound.signal }).catch(() => false);
    return Promise.race([look, late]).finally(() => bound.abort());
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    await Promise.all([...this.#consumptions].map((consumption) => consumption.stop()));
    // A broker that is away takes nothing more: what it has not confirmed is the outbox's to send again.
    await this.#connection.flush().catch((error: unknown) => this.#tell("flush-failed", error));
    await this.#connection.close();
  }
}

/** Whether it is the broker that did not take a message, and not the message that cannot be sent. */
const isRefusal = (error: unknown): boolean => error instanceof JetStreamApiError || isNotReady(error);

function statusDetail(status: Status): string {
  if ("server" in status) return String(status.server);
  return "error" in status ? String(status.error) : "";
}

/**
 * Connects, and makes the streams. Afterwards it reconnects for ever.
 * @throws ProblemError `unavailable`: no server within 10 s, one that is too old, or without JetStream, or too few
 * for the replicas.
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
  const connection = await openConnection(options, parseNatsUrl(options.url));
  try {
    assertServerVersion(connection.info?.version ?? "0.0.0");
    if (!connection.info?.jetstream)
      throw new ProblemError("unavailable", "the NATS server runs without JetStream", [
        { field: "NATS_URL", message: "has no JetStream", remedy: "start nats-server with -js" },
      ]);
    const manager = await ensureStreams(connection, namespace, options.replicas).catch(thatItIsNotReady);
    return new NatsBus(options, namespace, connection, manager);
  } catch (error) {
    await connection.close();
    throw error;
  }
}

/** A server that has JetStream, and whose cluster has not agreed on a leader yet, does not answer or says so. */
const isNotReady = (error: unknown): boolean =>
  error instanceof errors.TimeoutError ||
  error instanceof errors.RequestError ||
  error instanceof errors.NoRespondersError ||
  (error instanceof Error && error.name === "JetStreamNotEnabled") ||
  (error instanceof JetStreamApiError && error.code === 503);

/** @throws ProblemError `unavailable` where it will be ready; else what was thrown */
function thatItIsNotReady(error: unknown): never {
  if (!isNotReady(error)) throw error;
  throw new ProblemError(
    "unavailable",
    `JetStream of the NATS server is not ready: ${(error as Error).message}`,
    [
      {
        field: "NATS_URL",
        message: "answers, and its JetStream does not",
        remedy: "start most of the servers of its cluster, or wait until they agree on a leader",
      },
    ],
    { cause: error },
  );
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
