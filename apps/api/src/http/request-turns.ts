import { FairTurns } from "@internevo/service-kit";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { callerOf, callerOfOwner, type Caller } from "../work/caller.ts";
import { goneSignal } from "./gone.ts";
import { addressOf, type Limits } from "./limits.ts";
import type { Timeouts } from "./timeouts.ts";

/**
 * The turn of one request among those that are at work. It ends when its answer is taken; while the request waits for
 * its body or for a search, others have it.
 */
export class RequestTurn {
  readonly #turns: FairTurns;
  readonly #caller: Caller;
  readonly #gone: AbortSignal;
  readonly #milliseconds: number;
  #end: (() => void) | undefined;
  #lapse: NodeJS.Timeout | undefined;

  /** @param milliseconds until it goes to the next */
  constructor(turns: FairTurns, caller: Caller, gone: AbortSignal, milliseconds: number) {
    this.#milliseconds = milliseconds;
    this.#turns = turns;
    this.#caller = caller;
    this.#gone = gone;
  }

  /** @throws ProblemError `rate-limited`, `unavailable` when too many wait; the signal's reason */
  begin(): Promise<void> {
    return this.#take(false);
  }

  /** Waits for the next turn, where this one was given up or has lapsed. @throws the signal's reason */
  async resume(): Promise<void> {
    if (this.#end === undefined) await this.#take(true);
  }

  giveUp(): void {
    clearTimeout(this.#lapse);
    this.#end?.();
    this.#end = undefined;
  }

  async #take(isBack: boolean): Promise<void> {
    const { token, group } = this.#caller;
    this.#end = await this.#turns.take(token, this.#gone, { groupName: group, isBack });
    this.#lapse = setTimeout(() => this.giveUp(), this.#milliseconds).unref();
  }
}

const isStream = (payload: unknown): boolean =>
  typeof payload === "object" && payload !== null && "pipe" in payload;

/**
 * Few requests of a token, or of the tokens of one project, are at work at once; the others wait for their turn. An
 * answer of a megabyte takes the server a while to read and to write, and whoever asks for little waits for few of
 * them, however many somebody else has asked for. Requests without a token take turns by their address, among
 * themselves.
 * @returns what waits for the first turn of a request, before anything is done for it but to know its token
 */
export function registerRequestTurns(
  app: FastifyInstance,
  { requests, openRequests }: Pick<Limits, "requests" | "openRequests">,
  { turnMilliseconds }: Pick<Timeouts, "turnMilliseconds">,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  const turns = new FairTurns(requests);
  const openTurns = new FairTurns(openRequests);
  const answered = new WeakSet<FastifyRequest>();
  app.decorateRequest("turn", null);
  // What is written out in full takes a turn, whatever was waited for until then.
  app.addHook("preSerialization", async (request, _reply, payload) => {
    if (request.problem === null) await request.turn?.resume();
    return payload;
  });
  app.addHook("onSend", (request, reply, payload, done) => {
    answered.add(request);
    // A stream goes on by itself, and whoever has left takes no answer.
    if (isStream(payload) || reply.raw.destroyed) request.turn?.giveUp();
    done();
  });
  return async (request, reply) => {
    const { actor } = request;
    const turn = new RequestTurn(
      actor === null ? openTurns : turns,
      actor === null ? callerOf(`address ${addressOf(request)}`) : callerOfOwner(actor),
      goneSignal(reply),
      turnMilliseconds,
    );
    await turn.begin();
    request.turn = turn;
    reply.raw.once("finish", () => turn.giveUp());
    // Who asks and leaves again and again has no more at work than who waits: until its work is done, or it lapses.
    reply.raw.once("close", () => answered.has(request) && turn.giveUp());
  };
}

declare module "fastify" {
  interface FastifyRequest {
    /** Null: it takes none, or has not had it yet. */
    turn: RequestTurn | null;
  }
}
