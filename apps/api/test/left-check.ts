import { openSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { answerTasks } from "../src/work/process-pool.ts";

/** Takes a moment, or waits inside the kernel for whoever writes to a pipe. @returns its process. */
answerTasks(async ({ pipe }: { pipe?: string }) => {
  if (pipe !== undefined) openSync(pipe, "r");
  await pause(200);
  return process.pid;
});
