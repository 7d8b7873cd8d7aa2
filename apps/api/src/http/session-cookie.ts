import { CSRF_HEADER } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { FastifyReply, FastifyRequest } from "fastify";
import { createHmac, timingSafeEqual } from "node:crypto";

const READS = new Set(["GET", "HEAD", "OPTIONS"]);

/**
 * The cookie's name where the console comes over TLS, which keeps other hosts of the domain from setting it
 * (RFC 6265bis, section 4.1.3.2), and where it does not.
 */
const NAME = "internevo-session";
const secureName = (name: string): string => `__Host-${name}`;
const nameFor = (name: string, publicUrl: URL): string =>
  publicUrl.protocol === "https:" ? secureName(name) : name;

export interface CookieOptions {
  /** Undefined: until the browser is closed. */
  readonly seconds?: number;
  readonly publicUrl: URL;
}

/** Sets a cookie that no script reads and no other site has sent along with what changes something. */
export function setCookie(
  reply: FastifyReply,
  name: string,
  value: string,
  { seconds, publicUrl }: CookieOptions,
): void {
  reply.setCookie(nameFor(name, publicUrl), value, {
    path: "/",
    httpOnly: true,
    sameSite: "lax",
    secure: publicUrl.protocol === "https:",
    ...(seconds === undefined ? {} : { maxAge: seconds }),
  });
}

export const readCookie = ({ cookies }: FastifyRequest, name: string, publicUrl: URL): string | undefined =>
  cookies[nameFor(name, publicUrl)];

/**
 * The secret of the browser's session, where it has one. With TLS the other name does not count: another host of
 * the domain could have set it. @param publicUrl undefined: nobody signs in, and no cookie is a session
 */
export const sessionCookieOf = (request: FastifyRequest, publicUrl: URL | undefined): string | undefined =>
  publicUrl && readCookie(request, NAME, publicUrl);

export const clearCookie = (reply: FastifyReply, name: string, publicUrl: URL): void =>
  setCookie(reply, name, "", { seconds: 0, publicUrl });

export const setSessionCookie = (reply: FastifyReply, secret: string, options: CookieOptions): void =>
  setCookie(reply, NAME, secret, options);
export const clearSessionCookie = (reply: FastifyReply, publicUrl: URL): void =>
  clearCookie(reply, NAME, publicUrl);

/** What the console's requests show, and another site cannot know: it follows from the cookie's secret. */
export const csrfTokenOf = (secret: string): string =>
  createHmac("sha256", secret).update("csrf").digest("base64url");

const isSame = (a: string, b: string): boolean => {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
};

const refused = (field: string, value: unknown, message: string): ProblemError =>
  new ProblemError("forbidden", "this request does not come from the console", [
    {
      field,
      value,
      message,
      remedy: `requests by cookie that change something have \`csrfToken\` of GET /api/v1/whoami in ${CSRF_HEADER}; programs use a token`,
    },
  ]);

/**
 * What changes something by a cookie must come from the console itself: a browser sends the cookie with what
 * other sites ask for, too. @throws ProblemError `forbidden`
 */
export function assertFromConsole(request: FastifyRequest, secret: string, publicUrl: URL | undefined): void {
  if (READS.has(request.method)) return;
  const { origin } = request.headers;
  // Browsers send it with everything that is no GET or HEAD (Fetch, section 3.2).
  if (origin !== publicUrl?.origin) throw refused("origin", origin, `is not ${publicUrl?.origin ?? "known"}`);
  const shown = request.headers[CSRF_HEADER];
  if (typeof shown !== "string") throw refused(CSRF_HEADER, undefined, "is missing");
  if (!isSame(shown, csrfTokenOf(secret))) throw refused(CSRF_HEADER, undefined, "is not this session's");
}
