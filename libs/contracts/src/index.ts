export * from "./catalog.ts";
export * from "./native.ts";
export * from "./trainer-config.ts";
export * from "./http.ts";
export * from "./projects.ts";
export * from "./advice.ts";
export * from "./clusters.ts";
