export * from "./follow.ts";
export { measuredMfu } from "./metrics.ts";
export * from "./mlflow/mlflow.ts";
export * from "./settings.ts";
export * from "./tensorboard/tensorboard.ts";
export * from "./tracker.ts";
