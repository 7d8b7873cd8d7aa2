export * from "./families.ts";
export * from "./family.ts";
export * from "./plan-job.ts";
export * from "./search.ts";
export * from "./top.ts";
export {
  assertWithinBound,
  boundSearches,
  SEARCH_MEGABYTES,
  SearchLimitError,
  SearchTimeError,
  searchTooLarge,
  threadSeconds,
  tooManyPlans,
} from "./watch.ts";
export { fewestSequences, undividedOf, unmetOf, type UnmetPlan } from "./unmet.ts";
