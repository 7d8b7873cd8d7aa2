import { Type } from "typebox";
import { appendJobEvent, transitionJob } from "@internevo/store";
import { runService } from "../src/index.ts";

/**
 * A service for tests that kill it: works on a job for as long as its seed says, in seconds, and then moves
 * it on.
 */
await runService({
  name: "worker",
  configSchema: Type.Object({}),
  start(service) {
    service.handleCommand({
      type: "job.profile",
      handler: async (context) => {
        const { jobId } = context.data;
        await context.fenced((tx) =>
          appendJobEvent(tx, jobId, "log", {
            level: "info",
            source: "worker",
            message: `begun by ${process.pid}`,
          }),
        );
        await new Promise<void>((resolve, reject) => {
          const timer = setTimeout(resolve, context.job.spec.seed * 1000);
          context.signal.addEventListener(
            "abort",
            () => (clearTimeout(timer), reject(context.signal.reason as Error)),
            { once: true },
          );
        });
        return async (tx) => {
          await appendJobEvent(tx, jobId, "log", { level: "info", source: "worker", message: "effect" });
          await transitionJob(tx, { jobId, from: "profiling", to: "planning" });
        };
      },
    });
  },
});
