import type { FastifyReply } from "fastify";

/**
 * Why all that is done for a client ends when it leaves. One for all: an error that is made where a request closes
 * keeps what its stack was called for, with the request's body, for as long as anything keeps the error.
 */
const GONE = new DOMException("whoever asked has gone", "AbortError");

const signals = new WeakMap<object, AbortSignal>();

/** Aborts when the client goes away before its answer is out, or when the answer is out. One for each request. */
export function goneSignal({ raw }: Pick<FastifyReply, "raw">): AbortSignal {
  const known = signals.get(raw);
  if (known) return known;
  const gone = new AbortController();
  signals.set(raw, gone.signal);
  if (raw.destroyed) gone.abort(GONE);
  else raw.once("close", () => gone.abort(GONE));
  return gone.signal;
}
