export * from "./csv.ts";
export * from "./diff.ts";
export * from "./imported.ts";
export * from "./nccl-tests.ts";
