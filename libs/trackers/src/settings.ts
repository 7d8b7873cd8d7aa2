import { resolve } from "node:path";
import { ProblemError } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { mlflow } from "./mlflow/mlflow.ts";
import { tensorBoard } from "./tensorboard/tensorboard.ts";
import type { Tracker } from "./tracker.ts";

/** Read by the service that follows jobs. Nothing is tracked unless it says so. */
export const trackerConfig = {
  INTERNEVO_REPLANNER_MLFLOW_URL: Type.Optional(
    Type.String({
      description: "an MLflow server that runs are sent to, for example https://mlflow.example.org",
    }),
  ),
  INTERNEVO_REPLANNER_MLFLOW_EXPERIMENT: Type.String({
    default: "internevo/{project}",
    maxLength: 200,
    description: "the experiment that they are in; {project} stands for the job's",
  }),
  INTERNEVO_REPLANNER_MLFLOW_TOKEN: Type.Optional(
    Type.String({ description: "for a server that asks for a bearer token" }),
  ),
  INTERNEVO_REPLANNER_MLFLOW_USER: Type.Optional(
    Type.String({ pattern: "^[^:]*$", description: "for a server that asks for user and password" }),
  ),
  INTERNEVO_REPLANNER_MLFLOW_PASSWORD: Type.Optional(Type.String({ description: "of that user" })),
  INTERNEVO_REPLANNER_MLFLOW_TIMEOUT_SECONDS: Type.Number({
    default: 15,
    exclusiveMinimum: 0,
    maximum: 40,
    description: "how long MLflow may take to answer a request",
  }),
  INTERNEVO_REPLANNER_TENSORBOARD_DIRECTORY: Type.Optional(
    Type.String({
      description: "where TensorBoard's event files are written, a folder for each project and job",
    }),
  ),
  INTERNEVO_REPLANNER_TRACKED_PROJECTS: Type.Optional(
    Type.String({ description: "only the jobs of these projects, separated by commas; without it, of all" }),
  ),
};
export type TrackerConfig = Static<ReturnType<typeof Type.Object<typeof trackerConfig>>>;

const invalid = (field: keyof TrackerConfig, value: string, message: string, remedy: string): ProblemError =>
  new ProblemError("bad-request", `${field} ${message}`, [{ field, value, message, remedy }]);

/** @throws ProblemError `bad-request` for what is no address of a server */
function checkedUrl(text: string): string {
  const field = "INTERNEVO_REPLANNER_MLFLOW_URL";
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol))
    throw invalid(field, text, "is no https or http URL", "give for example https://mlflow.example.org");
  if (url.username !== "" || url.password !== "")
    throw invalid(
      field,
      text.replace(/\/\/[^@/]*@/, "//…@"),
      "has a user or a password in it",
      "give them as INTERNEVO_REPLANNER_MLFLOW_USER and INTERNEVO_REPLANNER_MLFLOW_PASSWORD",
    );
  if (url.search !== "" || url.hash !== "")
    throw invalid(field, text, "has a part behind ? or #", "leave it out");
  return url.href.replace(/\/+$/, "");
}

/** The trackers that a configuration asks for. @throws ProblemError `bad-request` */
export function trackersOf(config: TrackerConfig): Tracker[] {
  const url = config.INTERNEVO_REPLANNER_MLFLOW_URL;
  const directory = config.INTERNEVO_REPLANNER_TENSORBOARD_DIRECTORY;
  return [
    ...(directory === undefined ? [] : [tensorBoard(resolve(directory))]),
    ...(url === undefined
      ? []
      : [
          mlflow({
            url: checkedUrl(url),
            experiment: config.INTERNEVO_REPLANNER_MLFLOW_EXPERIMENT,
            token: config.INTERNEVO_REPLANNER_MLFLOW_TOKEN,
            user: config.INTERNEVO_REPLANNER_MLFLOW_USER,
            password: config.INTERNEVO_REPLANNER_MLFLOW_PASSWORD,
            timeoutSeconds: config.INTERNEVO_REPLANNER_MLFLOW_TIMEOUT_SECONDS,
          }),
        ]),
  ];
}

/** The projects whose jobs are followed; null: all of them. */
export function trackedProjects(config: TrackerConfig): readonly string[] | null {
  const names = config.INTERNEVO_REPLANNER_TRACKED_PROJECTS?.split(",").map((name) => name.trim());
  return names?.filter((name) => name !== "") ?? null;
}
