export * from "./measure.ts";
export * from "./read-timeline.ts";
