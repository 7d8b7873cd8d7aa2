import { Worker } from "node:worker_threads";
import type { JobSpec, PlanningResult, Profile } from "@internevo/domain";
import type { PlanJobOptions } from "@internevo/search";

/**
 * Searches the plans of a job in a thread of its own: a search of seconds must not hold up heartbeats.
 * @throws the signal's reason when it aborts; what the search threw.
 */
export async function searchPlans(spec: JobSpec, profile: Profile, options: PlanJobOptions, signal: AbortSignal): Promise<PlanningResult> {
  signal.throwIfAborted();
  const worker = new Worker(new URL("./search-worker.ts", import.meta.url), { workerData: { spec, profile, options } });
  const stop = () => void worker.terminate();
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await new Promise<PlanningResult>((resolve, reject) => {
      worker.once("message", resolve);
      worker.once("error", reject);
      worker.once("exit", (code) => reject(signal.aborted ? (signal.reason as Error) : new Error(`the search ended with ${code} and no answer`)));
    });
  } finally {
    signal.removeEventListener("abort", stop);
    await worker.terminate();
  }
}
