import { Worker } from "node:worker_threads";
import { ProblemError, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
import type { PlanJobOptions } from "@internevo/search";

export interface SearchRequest {
  readonly spec: JobSpec;
  readonly profile: Profile;
  readonly options: PlanJobOptions;
}

export type SearchAnswer =
  | { readonly result: PlanningResult }
  | { readonly problem: Pick<ProblemError, "code" | "message" | "details"> }
  | { readonly error: unknown }
  | { readonly done: number; readonly total: number };

/**
 * Seconds that a thread without work is kept, because a new one has everything to load and nothing compiled.
 */
const IDLE_SECONDS = 60;

interface Idle {
  readonly worker: Worker;
  /** Ends the wait for work. */
  readonly release: () => void;
}
/** At most one, the latest. */
let idle: Idle | undefined;

function takeWorker(): Worker {
  if (idle === undefined) return new Worker(new URL("./search-worker.ts", import.meta.url));
  const { worker, release } = idle;
  release();
  worker.ref();
  return worker;
}

function keepWorker(worker: Worker): void {
  if (idle !== undefined) return void worker.terminate();
  const forget = () => {
    release();
    void worker.terminate();
  };
  const timer = setTimeout(forget, IDLE_SECONDS * 1000).unref();
  const release = () => {
    clearTimeout(timer);
    worker.off("error", forget).off("exit", forget);
    idle = undefined;
  };
  worker.on("error", forget).on("exit", forget).unref();
  idle = { worker, release };
}

/**
 * Searches the plans of a job in a thread of its own: a search of seconds must not hold up heartbeats.
 * @param onProgress how many batches of plans of how many are done.
 * @throws the signal's reason when it aborts; what the search threw.
 */
export async function searchPlans(
  spec: JobSpec,
  profile: Profile,
  options: PlanJobOptions,
  signal: AbortSignal,
  onProgress?: (done: number, total: number) => void,
): Promise<PlanningResult> {
  signal.throwIfAborted();
  const worker = takeWorker();
  const stop = () => void worker.terminate();
  const { promise, resolve, reject } = Promise.withResolvers<PlanningResult>();
  let whole = false;
  const onMessage = (answer: SearchAnswer) => {
    if ("done" in answer) return onProgress?.(answer.done, answer.total);
    whole = !signal.aborted;
    if ("result" in answer) resolve(answer.result);
    else if ("problem" in answer)
      reject(new ProblemError(answer.problem.code, answer.problem.message, answer.problem.details));
    else reject(answer.error);
  };
  const onExit = (code: number) =>
    reject(
      signal.aborted ? (signal.reason as Error) : new Error(`the search ended with ${code} and no answer`),
    );
  worker.on("message", onMessage).on("error", reject).on("exit", onExit);
  signal.addEventListener("abort", stop, { once: true });
  try {
    worker.postMessage({ spec, profile, options } satisfies SearchRequest);
    return await promise;
  } finally {
    signal.removeEventListener("abort", stop);
    worker.off("message", onMessage).off("error", reject).off("exit", onExit);
    if (whole) keepWorker(worker);
    else await worker.terminate();
  }
}
