export type { FieldChange, FieldValue } from "./differences.ts";
export * from "./compute-speed.ts";
export * from "./estimates.ts";
export * from "./explain.ts";
export * from "./gpus.ts";
export * from "./pareto.ts";
export * from "./sizing.ts";
export * from "./sweep.ts";
export * from "./why-not.ts";
