import { openSync } from "node:fs";
import type { JobSpec } from "@internevo/domain";
import { answerTasks } from "../src/work/process-pool.ts";

/**
 * Waits inside the kernel for whoever writes to a pipe, as a file system that does not answer makes one wait;
 * other jobs are fine.
 */
answerTasks(async (spec: JobSpec) => {
  if (spec.name === "stuck" && spec.data?.format === "tokens") openSync(spec.data.path, "r");
  return { value: null };
});
