export * from "./factors.ts";
export * from "./legality.ts";
export * from "./mesh.ts";
export * from "./pipeline-schedule.ts";
export * from "./runnable.ts";
export * from "./space.ts";
export * from "./unit-schedule.ts";
