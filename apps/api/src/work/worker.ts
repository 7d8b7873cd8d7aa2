import { ProblemError, type JobSpec, type PlanningResult } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { checkData } from "../submission/check-data.ts";
import type { PlanTask, WorkResult } from "./workers.ts";

async function answer<T>(work: () => T | Promise<T>): Promise<WorkResult<T>> {
  try {
    return { value: await work() };
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return { problem: { code: error.code, message: error.message, details: error.details } };
  }
}

/** What runs on the threads of `workers.ts`. */
export const plan = (task: PlanTask): Promise<WorkResult<PlanningResult>> => answer(() => planJob(task.spec, task.profile, { top: task.top }));

export const data = (spec: JobSpec): Promise<WorkResult<null>> =>
  answer(async () => {
    await checkData(spec);
    return null;
  });
