export * from "./projects.ts";
export * from "./jobs.ts";
export * from "./messages.ts";
export * from "./workloads.ts";
export * from "./access.ts";
export * from "./webhooks.ts";
export * from "./trackers.ts";
export * from "./retention.ts";
