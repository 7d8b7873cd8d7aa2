import { measuredMfu, planLabel, worldSize } from "@internevo/domain";
import { openJobCounts, runningJobs, secondsOfSteps, type Database, type RunningJob } from "@internevo/store";
import { Gauge, type Registry } from "prom-client";

/** Jobs that have series of their own: however many run, a scrape has an end. */
const MOST_JOBS = 500;
/** Scrapes that come together are answered by one look. */
const LOOK_SECONDS = 2;

// Not "job": Prometheus has a label of that name of its own.
const LABELS = ["job_id", "job_name", "project", "plan"] as const;

/** What each job that trains has, by metric: undefined where there is nothing to say yet. */
const FIGURES = {
  internevo_job_step: ["Last step of a job that trains", ({ last }) => last?.step ?? 0],
  internevo_job_steps: ["Steps that the job is to make", ({ steps }) => steps],
  internevo_job_loss: ["Loss of the last step, nats per token", ({ last }) => last?.loss],
  internevo_job_validation_loss: [
    "Last loss of held-out data, nats per token",
    ({ validationLoss }) => validationLoss ?? undefined,
  ],
  internevo_job_step_time_seconds: ["Seconds of the last step", ({ last }) => last?.stepTimeSeconds],
  internevo_job_tokens_per_second: [
    "Tokens per second of the last step: of all its sequences, also those without a target",
    ({ last }) => last?.tokensPerSecond,
  ],
  internevo_job_mfu: [
    "Model FLOPs utilisation of the last step, a fraction of the peak",
    ({ last, predicted, plan }) =>
      last === null || predicted === null
        ? undefined
        : measuredMfu({ plan: predicted.plan, predicted }, [
            { steps: 1, seconds: last.stepTimeSeconds, ranks: worldSize(plan ?? predicted.plan) },
          ]),
  ],
  internevo_job_restarts: [
    "Starts of the ranks behind the first",
    ({ attempts }) => Math.max(0, attempts - 1),
  ],
  internevo_job_last_step_timestamp_seconds: [
    "When the last step ended, seconds since 1970",
    ({ last }) => last?.atSeconds,
  ],
} satisfies Record<string, readonly [help: string, value: (job: RunningJob) => number | undefined]>;

/** The seconds of a run's steps, up to the last of an attempt: those of an attempt are only added to. */
interface Counted {
  readonly attempt: number;
  readonly step: number;
  readonly seconds: number;
}

/**
 * Figures of the jobs that train, read from Postgres when somebody scrapes: every replica has the same. A job that
 * trains no more has none.
 */
export class JobGauges {
  readonly #database: Database;
  readonly #figures: readonly (readonly [
    Gauge<(typeof LABELS)[number]>,
    (job: RunningJob) => number | undefined,
  ])[];
  readonly #goodput: Gauge<(typeof LABELS)[number]>;
  readonly #states: Gauge<"state">;
  #counted = new Map<string, Counted>();
  #looking: Promise<void> | undefined;
  #lookedAt = -Infinity;

  constructor(database: Database, registry: Registry) {
    this.#database = database;
    const collect = (): Promise<void> => this.#collect();
    const gauge = (name: string, help: string): Gauge<(typeof LABELS)[number]> =>
      new Gauge({ name, help, labelNames: LABELS, registers: [registry], collect });
    this.#figures = Object.entries(FIGURES).map(([name, [help, value]]) => [gauge(name, help), value]);
    this.#goodput = gauge(
      "internevo_job_goodput_ratio",
      "Share of the time since training began that went into steps that count",
    );
    this.#states = new Gauge({
      name: "internevo_jobs",
      help: "Jobs that have not ended, by state",
      labelNames: ["state"],
      registers: [registry],
      collect,
    });
  }

  /** Every gauge asks, and all are set by one look. */
  #collect(): Promise<void> {
    if (this.#looking === undefined && performance.now() - this.#lookedAt < 1000 * LOOK_SECONDS)
      return Promise.resolve();
    return (this.#looking ??= this.#look().finally(() => {
      this.#lookedAt = performance.now();
      this.#looking = undefined;
    }));
  }

  async #look(): Promise<void> {
    const { db } = this.#database;
    const jobs = await runningJobs(db, MOST_JOBS);
    const states = await openJobCounts(db);
    const counted = new Map<string, Counted>();
    for (const job of jobs) counted.set(job.runId, await this.#count(job));
    // Only now: between two looks nobody sees half of one.
    this.#counted = counted;
    for (const [each] of this.#figures) each.reset();
    this.#goodput.reset();
    this.#states.reset();
    for (const [state, count] of states) this.#states.set({ state }, count);
    for (const job of jobs) this.#set(job);
  }

  #set(job: RunningJob): void {
    const labels = {
      job_id: job.jobId,
      job_name: job.name,
      project: job.project,
      plan: job.plan === null ? "" : planLabel(job.plan),
    };
    for (const [gauge, valueOf] of this.#figures) {
      const value = valueOf(job);
      if (value !== undefined) gauge.set(labels, value);
    }
    const seconds = this.#counted.get(job.runId)?.seconds ?? 0;
    if (job.elapsedSeconds > 0) this.#goodput.set(labels, seconds / job.elapsedSeconds);
  }

  /** A step that was run again has another time: with a new attempt all are added up anew. */
  async #count({ runId, last }: RunningJob): Promise<Counted> {
    if (last === null) return { attempt: 0, step: 0, seconds: 0 };
    const { attempt } = last;
    const before = this.#counted.get(runId);
    const known = before?.attempt === attempt ? before : { attempt, step: 0, seconds: 0 };
    if (known.step === last.step) return known;
    const seconds = await secondsOfSteps(this.#database.db, runId, { after: known.step, last: last.step });
    return { attempt, step: last.step, seconds: known.seconds + seconds };
  }
}
