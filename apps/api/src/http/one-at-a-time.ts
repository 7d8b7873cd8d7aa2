import type { Socket } from "node:net";
import type { FastifyInstance } from "fastify";

/** Requests of one connection that may wait for those before them; a connection with more is cut. */
const MOST_WAITING = 100;

/**
 * Answers the requests of a connection one after another, however many come at once: HTTP/1.1 sends the answers
 * in that order anyway. So a connection that asks much takes turns with the others, and holds the memory of one
 * answer. What still waits when it closes is forgotten.
 */
export function registerOneAtATime(app: FastifyInstance): void {
  /** What waits on each connection that has a request at work. */
  const lines = new WeakMap<Socket, (() => void)[]>();
  app.addHook("onRequest", (request, reply, done) => {
    const { socket } = request.raw;
    // One listener more than other parts of the server bring.
    reply.raw.setMaxListeners(reply.raw.getMaxListeners() + 1);
    const begin = (): void => {
      reply.raw.once("close", () => {
        const next = lines.get(socket)?.shift();
        if (next === undefined) lines.delete(socket);
        // A turn of the event loop lies between: other connections have theirs.
        else setImmediate(() => socket.destroyed || next());
      });
      done();
    };
    const waiting = lines.get(socket);
    if (waiting === undefined) {
      lines.set(socket, []);
      begin();
    } else if (waiting.length < MOST_WAITING) waiting.push(begin);
    else {
      lines.set(socket, []);
      socket.destroy();
    }
  });
}
