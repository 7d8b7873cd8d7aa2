export * from "./follow.ts";
export * from "./mlflow/mlflow.ts";
export * from "./settings.ts";
export * from "./tensorboard/tensorboard.ts";
export * from "./tracker.ts";
