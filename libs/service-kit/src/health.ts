import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { collectDefaultMetrics, Registry } from "prom-client";

export interface Health {
  readonly registry: Registry;
  /**
   * Names what readiness needs; every check must answer true.
   * @param forSeconds an answer counts for so long: whoever asks meanwhile costs nothing
   */
  addCheck(name: string, check: () => boolean | Promise<boolean>, forSeconds?: number): void;
  /** What `/metrics` says: a second old at most, where many ask. */
  metrics(): Promise<string>;
  /** What `/readyz` says. */
  readiness(): Promise<{ readonly ready: boolean; readonly checks: Record<string, boolean> }>;
  /** @returns the address, for example `http://127.0.0.1:40123`. */
  listen(host: string, port: number): Promise<string>;
  close(): Promise<void>;
}

type Check = () => boolean | Promise<boolean>;

/** A check whose answer counts for a time; of an error nothing is remembered. */
function remembered(check: Check, forSeconds: number): Check {
  let answer = false;
  let until = -Infinity;
  return async () => {
    if (performance.now() < until) return answer;
    answer = await check();
    until = performance.now() + 1000 * forSeconds;
    return answer;
  };
}

/** How many times as long as it took a text is kept, and how long at most: writing takes a tenth of the process. */
const KEPT_TIMES = 9;
const MOST_KEPT_MILLISECONDS = 1000;
/** Who comes later than this does not wait for one that is still being written. */
const MOST_SHARED_MILLISECONDS = 5000;

/**
 * Whoever asks while a text is written, or kept, gets the same one: many who ask cost little more than one does.
 * Anybody may ask for metrics, and nobody counts how often. @param now in milliseconds
 */
export function writtenSeldom(
  write: () => Promise<string>,
  now: () => number = () => performance.now(),
): () => Promise<string> {
  let written: Promise<string> | undefined;
  let until = -Infinity;
  return () => {
    if (written !== undefined && now() < until) return written;
    const begun = now();
    until = begun + MOST_SHARED_MILLISECONDS;
    const text: Promise<string> = write().then(
      (done) => {
        if (written === text) until = now() + Math.min(KEPT_TIMES * (now() - begun), MOST_KEPT_MILLISECONDS);
        return done;
      },
      (error: unknown) => {
        if (written === text) until = -Infinity;
        throw error;
      },
    );
    return (written = text);
  };
}

/** `/healthz` (the process lives), `/readyz` (it can work), `/metrics` (Prometheus). */
export function createHealth(service: string): Health {
  const registry = new Registry();
  registry.setDefaultLabels({ service });
  collectDefaultMetrics({ register: registry });
  const checks = new Map<string, Check>();
  let server: Server | undefined;

  const metrics = writtenSeldom(() => registry.metrics());

  // Whoever asks while it is looked gets the same answer: many who ask cost what one does.
  let looking: ReturnType<Health["readiness"]> | undefined;
  const readiness = (): ReturnType<Health["readiness"]> =>
    (looking ??= look().finally(() => (looking = undefined)));
  // A check that fails is no readiness: what it checks tells of its own errors.
  async function look(): ReturnType<Health["readiness"]> {
    const answers = await Promise.all(
      [...checks].map(async ([name, check]): Promise<[string, boolean]> => [
        name,
        await Promise.resolve()
          .then(check)
          .catch(() => false),
      ]),
    );
    return { ready: answers.every(([, ok]) => ok), checks: Object.fromEntries(answers) };
  }

  const answer = (response: ServerResponse, status: number, type: string, body: string) =>
    response.writeHead(status, { "content-type": type, "cache-control": "no-store" }).end(body);
  async function route(path: string, response: ServerResponse): Promise<void> {
    if (path === "/healthz") answer(response, 200, "application/json", '{"status":"ok"}');
    else if (path === "/readyz") {
      const state = await readiness();
      answer(response, state.ready ? 200 : 503, "application/json", JSON.stringify(state));
    } else if (path === "/metrics") answer(response, 200, registry.contentType, await metrics());
    else answer(response, 404, "application/json", '{"status":"not found"}');
  }

  return {
    registry,
    metrics,
    addCheck: (name, check, forSeconds = 0) => void checks.set(name, remembered(check, forSeconds)),
    readiness,
    async listen(host, port) {
      const made = createServer((request, response) => {
        route((request.url ?? "/").split("?")[0] ?? "/", response).catch(
          (error: unknown) =>
            response.headersSent ||
            answer(
              response,
              500,
              "application/json",
              JSON.stringify({ status: "error", message: String(error) }),
            ),
        );
      });
      server = made;
      await new Promise<void>((resolve, reject) => made.once("error", reject).listen(port, host, resolve));
      const { port: bound } = made.address() as AddressInfo;
      return `http://${host.includes(":") ? `[${host}]` : host}:${bound}`;
    },
    async close() {
      const made = server;
      if (!made?.listening) return;
      made.closeAllConnections();
      await new Promise<void>((resolve) => made.close(() => resolve()));
    },
  };
}
