import type { JobStreamEvent } from "@internevo/contracts";
import { isTerminal, planLabel, type JobState, type Trial, type TrialState } from "@internevo/domain";
import type { TrackerPlace } from "@internevo/store";
import { jobFacts, planFacts } from "../describe.ts";
import {
  beginningAttempt,
  LOSS,
  VALIDATION_LOSS,
  metricsOf,
  trialFigures,
  trialOf,
  type Metric,
  type TrackedJob,
} from "../metrics.ts";
import { StartOverError, type Batch, type Tracker } from "../tracker.ts";
import { MlflowClient, MlflowError, type ServerSettings } from "./client.ts";
import { MlflowRuns, type MlflowMetric, type RunStatus } from "./runs.ts";

export interface MlflowSettings extends ServerSettings {
  /** `{project}` stands for the job's. */
  readonly experiment: string;
}

const JOB_MARK = "internevo.job_id";
const TRIAL_MARK = "internevo.trial_id";
const PARENT = "mlflow.parentRunId";
/** Jobs that are sent at once. */
const CONCURRENCY = 8;

/** What MLflow calls the end of a job; before it, and while the job is held, its run is at work there. */
const JOB_STATUS: Readonly<Partial<Record<JobState, RunStatus>>> = {
  succeeded: "FINISHED",
  failed: "FAILED",
  cancelled: "KILLED",
};
const TRIAL_STATUS: Readonly<Record<TrialState, RunStatus>> = {
  pending: "RUNNING",
  running: "RUNNING",
  succeeded: "FINISHED",
  failed: "FAILED",
  cancelled: "KILLED",
};

const mlflowMetric = ({ name, value, step, atMs }: Metric): MlflowMetric => ({
  key: name,
  value,
  step,
  timestamp: atMs,
});
const msOf = (at: string | null, otherwise: string): number => Date.parse(at ?? otherwise);

/** One job's run, while some of its events are sent. */
class JobRun {
  readonly #runs: MlflowRuns;
  readonly #job: TrackedJob;
  readonly #experimentId: string;
  readonly #runId: string;
  readonly #signal: AbortSignal;

  constructor(
    runs: MlflowRuns,
    job: TrackedJob,
    ids: { experimentId: string; runId: string },
    signal: AbortSignal,
  ) {
    this.#runs = runs;
    this.#job = job;
    this.#experimentId = ids.experimentId;
    this.#runId = ids.runId;
    this.#signal = signal;
  }

