import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { FairTurns } from "@internevo/service-kit";
import { watchArrivals } from "./arrivals.ts";

/** Requests of one connection that may wait for those before them; a connection with more is cut. */
const MOST_WAITING = 32;

/** Requests that begin in one turn of the event loop; those of others are heard in between. */
const BEGUN_AT_ONCE = 4;

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Answers the requests of a connection one after another, however many come at once: HTTP/1.1 sends the answers
 * in that order anyway. So a connection that asks much takes turns with the others, and holds the memory of one
 * answer. What still waits when it closes is forgotten. Of a thousand requests that come at once few begin in
 * one turn of the event loop, and whoever shows another token or comes from elsewhere does not wait for all of
 * them. It stands before all else that the server does with a request.
 */
export function answerOneAtATime(server: Server): void {
  const [handle] = server.listeners("request") as Handler[];
  if (handle === undefined) throw new Error("the server has no handler yet");
  /** What waits on each connection that has a request at work. */
  const lines = new WeakMap<Socket, (() => void)[]>();
  const turns = new FairTurns({
    atOnce: BEGUN_AT_ONCE,
    atOnceOfOne: BEGUN_AT_ONCE,
    mostOfOne: Infinity,
    mostWaiting: Infinity,
  });
  const never = new AbortController().signal;
  const quiet = watchArrivals(server);
  server.removeAllListeners("request").on("request", (request, response) => {
    const { socket } = request;
    if (socket.destroyed) return;
    const begin = (): void => {
      // One listener more than other parts of the server bring.
      response.setMaxListeners(response.getMaxListeners() + 1);
      response.once("close", () => {
        const isLast = response.getHeader("connection") === "close";
        const next = isLast ? undefined : lines.get(socket)?.shift();
        if (next === undefined) lines.delete(socket);
        // A turn of the event loop lies between: other connections have theirs.
        else setImmediate(() => socket.destroyed || next());
      });
      // What is shown need not be valid: it only says whose turn it is.
      const name = request.headers.authorization ?? request.headers.cookie ?? socket.remoteAddress ?? "";
      const answer = (end: () => void): void => {
        setImmediate(() => void quiet().then(end));
        if (!socket.destroyed) handle.call(server, request, response);
      };
      const end = turns.takeNow(name);
      if (end) answer(end);
      else void turns.take(name, never).then(answer);
    };
    const waiting = lines.get(socket);
    if (waiting === undefined) {
      lines.set(socket, []);
      begin();
    } else if (waiting.length < MOST_WAITING) waiting.push(begin);
    else {
      lines.delete(socket);
      socket.destroy();
    }
  });
}
