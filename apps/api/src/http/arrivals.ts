import type { Server } from "node:http";
import { setImmediate as turnOfLoop } from "node:timers/promises";

/** So many connections in so short a time are a burst. */
const BURST = 8;
const BURST_MILLISECONDS = 100;
/** A burst is over when no connection has come for so long. */
const QUIET_MILLISECONDS = 2;
/** Requests wait for a burst's end so long at most, and then for no other before so much time has passed. */
const HELD_MILLISECONDS = 300;
const BETWEEN_MILLISECONDS = 1500;

/**
 * Node takes one connection in each turn of the event loop. While a thousand wait to be taken, whoever comes
 * behind them waits for as many turns: requests wait meanwhile, so that the turns are short.
 * @returns what resolves when no burst of connections comes, or it has lasted long
 */
export function watchArrivals(server: Server): () => Promise<void> {
  const times = new Float64Array(BURST).fill(-Infinity);
  let count = 0;
  let heldSince = -Infinity;
  server.on("connection", () => void (times[count++ % BURST] = performance.now()));
  const isHeld = (): boolean => {
    const now = performance.now();
    const last = times[(count + BURST - 1) % BURST] ?? 0;
    const first = times[count % BURST] ?? 0;
    if (now - last > QUIET_MILLISECONDS || last - first > BURST_MILLISECONDS) return false;
    if (now - heldSince > HELD_MILLISECONDS + BETWEEN_MILLISECONDS) heldSince = now;
    return now - heldSince < HELD_MILLISECONDS;
  };
  return async () => {
    while (isHeld()) await turnOfLoop();
  };
}
