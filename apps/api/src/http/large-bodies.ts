import { FairTurns, type FairTurnsOptions } from "@internevo/service-kit";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { callerOf } from "../work/caller.ts";
import { answerStalled, closeSlowly } from "./client-errors.ts";
import { goneSignal } from "./gone.ts";
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

export interface LargeBodies {
  /** Says that the request's body was read, and is held by the request's own turn from now on. */
  read(request: FastifyRequest): void;
}

/**
 * Few large bodies are read at once: the others stay where they are, on their way, until it is their turn. So bodies that
 * are sent in part hold little memory, however many they are. By then their token is known: who shows a
 * wrong one is refused before.
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
    const { token, group } = callerOf(actor?.id ?? `address ${request.ip}`, actor?.project);
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
  app.addHook("onSend", (request, _reply, _payload, done) => {
    // Whoever still sends would never see an answer whose connection is cut.
    if (!request.raw.complete) closeSlowly(request.socket);
    done();
  });
  return { read: (request) => ends.get(request)?.() };
}
