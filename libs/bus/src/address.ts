import { ProblemError } from "@internevo/domain";

export interface NatsAddress {
  readonly servers: string[];
  readonly token?: string;
  readonly user?: string;
  readonly pass?: string;
  readonly tls: boolean;
}

/**
 * Reads `NATS_URL`: one or more `nats://[token@|user:password@]host[:port]`, separated by commas (`tls://`
 * for TLS). Credentials come from the first.
 * @throws ProblemError `bad-request`.
 */
export function parseNatsUrl(text: string): NatsAddress {
  const urls = text.split(",").map((part) => {
    try {
      const url = new URL(part.trim());
      if (!["nats:", "tls:"].includes(url.protocol) || url.hostname === "")
        throw new TypeError("not a NATS address");
      return url;
    } catch (error) {
      throw new ProblemError(
        "bad-request",
        "NATS_URL is not valid",
        [
          {
            field: "NATS_URL",
            value: part.replace(/\/\/.*@/, "//…@"),
            message: "is no NATS address",
            remedy: "write nats://host:4222, or several separated by commas",
          },
        ],
        { cause: error },
      );
    }
  });
  const first = urls[0];
  const user = decodeURIComponent(first?.username ?? "");
  const pass = decodeURIComponent(first?.password ?? "");
  return {
    servers: urls.map((url) => `${url.hostname}:${url.port || "4222"}`),
    tls: urls.some((url) => url.protocol === "tls:"),
    ...(user !== "" && pass === "" ? { token: user } : {}),
    ...(user !== "" && pass !== "" ? { user, pass } : {}),
  };
}
