export * from "./space.ts";
export * from "./layer.ts";
export * from "./mesh.ts";
export * from "./runnable.ts";
export * from "./measurements.ts";
