export * from "./catalog.ts";
export * from "./native.ts";
export * from "./http.ts";
