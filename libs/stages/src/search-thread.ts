import { Worker } from "node:worker_threads";
import { availableParallelism } from "node:os";
import {
  DEFAULT_PROJECT,
  ProblemError,
  type JobSpec,
  type PlanningResult,
  type Profile,
} from "@internevo/domain";
import { SEARCH_MEGABYTES, searchTooLarge, tooManyPlans, type PlanJobOptions } from "@internevo/search";
import { FairTurns } from "@internevo/service-kit";

export interface SearchRequest {
  readonly spec: JobSpec;
  readonly profile: Profile;
  readonly options: PlanJobOptions;
  /** The search is given up after so long. */
  readonly seconds: number;
}

export type SearchAnswer =
  | { readonly result: PlanningResult }
  | { readonly problem: Pick<ProblemError, "code" | "message" | "details"> }
  | { readonly error: unknown }
  /** It was given up after its time. */
  | { readonly tookTooLong: true }
  | { readonly done: number; readonly total: number };

/** Most searches take no longer. One that does begins anew among those that do, and keeps nobody waiting. */
const QUICK_SECONDS = 2;
/** Nor do most of the others, which do not wait for those that may take minutes. */
const MIDDLE_SECONDS = 20;
/** No search of a job that can be trained takes as long. */
const LONG_SECONDS = 600;

const turnsOf = (atOnce: number, atOnceOfOne: number): FairTurns =>
  new FairTurns({ atOnce, atOnceOfOne, mostOfOne: Infinity, mostWaiting: Infinity });
/**
 * Of this process: projects take turns, whatever each of them has submitted. Among searches that take longer, one
 * project leaves a place to the others.
 */
const LANES = [
  { turns: turnsOf(availableParallelism(), availableParallelism()), seconds: QUICK_SECONDS },
  { turns: turnsOf(2, 1), seconds: MIDDLE_SECONDS },
  { turns: turnsOf(2, 1), seconds: LONG_SECONDS },
];

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
  if (idle === undefined)
    return new Worker(new URL("./search-worker.ts", import.meta.url), {
      resourceLimits: { maxOldGenerationSizeMb: SEARCH_MEGABYTES },
    });
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
 * Searches the plans of a job in a thread of its own: a search of seconds must not hold up heartbeats. Projects
 * take turns where many are to be searched.
 * @param onProgress how many batches of plans of how many are done; it begins anew where the search takes long.
 * @throws the signal's reason when it aborts; what the search threw.
 */
export async function searchPlans(
  spec: JobSpec,
  profile: Profile,
  options: PlanJobOptions,
  signal: AbortSignal,
  onProgress?: (done: number, total: number) => void,
): Promise<PlanningResult> {
  const project = spec.project ?? DEFAULT_PROJECT;
  for (const { turns, seconds } of LANES) {
    const request = { spec, profile, options, seconds };
    const found = await turns.run(project, signal, () => searchInThread(request, signal, onProgress));
    if (found !== null) return found;
  }
  throw tooManyPlans(`the search was given up after ${LONG_SECONDS} s`);
}

/** @returns null where it took longer than it may. */
async function searchInThread(
  request: SearchRequest,
  signal: AbortSignal,
  onProgress?: (done: number, total: number) => void,
): Promise<PlanningResult | null> {
  signal.throwIfAborted();
  const worker = takeWorker();
  const stop = () => void worker.terminate();
  const { promise, resolve, reject } = Promise.withResolvers<PlanningResult | null>();
  let whole = false;
  const onMessage = (answer: SearchAnswer) => {
    if ("done" in answer) return onProgress?.(answer.done, answer.total);
    whole = !signal.aborted;
    if ("result" in answer) resolve(answer.result);
    else if ("tookTooLong" in answer) resolve(null);
    else if ("problem" in answer)
      reject(new ProblemError(answer.problem.code, answer.problem.message, answer.problem.details));
    else reject(answer.error);
  };
  const onError = (error: NodeJS.ErrnoException) =>
    reject(error.code === "ERR_WORKER_OUT_OF_MEMORY" ? searchTooLarge() : error);
  const onExit = (code: number) =>
    reject(
      signal.aborted ? (signal.reason as Error) : new Error(`the search ended with ${code} and no answer`),
    );
  worker.on("message", onMessage).on("error", onError).on("exit", onExit);
  signal.addEventListener("abort", stop, { once: true });
  try {
    worker.postMessage(request);
    return await promise;
  } finally {
    signal.removeEventListener("abort", stop);
    worker.off("message", onMessage).off("error", onError).off("exit", onExit);
    if (whole) keepWorker(worker);
    else await worker.terminate();
  }
}
