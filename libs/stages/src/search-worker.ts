import { parentPort } from "node:worker_threads";
import { ProblemError } from "@internevo/domain";
import { planJob } from "@internevo/search";
import type { SearchAnswer, SearchRequest } from "./search-thread.ts";

const answer = (message: SearchAnswer): void => parentPort?.postMessage(message);

parentPort?.on("message", ({ spec, profile, options }: SearchRequest) => {
  try {
    answer({
      result: planJob(spec, profile, { ...options, onProgress: (done, total) => answer({ done, total }) }),
    });
  } catch (error) {
    // What an error carries beside its message does not cross threads.
    answer(
      error instanceof ProblemError
        ? { problem: { code: error.code, message: error.message, details: error.details } }
        : { error },
    );
  }
});
