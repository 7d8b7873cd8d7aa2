import { Counter, Histogram, type Registry } from "prom-client";

export type CommandOutcome =
  | "done"
  | "queued"
  | "postponed"
  | "repeated"
  | "moved-on"
  | "cancelled"
  | "busy"
  | "stopped"
  | "failed"
  | "dead-letter";

export const commandMetrics = (registry: Registry) => ({
  outcomes: new Counter({
    name: "internevo_commands_total",
    help: "Commands by how their delivery ended",
    labelNames: ["type", "outcome"],
    registers: [registry],
  }),
  seconds: new Histogram({
    name: "internevo_command_seconds",
    help: "Time in the handler",
    labelNames: ["type"],
    buckets: [0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200],
    registers: [registry],
  }),
  published: new Counter({
    name: "internevo_outbox_published_total",
    help: "Messages published by this process's relay",
    registers: [registry],
  }),
  recommanded: new Counter({
    name: "internevo_reconciled_commands_total",
    help: "Commands written again because no message was left",
    registers: [registry],
  }),
});
export type CommandMetrics = ReturnType<typeof commandMetrics>;
