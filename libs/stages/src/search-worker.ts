import { parentPort } from "node:worker_threads";
import { ProblemError } from "@internevo/domain";
import { boundSearches, planJob, SearchTimeError, threadSeconds } from "@internevo/search";
import type { SearchAnswer, SearchRequest } from "./search-thread.ts";

const answer = (message: SearchAnswer): void => parentPort?.postMessage(message);

/** What an error carries beside its message does not cross threads. */
function answerOf(error: unknown): SearchAnswer {
  if (error instanceof SearchTimeError) return { tookTooLong: true };
  if (!(error instanceof ProblemError)) return { error };
  const { code, message, details } = error;
  return { problem: { code, message, details } };
}

async function search({ spec, profile, options, seconds }: SearchRequest): Promise<void> {
  const onProgress = (done: number, total: number): void => answer({ done, total });
  try {
    const bound = { seconds, clock: threadSeconds };
    answer({ result: await boundSearches(bound, () => planJob(spec, profile, { ...options, onProgress })) });
  } catch (error) {
    answer(answerOf(error));
  }
}

parentPort?.on("message", (request: SearchRequest) => void search(request));
