import { getPriority, setPriority } from "node:os";
import type { PlanningResult } from "@internevo/domain";
import { planJob, SearchLimitError } from "@internevo/search";
import { resultOf, type WorkResult } from "./work-result.ts";
import type { PlanTask } from "./workers.ts";

/** A task for a thread; with a limit it may come back unanswered. */
export interface LimitedPlanTask extends PlanTask {
  readonly maximumSteps: number | null;
}

/** Niceness of a thread that searches for long: what is answered at once goes first. */
const PATIENT = 10;

/** What runs on the threads of `workers.ts`: the answer, or null when the search takes more steps than the task may. */
export async function plan({ spec, profile, top, maximumSteps }: LimitedPlanTask): Promise<WorkResult<PlanningResult> | null> {
  // On Linux the priority of a thread, on other systems that of the process.
  if (maximumSteps === null && process.platform === "linux") setPriority(0, Math.max(PATIENT, getPriority(0)));
  try {
    return await resultOf(() => {
      try {
        return planJob(spec, profile, { top, ...(maximumSteps === null ? {} : { maximumSteps }) });
      } catch (error) {
        throw error instanceof SearchLimitError && maximumSteps !== null ? new TooLong() : error;
      }
    });
  } catch (error) {
    if (error instanceof TooLong) return null;
    throw error;
  }
}

class TooLong extends Error {}
