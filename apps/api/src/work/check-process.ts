import type { JobSpec } from "@internevo/domain";
import { checkData } from "../submission/check-data.ts";
import { answerTasks } from "./process-pool.ts";
import { resultOf } from "./work-result.ts";

answerTasks((spec: JobSpec) =>
  resultOf(async () => {
    await checkData(spec);
    return null;
  }),
);
