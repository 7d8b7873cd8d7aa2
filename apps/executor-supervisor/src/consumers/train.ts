import { setTimeout as sleep } from "node:timers/promises";
import { WAITS_FOR_CLUSTER } from "@internevo/contracts";
import { formatBytes, planLabel, worldSize, type Attempt, type Candidate, type Failure } from "@internevo/domain";
import { cancelSlurmLeftover, readSlurmRecord, type Dataset } from "@internevo/launcher";
import type { CommandContext, Effect } from "@internevo/service-kit";
import { checkpointDirectory, failedJob, launchDirectory, launchResource, prepareTraining, recordTimeline, withStageFeed, type JobFeed, type TrainingSettings } from "@internevo/stages";
import { allSteps, ensureRun, finishAttempt, listAttempts, listTrials, recordSteps, setAttemptResumedFrom, startAttempt, transitionJob, type Database } from "@internevo/store";
import { discardCheckpointsBeyond } from "../checkpoints.ts";
import { reportOf } from "../report.ts";
import { failureAfter } from "../restarts.ts";
import { attemptLabel, runAttempt } from "../run-attempt.ts";

export interface ExecutorSettings extends TrainingSettings {
  /** Ranks that say nothing for so long count as hung. */
  readonly silenceSeconds: number;
  /** How long ranks may take to write a checkpoint when the service stops. */
  readonly graceSeconds: number;
  /** Attempts in a row that may fail without a newer checkpoint. */
  readonly restartLimit: number;
}

interface Training {
  readonly settings: ExecutorSettings;
  readonly database: Database;
  readonly context: CommandContext<"job.run">;
  readonly feed: JobFeed;
  readonly chosen: Candidate;
  readonly runId: string;
  readonly dataset: Dataset;
}

/** The last of the steps that are stored without a gap. */
async function lastStoredStep(database: Database, runId: string): Promise<number> {
  const steps = await allSteps(database.db, runId);
  const gap = steps.findIndex((metric, index) => metric.step !== index + 1);
  return gap < 0 ? steps.length : gap;
}

/** The attempt whose ranks go on without a supervisor, on Slurm: it is the newest, and nobody has concluded it. */
async function leftAttempt({ database, runId }: Training, runDirectory: string): Promise<number | undefined> {
  const record = readSlurmRecord(runDirectory);
  const last = (await listAttempts(database.db, runId)).at(-1);
  return record && !record.cancelled && last?.state === "running" && record.label === attemptLabel(last.number) ? last.number : undefined;
}

/** A new attempt, from the last checkpoint whose steps are all stored. @returns its number. */
async function beginAttempt({ database, context, feed, runId }: Training, checkpoints: string, runDirectory: string): Promise<number> {
  // Ranks that still run would write checkpoints behind our back.
  while (!(await cancelSlurmLeftover(runDirectory))) {
    context.signal.throwIfAborted();
    feed.progress("running", "waits for Slurm to end the ranks that ran before", 0, context.job.spec.steps);
  }
  const discarded = await discardCheckpointsBeyond(checkpoints, await lastStoredStep(database, runId));
  if (discarded.length > 0) context.log.warn({ discarded }, "checkpoints beyond the stored steps were discarded");
  return (await context.fenced((tx) => startAttempt(tx, runId))).number;
}

