import { ProblemError } from "@internevo/domain";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Streams that are being opened at once. */
export const OPENED_AT_ONCE = 4;

/** Lets so many work at once; of those who wait, callers take turns, each in its own order. */
export class TurnsByCaller {
  readonly #atOnce: number;
  /** Who waits, by caller, the one whose turn is next first. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #working = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Ends when it is the caller's turn. @returns what ends the turn; calling it again does nothing */
  async take(caller: string): Promise<() => void> {
    if (this.#working < this.#atOnce) this.#working += 1;
    else
      await new Promise<void>((begin) => {
        const own = this.#waiting.get(caller);
        if (own) own.push(begin);
        else this.#waiting.set(caller, [begin]);
      });
    let hasEnded = false;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      this.#next();
    };
  }

  #next(): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#working -= 1;
      return;
    }
    const [caller, [begin, ...others]] = first as [string, [() => void, ...(() => void)[]]];
    this.#waiting.delete(caller);
    // Behind all other callers.
    if (others.length > 0) this.#waiting.set(caller, others);
    begin();
  }
}

/**
 * Few event streams are opened at once. Each asks the database what its token may see, and a thousand of them would
 * keep everybody else's questions waiting.
 * @returns what waits for the turn of a caller to open a stream
 */
export function registerOpenings(
  app: FastifyInstance,
): (caller: string, request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const turns = new TurnsByCaller(OPENED_AT_ONCE);
  const ends = new WeakMap<FastifyRequest, () => void>();
  // Its answer begins, or the error that it is refused with.
  app.addHook("onSend", (request, _reply, _payload, done) => {
    ends.get(request)?.();
    done();
  });
  return async (caller, request, reply) => {
    const end = await turns.take(caller);
    ends.set(request, end);
    if (reply.raw.destroyed) {
      end();
      throw new ProblemError("unavailable", "whoever asked has gone");
    }
    reply.raw.once("close", end);
  };
}