  async send(events: readonly JobStreamEvent[]): Promise<void> {
    const job = this.#job;
    await this.#runs.logMetrics(
      this.#runId,
      events.flatMap((event) => metricsOf(job, event)).map(mlflowMetric),
      this.#signal,
    );
    const plan = events
      .map((event) => beginningAttempt(job, event)?.plan)
      .findLast((each) => each !== undefined);
    if (plan !== undefined)
      await this.#runs.setTags(this.#runId, { "internevo.plan": planLabel(plan) }, this.#signal);
    for (const event of events) {
      const trial = trialOf(event);
      if (trial) await this.#sendTrial(trial, event.at);
      else if (event.type === "state") await this.#sendState(event);
    }
  }

  async #sendTrial(trial: Trial, at: string): Promise<void> {
    const { rank, plan } = trial.candidate;
    const runId = await this.#runs.ensure(
      {
        experimentId: this.#experimentId,
        name: `${this.#job.name}: trial of plan ${rank}`,
        startMs: msOf(trial.startedAt, at),
        user: this.#job.owner,
        mark: [TRIAL_MARK, trial.id],
        tags: { [PARENT]: this.#runId, "internevo.project": this.#job.project },
      },
      this.#signal,
    );
    await this.#runs.logParams(runId, { rank: String(rank), ...planFacts(plan) }, this.#signal);
    const timestamp = Date.parse(at);
    const metrics = Object.entries(trialFigures(trial)).map(([key, value]) => ({
      key,
      value,
      timestamp,
      step: 0,
    }));
    await this.#runs.logMetrics(runId, metrics, this.#signal);
    if (trial.failure !== null)
      await this.#runs.setTags(
        runId,
        { "internevo.failure": `${trial.failure.code}: ${trial.failure.message}`.slice(0, 4000) },
        this.#signal,
      );
    const ended = TRIAL_STATUS[trial.state] === "RUNNING" ? null : msOf(trial.endedAt, at);
    await this.#runs.update(runId, TRIAL_STATUS[trial.state], ended, this.#signal);
  }

  async #sendState({ data, at }: JobStreamEvent): Promise<void> {
    const to = data["to"] as JobState;
    const { chosen } = this.#job;
    if (to === "running" && chosen !== null)
      await this.#runs.logParams(this.#runId, planFacts(chosen.plan), this.#signal);
    const reason = typeof data["reason"] === "string" ? data["reason"].slice(0, 4000) : "";
    await this.#runs.setTags(
      this.#runId,
      { "internevo.state": to, "internevo.reason": reason },
      this.#signal,
    );
    const ended = isTerminal(to);
    if (ended) await this.#endTrials(Date.parse(at));
    await this.#runs.update(
      this.#runId,
      JOB_STATUS[to] ?? "RUNNING",
      ended ? Date.parse(at) : null,
      this.#signal,
    );
    if (ended) await this.#verify();
  }

  /** Trials that end with their job tell nobody. */
  async #endTrials(endMs: number): Promise<void> {
    const filter = `tags.\`${PARENT}\` = '${this.#runId}' and attributes.status = 'RUNNING'`;
    for (const trial of await this.#runs.search(this.#experimentId, filter, this.#signal))
      await this.#runs.update(trial, "KILLED", endMs, this.#signal);
  }

  /** A server may have said yes, and kept nothing; or have come back without what it had. */
  async #verify(): Promise<void> {
    const { steps, validations } = await this.#job.countPoints();
    for (const [metric, expected] of [
      [LOSS, steps],
      [VALIDATION_LOSS, validations],
    ] as const) {
      const there = expected === 0 ? 0 : await this.#runs.stepsOf(this.#runId, metric, this.#signal);
      if (there < expected)
        throw new StartOverError(
          `MLflow has ${there} of ${expected} points of ${metric}: everything is sent once more`,
        );
    }
  }
}

async function begin(
  runs: MlflowRuns,
  job: TrackedJob,
  experimentId: string,
  signal: AbortSignal,
): Promise<string> {
  const { id, name, project, owner, spec, createdAt } = job;
  const labels = Object.entries(spec.labels ?? {}).map(
    ([label, value]) => [`label.${label}`, value] as const,
  );
  const runId = await runs.ensure(
    {
      experimentId,
      name,
      startMs: createdAt.getTime(),
      user: owner,
      mark: [JOB_MARK, id],
      tags: { ...Object.fromEntries(labels), "internevo.project": project },
    },
    signal,
  );
  await runs.logParams(runId, jobFacts(job), signal);
  return runId;
}

async function send(
  { job, events }: Batch,
  { externalId }: TrackerPlace,
  { runs, experiment, signal }: { runs: MlflowRuns; experiment: string; signal: AbortSignal },
): Promise<string> {
  try {
    const experimentId = await runs.experiment(experiment.replaceAll("{project}", job.project), signal);
    const runId = externalId ?? (await begin(runs, job, experimentId, signal));
    await new JobRun(runs, job, { experimentId, runId }, signal).send(events);
    return runId;
  } catch (error) {
    if (!(error instanceof MlflowError && error.code === "RESOURCE_DOES_NOT_EXIST")) throw error;
    runs.forgetExperiments();
    throw new StartOverError(`MLflow has lost what was sent: ${error.message}`);
  }
}

/**
 * An MLflow server: an experiment a project, a run a job, and a nested run a trial. MLflow keeps a metric of the same
 * name, step, time and value once, however often it is sent.
 */
export function mlflow(settings: MlflowSettings): Tracker {
  const runs = new MlflowRuns(new MlflowClient(settings));
  return {
    kind: "mlflow",
    key: `mlflow:${settings.url}`,
    concurrency: CONCURRENCY,
    async send(batch, place, signal) {
      const externalId = await send(batch, place, { runs, experiment: settings.experiment, signal });
      return { externalId, bytes: 0 };
    },
  };
}
