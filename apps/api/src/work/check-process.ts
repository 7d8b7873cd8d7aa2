import { checkData, type Allowed, type DataTask } from "../submission/check-data.ts";
import { checkWeights, type WeightsTask } from "../submission/check-weights.ts";
import { answerTasks } from "./process-pool.ts";
import { resultOf } from "./work-result.ts";

answerTasks((task: (DataTask | WeightsTask) & Allowed) =>
  resultOf(async () => {
    await ("initialWeights" in task ? checkWeights(task) : checkData(task));
    return null;
  }),
);
