export * from "./caching-allocator.ts";
export * from "./allocation-traces.ts";
