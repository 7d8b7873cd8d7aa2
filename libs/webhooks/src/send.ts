import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { CLOUD_EVENTS_MEDIA_TYPE, WEBHOOK_BOUNDS } from "@internevo/contracts";
import { allowedLookup, assertHost, type AddressRule } from "./addresses.ts";
import type { Names } from "./names.ts";

export interface SendOptions extends AddressRule {
  readonly names: Names;
  /** For everything: name, connection, request and answer. */
  readonly timeoutSeconds: number;
  readonly signal: AbortSignal;
}

/** What came of a request. */
export interface Answer {
  /** Null: no answer came. */
  readonly status: number | null;
  /** Null: the receiver took it. */
  readonly error: string | null;
  /** The first bytes of the answer, as text. */
  readonly excerpt: string;
  /** What the receiver asked us to wait. */
  readonly retryAfterSeconds: number | null;
}

export interface Outgoing {
  /** Whose webhook it is. */
  readonly project: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly payload: string;
}

const noAnswer = (error: string): Answer => ({ status: null, error, excerpt: "", retryAfterSeconds: null });

function retryAfterOf({ headers }: IncomingMessage): number | null {
  const text = headers["retry-after"];
  if (text === undefined) return null;
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) && seconds > 0 ? seconds : null;
}

function errorOf(status: number): string | null {
  if (status >= 200 && status <= 299) return null;
  if (status >= 300 && status <= 399) return `answered ${status}: redirects are not followed`;
  return `answered ${status}`;
}

/** What can be stored: no NUL. */
const storable = (bytes: Buffer): string => bytes.toString("utf8").replaceAll("\0", "\ufffd");

/**
 * Sends one request and reads no more of the answer than its excerpt. The answer's status decides: a body that
 * never ends changes nothing. Redirects are not followed, proxies of the environment are not used.
 * @throws the signal's reason; nothing else: whatever the receiver does is an answer
 */
export async function send(outgoing: Outgoing, options: SendOptions): Promise<Answer> {
  const { timeoutSeconds, signal, names } = options;
  signal.throwIfAborted();
  const url = new URL(outgoing.url);
  try {
    assertHost(url, options);
  } catch (error) {
    return noAnswer((error as Error).message);
  }
  const body = Buffer.from(outgoing.payload);
  return new Promise<Answer>((resolve, reject) => {
    let answer: Answer | undefined;
    const over = new AbortController();
    const chunks: Buffer[] = [];
    const call = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
      method: "POST",
      // A connection for each: none is kept from one receiver to the next.
      agent: false,
      lookup: allowedLookup(options, (host) => names.resolve(host, outgoing.project, over.signal)),
      headers: {
        "content-type": CLOUD_EVENTS_MEDIA_TYPE,
        "content-length": String(body.length),
        "user-agent": "InternEvo webhooks",
        ...outgoing.headers,
      },
    });
    const finish = (without: Answer): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      over.abort(new Error("the request is over"));
      call.destroy();
      const bytes = Buffer.concat(chunks).subarray(0, WEBHOOK_BOUNDS.excerptBytes);
      resolve(answer ? { ...answer, excerpt: storable(bytes) } : without);
    };
    const timer = setTimeout(
      () => finish(noAnswer(`no answer within ${timeoutSeconds} s`)),
      1000 * timeoutSeconds,
    );
    const onAbort = (): void => {
      reject(signal.reason as Error);
      finish(noAnswer("stopped"));
    };
    signal.addEventListener("abort", onAbort, { once: true });
    call.on("error", (error: NodeJS.ErrnoException) =>
      finish(noAnswer(error.message || (error.code ?? "failed"))),
    );
    const hear = (response: IncomingMessage): void => {
      const status = response.statusCode ?? 0;
      answer = { status, error: errorOf(status), excerpt: "", retryAfterSeconds: retryAfterOf(response) };
    };
    // Another protocol, which nobody asked for.
    call.on("upgrade", (response) => (hear(response), finish(noAnswer(""))));
    call.on("response", (response) => {
      hear(response);
      let read = 0;
      response.on("data", (chunk: Buffer) => {
        chunks.push(chunk);
        read += chunk.length;
        if (read >= WEBHOOK_BOUNDS.excerptBytes) finish(noAnswer(""));
      });
      response.on("end", () => finish(noAnswer("")));
      response.on("error", () => finish(noAnswer("")));
      response.on("close", () => finish(noAnswer("")));
    });
    call.end(body);
  });
}
