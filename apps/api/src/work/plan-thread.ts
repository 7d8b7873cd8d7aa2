import type { PlanningResult } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { resultOf, type WorkResult } from "./work-result.ts";
import type { PlanTask } from "./workers.ts";

/** What runs on the threads of `workers.ts`. */
export const plan = (task: PlanTask): Promise<WorkResult<PlanningResult>> => resultOf(() => planJob(task.spec, task.profile, { top: task.top }));
