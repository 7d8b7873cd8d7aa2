import type { FastifyRequest } from "fastify";
import { expect, it } from "vitest";
import { sessionCookieOf } from "./session-cookie.ts";

const request = (cookies: Record<string, string>) => ({ cookies }) as unknown as FastifyRequest;
const both = request({ "__Host-internevo-session": "own", "internevo-session": "planted" });
const planted = request({ "internevo-session": "planted" });

it("takes no session from a cookie that another host of the domain may have set", () => {
  const publicUrl = new URL("https://ivo.example");
  expect(sessionCookieOf(both, publicUrl)).toBe("own");
  expect(sessionCookieOf(planted, publicUrl)).toBeUndefined();
});

it("takes the plain name without TLS, and no cookie where nobody signs in", () => {
  expect(sessionCookieOf(planted, new URL("http://ivo.example"))).toBe("planted");
  expect(sessionCookieOf(planted, undefined)).toBeUndefined();
});
