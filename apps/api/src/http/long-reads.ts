import { FairTurns, type FairTurnsOptions } from "@internevo/service-kit";
import type { FastifyReply } from "fastify";
import { callerNow } from "../work/caller.ts";
import { goneSignal } from "./gone.ts";

/**
 * Reads of the database that may take seconds: all steps of a training, or the whole audit log. Few are at work at
 * once, fewer than the API has connections, so that who shows a token is always found. A place is kept until its read
 * has ended, however long that takes, and also when whoever asked has left.
 */
export class LongReads {
  readonly #turns: FairTurns;

  constructor(options: FairTurnsOptions) {
    this.#turns = new FairTurns(options);
  }

  /**
   * Reads when it is the turn of whoever asks; the request's own turn goes to others meanwhile.
   * @throws ProblemError `rate-limited`, `unavailable` when too many wait; what the read throws
   */
  run<T>(reply: FastifyReply, read: () => Promise<T>): Promise<T> {
    const { token, group, giveUpTurn } = callerNow();
    giveUpTurn();
    return this.#turns.run(token, goneSignal(reply), read, group);
  }
}