/** One start of the ranks, until they end. @returns undefined when training is complete, else why the ranks ended. */
async function attemptOnce(training: Training): Promise<Failure | undefined> {
  const { settings, context, feed, chosen, runId, dataset } = training;
  const { job, signal, log } = context;
  const directory = checkpointDirectory(settings.dataDirectory, job.id);
  const runDirectory = launchDirectory(settings.dataDirectory, job.spec.cluster, job.id, "run");
  const left = await leftAttempt(training, runDirectory);
  const number = left ?? (await beginAttempt(training, directory, runDirectory));
  log.info({ attempt: number, plan: planLabel(chosen.plan) }, left === undefined ? "training begins" : "training is found again");
  const outcome = await runAttempt({
    ...settings,
    spec: job.spec,
    plan: chosen.plan,
    dataset,
    attempt: number,
    timeline: await recordTimeline(settings.dataDirectory, job.id, `attempt-${number}`, job.spec.timeline),
    runDirectory,
    checkpointDirectory: directory,
    signal,
    onQueue: (message) => feed.progress("running", message, 0, job.spec.steps),
    onStarted: (resumedFromStep) => context.fenced((tx) => setAttemptResumedFrom(tx, runId, number, resumedFromStep)),
    writeSteps: (metrics) => context.fenced((tx) => recordSteps(tx, { jobId: job.id, runId }, metrics)),
    onCheckpoint: (event) => feed.log("info", "internevo-trainer", `checkpoint at step ${event.step}: ${formatBytes(event.bytes)} in ${event.seconds.toFixed(2)} s`),
    onLog: (line) => feed.log("warn", "internevo-trainer", line),
  });
  if (outcome.status === "completed") {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "succeeded" }));
    return undefined;
  }
  if (outcome.status === "stopped" && outcome.detached) throw signal.reason;
  if (outcome.status === "stopped" && signal.aborted) {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "stopped" }));
    throw signal.reason;
  }
  const failure: Failure = outcome.status === "failed" ? outcome.failure : { code: "rank-lost", message: "the ranks were stopped from outside" };
  await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "failed", failure }));
  log.warn({ attempt: number, failure }, "an attempt failed");
  feed.log("error", "executor-supervisor", `attempt ${number} failed: ${failure.message}`);
  return failure;
}

/** Starts the ranks until training is complete. @returns the job's failure when starting again makes no sense. */
async function trainUntilDone(training: Training): Promise<Failure | undefined> {
  const { settings, database, context, runId } = training;
  for (;;) {
    context.signal.throwIfAborted();
    const attempts: readonly Attempt[] = await listAttempts(database.db, runId);
    if (attempts.at(-1)?.state === "succeeded") return undefined;
    const failure = await attemptOnce(training);
    if (!failure) continue;
    const tried = await listAttempts(database.db, runId);
    const end = failureAfter(tried, failure, settings.restartLimit);
    if (end) return end;
    await sleep(Math.min(30_000, 500 * 2 ** tried.filter((attempt) => attempt.state === "failed").length), undefined, { signal: context.signal });
  }
}

/** Trains with the chosen plan to the asked number of steps, through deaths of ranks and of this process, and reports. */
export const train = (settings: ExecutorSettings, database: Database) => async (context: CommandContext<"job.run">): Promise<Effect> => {
  const { job, log } = context;
  const { chosen } = job;
  if (!chosen) return failedJob(job.id, "running", { code: "internal", message: "the job has no chosen plan", remedy: "submit it again" });
  return withStageFeed(context, "running", async (feed) => {
    const dataset = await prepareTraining(settings, job.spec);
    await context.reserve(launchResource(job.spec.cluster, job.id), () => feed.progress("running", WAITS_FOR_CLUSTER, 0, job.spec.steps));
    feed.progress("running", "starts the ranks", 0, job.spec.steps);
    const run = await context.fenced((tx) => ensureRun(tx, job.id, chosen));
    const failure = await trainUntilDone({ settings, database, context, feed, chosen, runId: run.id, dataset });
    if (failure) return failedJob(job.id, "running", failure);
    const report = reportOf({
      chosen,
      steps: await allSteps(database.db, run.id),
      attempts: await listAttempts(database.db, run.id),
      trials: await listTrials(database.db, job.id),
      unigramEntropyNats: dataset.unigramEntropyNats,
      ranks: worldSize(chosen.plan),
    });
    log.info({ report }, "training is complete");
    return async (tx) => void (await transitionJob(tx, { jobId: job.id, from: "running", to: "succeeded", report }));
  });
};
