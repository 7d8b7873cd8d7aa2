export * from "./addresses.ts";
export * from "./deliver.ts";
export * from "./send.ts";
export * from "./sign.ts";
export * from "./tries.ts";
