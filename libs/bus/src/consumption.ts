import { jetstream, type ConsumerInfo, type ConsumerMessages, type JsMsg } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { COMMANDS, type CommandType, type Envelope } from "@internevo/contracts";
import { validate } from "@internevo/domain";
import type { ensureStreams } from "./topology.ts";
import { ensureConsumer } from "./topology.ts";

/**
 * A message in hand. Exactly one of `ack`, `retryLater` and `discard` ends it; until then the broker is told
 * that work goes on.
 */
export interface Delivery<T extends CommandType = CommandType> {
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

export interface ConsumeRequest<T extends CommandType> {
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

function deliveryOf<T extends CommandType>(type: T, message: JsMsg): Delivery<T> {
  let ended = false;
  // Well within the time after which the broker delivers again.
  const working = setInterval(() => message.working(), (COMMANDS[type].ackWaitSeconds * 1000) / 4);
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
    validate(COMMANDS[type].schema, parsed.data, "bad-request", `the data of ${type}`);
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

interface ConsumptionOptions<T extends CommandType> {
  readonly connection: NatsConnection;
  readonly namespace: string;
  readonly ensureStreams: () => ReturnType<typeof ensureStreams>;
  readonly request: ConsumeRequest<T>;
}

class PullConsumption<T extends CommandType> implements Consumption {
  readonly done: Promise<void>;
  readonly #options: ConsumptionOptions<T>;
  readonly #stop = new AbortController();
  readonly #pulls = new Set<ConsumerMessages>();
  #ensured: { readonly at: number; readonly info: Promise<ConsumerInfo> } | undefined;

  constructor(options: ConsumptionOptions<T>) {
    this.#options = options;
    const slots = Array.from({ length: options.request.concurrency ?? 1 }, () => this.#slot());
    this.done = Promise.all(slots).then(() => {});
  }

  stop(): Promise<void> {
    this.#stop.abort();
    this.#stopPulls();
    return this.done;
  }

  restart(): void {
    this.#ensured = undefined;
    this.#stopPulls();
  }

  async #slot(): Promise<void> {
    for (let failures = 0; !this.#stop.signal.aborted;) {
      try {
        await this.#pullOnce();
        failures = 0;
      } catch (error) {
        if (this.#stop.signal.aborted || this.#options.connection.isClosed()) return;
        this.#ensured = undefined;
        failures += 1;
        this.#onError(error);
        await this.#wait(Math.min(250 * 2 ** (failures - 1), 2000));
      }
    }
  }

  async #pullOnce(): Promise<void> {
    if (this.#ensured && performance.now() - this.#ensured.at > RECHECK_MILLISECONDS)
      this.#ensured = undefined;
    const pull = await jetstream(this.#options.connection)
      .consumers.getConsumerFromInfo(await this.#ensure())
      .fetch({ max_messages: 1, expires: PULL_MILLISECONDS });
    this.#pulls.add(pull);
    let taken: JsMsg | undefined;
    try {
      if (this.#stop.signal.aborted) pull.stop();
      for await (const message of pull) {
        taken = message;
        break;
      }
    } finally {
      this.#pulls.delete(pull);
    }
    // The pull is over by then: one that waits for its handler misses the broker's heartbeats.
    if (taken) await this.#handle(taken);
  }

  #ensure(): Promise<ConsumerInfo> {
    const { namespace, request } = this.#options;
    this.#ensured ??= {
      at: performance.now(),
      info: this.#options.ensureStreams().then((manager) => ensureConsumer(manager, namespace, request.type)),
    };
    return this.#ensured.info;
  }

  async #handle(message: JsMsg): Promise<void> {
    const { request } = this.#options;
    const delivery = deliveryOf(request.type, message);
    try {
      await request.handler(delivery);
      delivery.retryLater(5);
    } catch (error) {
      delivery.retryLater(5);
      this.#onError(error);
    }
  }

  #onError(error: unknown): void {
    this.#options.request.onError?.(error);
  }

  #wait(milliseconds: number): Promise<void> {
    return new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#stop.signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
  }

  #stopPulls(): void {
    for (const pull of this.#pulls) pull.stop();
  }
}

/** Pulls one message a free slot, so that nothing waits in this process while another process is idle. */
export const startConsumption = <T extends CommandType>(options: ConsumptionOptions<T>): Consumption =>
  new PullConsumption(options);
