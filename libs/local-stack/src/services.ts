import { join } from "node:path";
import type { ServiceProcess } from "./stack.ts";

/** The product's services; each is `apps/<name>/src/main.ts`. */
export const SERVICE_NAMES = [
  "api",
  "profiler",
  "planner",
  "trial-runner",
  "executor-supervisor",
  "replanner",
] as const;

/** All services of this checkout. */
export function productServices(): ServiceProcess[] {
  const apps = join(import.meta.dirname, "..", "..", "..", "apps");
  return SERVICE_NAMES.map((name) => ({ name, entry: join(apps, name, "src", "main.ts") }));
}
