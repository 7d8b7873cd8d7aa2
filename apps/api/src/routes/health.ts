import type { Health } from "@internevo/service-kit";
import { Counter, Gauge, Histogram } from "prom-client";
import type { ApiInstance } from "../http/instance.ts";
import type { OpenStreams } from "../http/sse.ts";

/** `/healthz`, `/readyz` and `/metrics` on the API's own port, and what is counted of its requests. */
export function registerHealthRoutes(
  app: ApiInstance,
  options: { readonly health: Health; readonly streams: OpenStreams },
): void {
  const { health, streams } = options;
  const registers = [health.registry];
  const seconds = new Histogram({
    name: "internevo_http_request_seconds",
    help: "Time to answer",
    labelNames: ["method", "route", "status"],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10],
    registers,
  });
  const problems = new Counter({
    name: "internevo_http_problems_total",
    help: "Refused requests by code",
    labelNames: ["code"],
    registers,
  });
  new Gauge({
    name: "internevo_http_open_streams",
    help: "Event streams that are open",
    registers,
    collect() {
      this.set(streams.size);
    },
  });
  app.addHook("onResponse", async (request, reply) => {
    const route = request.routeOptions.url ?? "(none)";
    seconds.observe(
      { method: request.method, route, status: String(reply.statusCode) },
      reply.elapsedTime / 1000,
    );
    if (request.problem !== null) problems.inc({ code: request.problem.code });
  });
  const machines = { config: { isForMachines: true } } as const;
  app.get("/healthz", machines, async (_request, reply) =>
    reply.header("cache-control", "no-store").send({ status: "ok" }),
  );
  app.get("/readyz", machines, async (_request, reply) => {
    const state = await health.readiness();
    return reply
      .code(state.ready ? 200 : 503)
      .header("cache-control", "no-store")
      .send(state);
  });
  app.get("/metrics", machines, async (_request, reply) =>
    reply
      .type(health.registry.contentType)
      .header("cache-control", "no-store")
      .send(await health.metrics()),
  );
}
