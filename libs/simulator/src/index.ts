export * from "./allocation-traces.ts";
export * from "./caching-allocator.ts";
export * from "./lanes.ts";
export * from "./shares.ts";
export * from "./simulate.ts";
export { StepClock, type PassSpan, type Span as ClockSpan } from "./step-clock.ts";
export * from "./step-program.ts";
export * from "./step-work.ts";
export * from "./timeline.ts";
