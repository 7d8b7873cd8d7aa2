import { SendError } from "../tracker.ts";
import { MlflowError, type Json, type MlflowClient } from "./client.ts";

/** MLflow takes no more with one request. */
const MOST_METRICS = 1000;
const MOST_PARAMS = 100;
const HISTORY_PAGE = 10_000;

export type RunStatus = "RUNNING" | "FINISHED" | "FAILED" | "KILLED";

export interface MlflowMetric {
  readonly key: string;
  readonly value: number;
  readonly timestamp: number;
  readonly step: number;
}

type Texts = Readonly<Record<string, string>>;

export interface NewRun {
  readonly experimentId: string;
  readonly name: string;
  readonly startMs: number;
  readonly user: string | null;
  /** The tag that nobody else's run has: by it the run is found again. */
  readonly mark: readonly [name: string, value: string];
  readonly tags: Texts;
}

const pairs = (texts: Texts): Json[] => Object.entries(texts).map(([key, value]) => ({ key, value }));

/** A text that MLflow's filters take in quotes. */
const quoted = (text: string): string => `'${text.replaceAll("'", "")}'`;

/** The number as the JSON of protocol buffers has it. */
const jsonNumber = (value: number): number | string => (Number.isFinite(value) ? value : String(value));

/** Follows a path of members through an answer. @throws SendError where it does not lead to a text */
function textAt(answer: Json, ...path: readonly string[]): string {
  let value: unknown = answer;
  for (const member of path) value = (value as Json | undefined)?.[member];
  if (typeof value === "string" && value !== "") return value;
  throw new SendError(`MLflow's answer has no ${path.join(".")}`);
}

const listAt = (answer: Json, member: string): readonly Json[] => {
  const value = answer[member] ?? [];
  if (Array.isArray(value)) return value as Json[];
  throw new SendError(`MLflow's answer has no list ${member}`);
};

/** What is done with experiments and runs. Each may be done again, and has one effect. */
export class MlflowRuns {
  readonly #client: MlflowClient;
  readonly #experiments = new Map<string, string>();

  constructor(client: MlflowClient) {
    this.#client = client;
  }

  /** The experiment of that name, made where there is none. */
  async experiment(name: string, signal: AbortSignal): Promise<string> {
    const known = this.#experiments.get(name);
    if (known !== undefined) return known;
    const id = (await this.#findExperiment(name, signal)) ?? (await this.#makeExperiment(name, signal));
    this.#experiments.set(name, id);
    return id;
  }

  /** The server may be another one by now. */
  forgetExperiments(): void {
    this.#experiments.clear();
  }

  async #findExperiment(name: string, signal: AbortSignal): Promise<string | undefined> {
    try {
      const found = await this.#client.get("experiments/get-by-name", { experiment_name: name }, signal);
      if (textAt(found, "experiment", "lifecycle_stage") === "deleted")
        throw new SendError(`MLflow's experiment ${name} was deleted: restore it, or name another one`);
      return textAt(found, "experiment", "experiment_id");
    } catch (error) {
      if (error instanceof MlflowError && error.code === "RESOURCE_DOES_NOT_EXIST") return undefined;
      throw error;
    }
  }

  async #makeExperiment(name: string, signal: AbortSignal): Promise<string> {
    try {
      return textAt(await this.#client.post("experiments/create", { name }, signal), "experiment_id");
    } catch (error) {
      const isThere = error instanceof MlflowError && error.code === "RESOURCE_ALREADY_EXISTS";
      const found = isThere ? await this.#findExperiment(name, signal) : undefined;
      if (found === undefined) throw error;
      return found;
    }
  }

  /** The runs of an experiment that a filter finds, newest first; those that were deleted are left out. */
  async search(experimentId: string, filter: string, signal: AbortSignal): Promise<string[]> {
    const found = await this.#client.post(
      "runs/search",
      { experiment_ids: [experimentId], filter, max_results: 1000 },
      signal,
    );
    return listAt(found, "runs").map((run) => textAt(run, "info", "run_id"));
  }

  /** The run with the mark, made where there is none. */
  async ensure(run: NewRun, signal: AbortSignal): Promise<string> {
    const [name, value] = run.mark;
    const [found] = await this.search(run.experimentId, `tags.\`${name}\` = ${quoted(value)}`, signal);
    if (found !== undefined) return found;
    const made = await this.#client.post(
      "runs/create",
      {
        experiment_id: run.experimentId,
        run_name: run.name,
        start_time: run.startMs,
        tags: pairs({
          ...run.tags,
          [name]: value,
          "mlflow.source.name": "InternEvo",
          "mlflow.source.type": "JOB",
          ...(run.user === null ? {} : { "mlflow.user": run.user }),
        }),
      },
      signal,
    );
    return textAt(made, "run", "info", "run_id");
  }

  async logMetrics(runId: string, metrics: readonly MlflowMetric[], signal: AbortSignal): Promise<void> {
    for (let from = 0; from < metrics.length; from += MOST_METRICS)
      await this.#client.post(
        "runs/log-batch",
        {
          run_id: runId,
          metrics: metrics
            .slice(from, from + MOST_METRICS)
            .map((metric) => ({ ...metric, value: jsonNumber(metric.value) })),
        },
        signal,
      );
  }

  async setTags(runId: string, tags: Texts, signal: AbortSignal): Promise<void> {
    await this.#client.post("runs/log-batch", { run_id: runId, tags: pairs(tags) }, signal);
  }

  /** What MLflow has of a parameter already, it does not change: then the values are in tags. */
  async logParams(runId: string, params: Texts, signal: AbortSignal): Promise<void> {
    const all = pairs(params);
    try {
      for (let from = 0; from < all.length; from += MOST_PARAMS)
        await this.#client.post(
          "runs/log-batch",
          { run_id: runId, params: all.slice(from, from + MOST_PARAMS) },
          signal,
        );
    } catch (error) {
      if (!(error instanceof MlflowError && error.code === "INVALID_PARAMETER_VALUE")) throw error;
      await this.setTags(runId, params, signal);
    }
  }

  async update(runId: string, status: RunStatus, endMs: number | null, signal: AbortSignal): Promise<void> {
    await this.#client.post(
      "runs/update",
      { run_id: runId, status, ...(endMs === null ? {} : { end_time: endMs }) },
      signal,
    );
  }

  /** The steps that MLflow has of a metric, each once. */
  async stepsOf(runId: string, key: string, signal: AbortSignal): Promise<number> {
    const steps = new Set<unknown>();
    let page = "";
    do {
      const found = await this.#client.get(
        "metrics/get-history",
        {
          run_id: runId,
          metric_key: key,
          max_results: String(HISTORY_PAGE),
          ...(page === "" ? {} : { page_token: page }),
        },
        signal,
      );
      for (const { step } of listAt(found, "metrics")) steps.add(Number(step ?? 0));
      page = typeof found["next_page_token"] === "string" ? found["next_page_token"] : "";
    } while (page !== "");
    return steps.size;
  }
}
