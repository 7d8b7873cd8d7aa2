import {
  claimDeliveries,
  pause,
  releaseDelivery,
  settleDelivery,
  WEBHOOK_CHANNEL,
  type ClaimedDelivery,
  type Database,
} from "@internevo/store";
import { Names } from "./names.ts";
import { send, type Answer, type SendOptions } from "./send.ts";
import { signatureHeaders } from "./sign.ts";
import { longestOf, secondsBeforeNextTry } from "./tries.ts";

export interface DeliverOptions extends Omit<SendOptions, "signal" | "names"> {
  readonly database: Database;
  /** Ends the delivering: what is being sent is given back. */
  readonly signal: AbortSignal;
  readonly onAttempt: (outcome: "succeeded" | "failed") => void;
  readonly onError: (error: unknown, what: string) => void;
}

const MOST_AT_ONCE = 100;
const POLL_SECONDS = 2;
/** Beyond the time of a request, before another process may take a delivery. */
const CLAIM_MARGIN_SECONDS = 15;
const GONE = 410;

/** Sends one delivery, and writes down what came of it. */
async function deliver(claimed: ClaimedDelivery, options: DeliverOptions, names: Names): Promise<void> {
  const { database, signal, onAttempt } = options;
  const { eventId, project, url, payload, secret, tries } = claimed;
  const at = new Date();
  const began = performance.now();
  let answer: Answer;
  try {
    const headers = signatureHeaders(secret, {
      id: eventId,
      atSeconds: Math.floor(at.getTime() / 1000),
      payload,
    });
    answer = await send({ project, url, headers, payload }, { ...options, names });
  } catch (error) {
    if (!signal.aborted) throw error;
    return releaseDelivery(database.db, claimed);
  }
  const { status, error, excerpt, retryAfterSeconds } = answer;
  const wait = secondsBeforeNextTry(tries, Math.random());
  await settleDelivery(database, claimed, {
    attempt: {
      at: at.toISOString(),
      durationSeconds: (performance.now() - began) / 1000,
      status,
      error,
      excerpt,
    },
    isGone: status === GONE,
    retryInSeconds: error === null || wait === null ? null : longestOf(wait, retryAfterSeconds),
  });
  onAttempt(error === null ? "succeeded" : "failed");
}

/**
 * Delivers what is due until the signal ends it. Any number of processes may: each delivery is claimed by one of
 * them. A receiver holds nobody up but itself: each webhook has its own bound of open requests, and each project one
 * of names that are looked up.
 */
export async function deliverWebhooks(options: DeliverOptions): Promise<void> {
  const { database, signal, timeoutSeconds, onError } = options;
  const names = new Names();
  const sending = new Set<Promise<void>>();
  let news = new AbortController();
  const wake = (): void => news.abort();
  const unlisten = database.notifications.listen(WEBHOOK_CHANNEL, wake);
  signal.addEventListener("abort", wake, { once: true });
  const begin = (claimed: ClaimedDelivery): void => {
    const work = deliver(claimed, options, names)
      .catch((error: unknown) => onError(error, "a delivery could not be written down, and will be repeated"))
      .finally(() => {
        sending.delete(work);
        // There may be more for the same webhook.
        wake();
      });
    sending.add(work);
  };
  while (!signal.aborted) {
    news = new AbortController();
    let claimed: readonly ClaimedDelivery[] = [];
    try {
      claimed = await claimDeliveries(database, {
        most: MOST_AT_ONCE,
        claimSeconds: timeoutSeconds + CLAIM_MARGIN_SECONDS,
      });
    } catch (error) {
      onError(error, "deliveries wait for Postgres");
      await pause(1000, signal);
    }
    claimed.forEach(begin);
    if (claimed.length < MOST_AT_ONCE) await pause(POLL_SECONDS * 1000, news.signal);
  }
  unlisten();
  signal.removeEventListener("abort", wake);
  await Promise.all(sending);
}
