import { jetstream, type ConsumerInfo, type ConsumerMessages, type JsMsg } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { CATALOG, type Envelope, type MessageType } from "@internevo/contracts";
import { validate } from "@internevo/domain";
import type { ensureStreams } from "./topology.ts";
import { ensureConsumer } from "./topology.ts";

/**
 * A message in hand. Exactly one of `ack`, `retryLater` and `discard` ends it; until then the broker is told
 * that work goes on.
 */
export interface Delivery<T extends MessageType = MessageType> {
  /** Undefined when the message cannot be read; then see `unreadable`. */
  readonly envelope: Envelope<T> | undefined;
  readonly unreadable:
    { readonly messageId: string; readonly text: string; readonly error: string } | undefined;
  readonly subject: string;
  /** From 1; waiting for a lease counts too. */
  readonly deliveries: number;
  ack(): void;
  /** Gives it back; it comes again after the delay, to whoever asks. */
  retryLater(delaySeconds: number): void;
  /** Never comes again. */
  discard(): void;
}

export interface ConsumeRequest<T extends MessageType> {
  readonly type: T;
  /** Messages worked on at once in this process. Default 1. */
  readonly concurrency?: number;
  /** Must end the delivery. An error that it throws gives the message back after 5 s. */
  readonly handler: (delivery: Delivery<T>) => Promise<void>;
  /** Told of errors of the broker and of the handler. */
  readonly onError?: (error: unknown) => void;
}

export interface Consumption {
  /** Takes no more messages; resolves when the handlers in hand have ended. */
  stop(): Promise<void>;
  /** Asks the broker anew (after a reconnection). */
  restart(): void;
  readonly done: Promise<void>;
}

const PULL_MILLISECONDS = 5000;
const RECHECK_MILLISECONDS = 30_000;

function deliveryOf<T extends MessageType>(type: T, message: JsMsg): Delivery<T> {
  let ended = false;
  // Well within the time after which the broker delivers again.
  const working = setInterval(() => message.working(), (CATALOG[type].ackWaitSeconds * 1000) / 4);
  const end = (how: () => void) => {
    if (ended) return;
    ended = true;
    clearInterval(working);
    how();
  };
  let envelope: Envelope<T> | undefined;
  let unreadable: Delivery<T>["unreadable"];
  try {
    const parsed = message.json<Envelope<T>>();
    if (typeof parsed.id !== "string" || parsed.type !== type || typeof parsed.traceparent !== "string")
      throw new TypeError(`is no envelope of ${type}`);
    validate(CATALOG[type].schema, parsed.data, "bad-request", `the data of ${type}`);
    envelope = parsed;
  } catch (error) {
    unreadable = {
      messageId: message.headers?.get("Nats-Msg-Id") || `sequence ${message.seq}`,
      text: message.string().slice(0, 100_000),
      error: error instanceof Error ? error.message : String(error),
    };
  }
  return {
    envelope,
    unreadable,
    subject: message.subject,
    deliveries: message.info.deliveryCount,
    ack: () => end(() => message.ack()),
    retryLater: (delaySeconds) => end(() => message.nak(Math.round(delaySeconds * 1000))),
    discard: () => end(() => message.term()),
  };
}

interface ConsumptionOptions<T extends MessageType> {
  readonly connection: NatsConnection;
  readonly namespace: string;
  readonly ensureStreams: () => ReturnType<typeof ensureStreams>;
  readonly request: ConsumeRequest<T>;
}

/** Pulls one message a free slot, so that nothing waits in this process while another process is idle. */
export function startConsumption<T extends MessageType>(options: ConsumptionOptions<T>): Consumption {
  const { connection, namespace, request } = options;
  const stop = new AbortController();
  const onError = request.onError ?? (() => {});
  const pulls = new Set<ConsumerMessages>();
  let ensured: { readonly at: number; readonly info: Promise<ConsumerInfo> } | undefined;

  const ensure = () => {
    ensured ??= {
      at: performance.now(),
      info: options.ensureStreams().then((manager) => ensureConsumer(manager, namespace, request.type)),
    };
    return ensured.info;
  };
  const wait = (milliseconds: number) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      stop.signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });

  async function handle(message: JsMsg): Promise<void> {
    const delivery = deliveryOf(request.type, message);
    try {
      await request.handler(delivery);
      delivery.retryLater(5);
    } catch (error) {
      delivery.retryLater(5);
      onError(error);
    }
  }

  async function pullOnce(): Promise<void> {
    if (ensured && performance.now() - ensured.at > RECHECK_MILLISECONDS) ensured = undefined;
    const pull = await jetstream(connection)
      .consumers.getConsumerFromInfo(await ensure())
      .fetch({ max_messages: 1, expires: PULL_MILLISECONDS });
    pulls.add(pull);
    let taken: JsMsg | undefined;
    try {
      if (stop.signal.aborted) pull.stop();
      for await (const message of pull) {
        taken = message;
        break;
      }
    } finally {
      pulls.delete(pull);
    }
    // The pull is over by then: one that waits for its handler misses the broker's heartbeats.
    if (taken) await handle(taken);
  }

  async function slot(): Promise<void> {
    for (let failures = 0; !stop.signal.aborted;) {
      try {
        await pullOnce();
        failures = 0;
      } catch (error) {
        if (stop.signal.aborted || connection.isClosed()) return;
        ensured = undefined;
        failures += 1;
        onError(error);
        await wait(Math.min(250 * 2 ** (failures - 1), 2000));
      }
    }
  }

  const done = Promise.all(Array.from({ length: request.concurrency ?? 1 }, slot)).then(() => {});
  const stopPulls = () => {
    for (const pull of pulls) pull.stop();
  };
  return {
    done,
    stop() {
      stop.abort();
      stopPulls();
      return done;
    },
    restart() {
      ensured = undefined;
      stopPulls();
    },
  };
}
