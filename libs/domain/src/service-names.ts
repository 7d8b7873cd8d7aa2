/** The product's services; each is `apps/<name>/src/main.ts`. */
export const SERVICE_NAMES = [
  "api",
  "profiler",
  "planner",
  "trial-runner",
  "executor-supervisor",
  "replanner",
] as const;
