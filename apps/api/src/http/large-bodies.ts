import { FairTurns, type FairTurnsOptions } from "@internevo/service-kit";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { callerOf, callerOfOwner } from "../work/caller.ts";
import { answerStalled, closeSlowly } from "./client-errors.ts";
import { goneSignal } from "./gone.ts";
import { addressOf } from "./limits.ts";
import { LOOK_MILLISECONDS } from "./timeouts.ts";

/** Bytes up to which a body is read as it comes. */
export const SMALL_BODY_BYTES = 16_384;

const lengthOf = ({ headers }: FastifyRequest): number =>
  headers["transfer-encoding"] === undefined ? Number(headers["content-length"] ?? 0) : Infinity;

/**
 * Answers and cuts a connection of whose body nothing comes for so long. It counts looks, not time: a process that had
 * no time to read is no fault of the client's.
 */
function watch({ socket }: FastifyRequest, stalledMilliseconds: number): () => void {
  const most = Math.ceil(stalledMilliseconds / LOOK_MILLISECONDS);
  let bytes = socket.bytesRead;
  let looks = 0;
  const looking = setInterval(() => {
    looks = socket.bytesRead === bytes ? looks + 1 : 0;
    bytes = socket.bytesRead;
    if (looks < most) return;
    clearInterval(looking);
    answerStalled(socket);
  }, LOOK_MILLISECONDS).unref();
  return () => clearInterval(looking);
}

/** Bodies of refused requests that are read and forgotten at once, and for how long each. */
const FORGOTTEN_AT_ONCE = 4;
const FORGET_MILLISECONDS = 100;

/**
 * Takes what still comes of a body whose request is answered: a client that sends it whole before it listens
 * would not see the answer. In turns, since a thousand at once would be a gigabyte to read; what is not taken
 * within the second in which the connection is closed is lost, and with it perhaps the answer.
 */
function forgetting(): (request: FastifyRequest) => void {
  const turns = new FairTurns({
    atOnce: FORGOTTEN_AT_ONCE,
    atOnceOfOne: FORGOTTEN_AT_ONCE,
    mostOfOne: Infinity,
    mostWaiting: Infinity,
  });
  const never = new AbortController().signal;
  return ({ raw, socket, ip }) => {
    closeSlowly(socket);
    // Node takes what nobody has begun to read for forgotten already, and reads all of it as fast as it comes.
    raw.pause();
    raw.read();
    void turns.take(ip, never).then((end) => {
      if (socket.destroyed) return end();
      raw.resume();
      raw.once("close", end);
      setTimeout(end, FORGET_MILLISECONDS).unref();
    });
  };
}

export interface LargeBodies {
  /** Says that the request's body was read, and is held by the request's own turn from now on. */
  read(request: FastifyRequest): void;
}

/**
 * Few large bodies are read at once: the others stay where they are, on their way, until it is their turn. So
 * bodies that are sent in part hold little memory, however many they are. By then their token is known: who
 * shows a wrong one is refused before.
 */
export function registerLargeBodies(
  app: FastifyInstance,
  options: {
    readonly turns: FairTurnsOptions;
    readonly stalledMilliseconds: number;
    readonly largestBytes: number;
  },
): LargeBodies {
  const turns = new FairTurns(options.turns);
  const ends = new WeakMap<FastifyRequest, () => void>();
  async function wait(request: FastifyRequest, reply: FastifyReply): Promise<void> {
    const { actor } = request;
    // Without a token, as at a sign-in, an address has its turns.
    const caller = actor ? callerOfOwner(actor) : callerOf(`address ${addressOf(request)}`);
    const { token, group } = caller;
    const endTurn = await turns.take(token, goneSignal(reply), { groupName: group });
    const endWatch = watch(request, options.stalledMilliseconds);
    const end = (): void => (endWatch(), endTurn());
    ends.set(request, end);
    reply.raw.once("finish", end).once("close", end);
  }
  app.addHook("preParsing", async (request, reply, payload) => {
    const bytes = lengthOf(request);
    if (bytes === 0) return payload;
    // Until its body is there, it has nothing to do.
    request.turn?.giveUp();
    // What is too large is refused unread.
    const isRefused = bytes > options.largestBytes && bytes !== Infinity;
    if (bytes > SMALL_BODY_BYTES && !isRefused) await wait(request, reply);
    return payload;
  });
  const forget = forgetting();
  app.addHook("onSend", (request, reply, _payload, done) => {
    if (!request.raw.complete && lengthOf(request) > SMALL_BODY_BYTES) {
      reply.header("connection", "close");
      forget(request);
    }
    done();
  });
  return { read: (request) => ends.get(request)?.() };
}
