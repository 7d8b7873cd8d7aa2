import { request } from "node:http";
import type { FuzzRequest } from "./requests.ts";

export interface Reply {
  readonly status: number;
  readonly type: string;
  readonly body: string;
  readonly seconds: number;
}

/** A token that is wrong is tried from an address of its own: an address that guesses is locked out. */
const GUESSER = "127.0.9.9";

const headersOf = ({ headers, token, body }: FuzzRequest, right: string): Record<string, string> => ({
  ...headers,
  ...(body === null ? {} : { "content-length": String(Buffer.byteLength(body)) }),
  ...(token === "none" ? {} : { authorization: `Bearer ${token === "right" ? right : "ievo_wrong"}` }),
});

/**
 * Sends the request; a stream of events is read no further than its beginning. @returns null when no answer
 * came in time.
 */
export function exchange(
  base: URL,
  asked: FuzzRequest,
  token: string,
  limitSeconds: number,
): Promise<Reply | null> {
  const begin = performance.now();
  return new Promise((settle, fail) => {
    const sent = request(
      {
        host: base.hostname,
        port: base.port,
        path: asked.url,
        method: asked.method,
        headers: headersOf(asked, token),
        ...(asked.token === "wrong" ? { localAddress: GUESSER } : {}),
      },
      (reply) => {
        const type = reply.headers["content-type"] ?? "";
        let body = "";
        const end = (): void => {
          clearTimeout(timer);
          settle({ status: reply.statusCode ?? 0, type, body, seconds: (performance.now() - begin) / 1000 });
        };
        if (type.startsWith("text/event-stream")) {
          end();
          return void sent.destroy();
        }
        reply
          .setEncoding("utf8")
          .on("data", (text: string) => (body += text))
          .once("end", end)
          .once("error", fail);
      },
    );
    const timer = setTimeout(() => {
      settle(null);
      sent.destroy();
    }, limitSeconds * 1000);
    sent.on("error", (error: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      fail(error);
    });
    sent.end(asked.body ?? undefined);
  });
}

const quoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** The request as a command; the token is $TOKEN. */
export const curlOf = (base: URL, asked: FuzzRequest): string =>
  [
    "curl",
    "-i",
    "-X",
    asked.method,
    ...Object.entries(headersOf(asked, "$TOKEN"))
      .filter(([name]) => name !== "content-length")
      .map(([name, value]) =>
        name === "authorization" ? `-H "${name}: ${value}"` : `-H ${quoted(`${name}: ${value}`)}`,
      ),
    ...(asked.body === null ? [] : ["--data-raw", quoted(asked.body)]),
    quoted(`${base.origin}${asked.url}`),
  ].join(" ");
