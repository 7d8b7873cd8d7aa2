import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Requests of one connection that may wait for those before them; a connection with more is cut. */
const MOST_WAITING = 32;

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/**
 * Answers the requests of a connection one after another, however many come at once: HTTP/1.1 sends the answers
 * in that order anyway. So a connection that asks much takes turns with the others, and holds the memory of one
 * answer. What still waits when it closes is forgotten. It stands before all else that the server does with a
 * request.
 */
export function answerOneAtATime(server: Server): void {
  const [handle] = server.listeners("request") as Handler[];
  if (handle === undefined) throw new Error("the server has no handler yet");
  /** What waits on each connection that has a request at work. */
  const lines = new WeakMap<Socket, (() => void)[]>();
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
      handle.call(server, request, response);
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
