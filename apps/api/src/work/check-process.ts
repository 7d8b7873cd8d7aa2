import { checkData, type Allowed, type DataTask } from "../submission/check-data.ts";
import { checkWeights, type WeightsTask } from "../submission/check-weights.ts";
import { answerTasks } from "./process-pool.ts";
import { resultOf } from "./work-result.ts";

answerTasks((task: (DataTask | WeightsTask) & Allowed) =>
  resultOf(async () => {
    if (!("initialWeights" in task)) return checkData(task);
    await checkWeights(task);
    return null;
  }),
);
