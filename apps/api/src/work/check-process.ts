import { checkData, type DataTask } from "../submission/check-data.ts";
import { answerTasks } from "./process-pool.ts";
import { resultOf } from "./work-result.ts";

answerTasks((task: DataTask) =>
  resultOf(async () => {
    await checkData(task);
    return null;
  }),
);
