export * from "./native-config.ts";
export * from "./directories.ts";
export * from "./job-feed.ts";
export * from "./stage-feed.ts";
export * from "./obtain-profile.ts";
export * from "./search-thread.ts";
export * from "./failure.ts";
export * from "./retry-lost-ranks.ts";
