import { checkData, type Allowed, type DataTask } from "../submission/check-data.ts";
import {
  checkWeights,
  ownerOfWeights,
  type OwnerTask,
  type WeightsTask,
} from "../submission/check-weights.ts";
import { answerTasks } from "./process-pool.ts";
import { resultOf } from "./work-result.ts";

answerTasks((task: (DataTask | WeightsTask | OwnerTask) & Allowed) =>
  resultOf(async () => {
    if ("weightsPath" in task) return ownerOfWeights(task);
    if (!("initialWeights" in task)) return checkData(task);
    await checkWeights(task);
    return null;
  }),
);
