export * from "./families.ts";
export * from "./plan-job.ts";
export * from "./search.ts";
export * from "./top.ts";
export { unmetOf, type UnmetPlan } from "./unmet.ts";
export { SearchLimitError } from "./watch.ts";
