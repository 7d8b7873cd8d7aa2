import {
  checkpointsToKeep,
  disturbancesOf,
  formatBytes,
  formatCounted,
  planLabel,
  schedulerOf,
  worldSize,
  type Attempt,
  type Candidate,
  type Failure,
  type HostUse,
  type JobSpec,
  type Plan,
  type PlanChange,
} from "@internevo/domain";
import { type Dataset } from "@internevo/data";
import { launcherOf, type LaunchOutcome } from "@internevo/launcher";
import type { CommandContext, Effect } from "@internevo/service-kit";
import {
  assertPrepared,
  checkpointDirectory,
  failedJob,
  heldJob,
  launchDirectory,
  prepareHeldOut,
  preparingFor,
  prepareTraining,
  prepareWeights,
  recordTimeline,
  secondsBeforeRestart,
  whileReserved,
  weightsDirectory,
  type LaunchReservationOptions,
  type PreparedTraining,
  type Preparing,
  type ProfilingSettings,
  searchPlans,
  withStageFeed,
  type JobFeed,
  type TrainingSettings,
} from "@internevo/stages";
import {
  appendJobEvent,
  changeRunPlan,
  ensureRun,
  findRun,
  finishAttempt,
  getProfile,
  inStateSince,
  lastStoredStep,
  listAttempts,
  listTrials,
  pause,
  recordCheckpoint,
  recordSteps,
  recordValidations,
  setAttemptResumedFrom,
  startAttempt,
  stepTotals,
  transitionJob,
  validationTotals,
  type Database,
  type RanksOfAttempts,
} from "@internevo/store";
import { checkpointSteps, discardCheckpointsBeyond, leaveNewest, tellCounted } from "../checkpoints.ts";
import { namingOwn } from "../data-words.ts";
import { findBetterPlan, type BetterPlan } from "../find-better-plan.ts";
import { PlanChanges } from "../plan-change.ts";
import { reportOf } from "../report.ts";
import { attemptsWithoutProgress, endAfter, type TrainingEnd } from "../restarts.ts";
import { attemptLabel, runAttempt } from "../run-attempt.ts";
import { changeWords, nodesOf, planForFewerNodes, specOn } from "../smaller-cluster.ts";

export interface ExecutorSettings extends TrainingSettings {
  /** Of runs that measure their cluster anew. */
  readonly profiling: ProfilingSettings;
  /** Ranks that say nothing for so long count as hung. */
  readonly silenceSeconds: number;
  /** How long ranks may take to write a checkpoint when the service stops. */
  readonly graceSeconds: number;
  /** How long ranks may take for their step and a checkpoint when the job gives way to another. */
  readonly giveWaySeconds: number;
  /** Attempts in a row that may fail without a newer checkpoint. */
  readonly restartLimit: number;
}

interface Training {
  readonly settings: ExecutorSettings;
  readonly database: Database;
  readonly context: CommandContext<"job.run">;
  readonly feed: JobFeed;
  readonly runId: string;
  readonly preparing: Preparing;
  prepared: PreparedTraining;
  readonly heldOut: Dataset | undefined;
  readonly changes: PlanChanges;
  /** What the hosts did during the last attempt. */
  hosts?: readonly HostUse[];
}

/** Measures the cluster between two attempts, and searches for a plan that is better than the run's. */
async function searchAnew(
  { settings, database, context, feed }: Pick<Training, "settings" | "database" | "context" | "feed">,
  { id, gainThreshold }: PlanChange,
  takenBack: AbortSignal,
): Promise<BetterPlan> {
  const { job } = context;
  const from = (await findRun(database.db, job.id))?.candidate;
  if (!from) throw new Error(`the run of job ${job.id} is missing`);
  const signal = AbortSignal.any([context.signal, context.giveWay, takenBack]);
  return findBetterPlan({
    settings: settings.profiling,
    database,
    jobId: job.id,
    look: id,
    spec: specOn(job.spec, nodesOf(from.plan, job.spec.cluster)),
    from,
    gainThreshold,
    search: (spec, profile, locate) =>
      searchPlans(spec, profile, { top: 10, locate, threadsPerRank: settings.threadsPerRank }, signal),
    confirm: () => context.confirm(),
    signal,
    onProgress: (message, done, total, waits) => feed.progress("running", message, done, total, waits),
    onLog: (line) => feed.log("warn", "internevo-probe", line),
  });
}

/** The attempt whose ranks go on without a supervisor: it is the newest, and nobody has concluded it. */
async function leftAttempt(
  { database, context, runId }: Training,
  runDirectory: string,
): Promise<number | undefined> {
  const record = launcherOf(context.job.spec.cluster).outliving?.left(runDirectory);
  const last = (await listAttempts(database.db, runId)).at(-1);
  return record &&
    !record.cancelled &&
    last?.state === "running" &&
    record.label === attemptLabel(last.number)
    ? last.number
    : undefined;
}

/** A new attempt, from the last checkpoint whose steps are all stored. @returns its number. */
async function beginAttempt(
  { database, context, feed, runId, changes }: Training,
  checkpoints: string,
  runDirectory: string,
): Promise<number> {
  // Ranks that still run would write checkpoints behind our back.
  const { cluster, steps } = context.job.spec;
  const { outliving } = launcherOf(cluster);
  while (outliving !== null && !(await outliving.endLeft(runDirectory))) {
    context.signal.throwIfAborted();
    feed.progress(
      "running",
      `waits for ${schedulerOf(cluster)} to end the ranks that ran before`,
      0,
      steps,
      true,
    );
  }
  const discarded = await discardCheckpointsBeyond(checkpoints, await lastStoredStep(database.db, runId));
  const fromStep = (await checkpointSteps(checkpoints)).at(-1) ?? 0;
  // Before the ranks write their first one: until more steps are counted, they keep what this supervisor's
  // successor could go on from.
  if (context.job.spec.checkpointing !== null) await tellCounted(checkpoints, fromStep);
  const lastAttempt = (await listAttempts(database.db, runId)).at(-1)?.number ?? 0;
  await changes.settle({ atStep: fromStep, attempt: lastAttempt + 1 });
  // Ranks that are lost before they say where they begin made no progress either.
  const { number } = await context.fenced((tx) => startAttempt(tx, runId, fromStep));
  if (discarded.length > 0) {
    context.log.warn({ discarded, fromStep }, "checkpoints beyond the stored steps were discarded");
    feed.log(
      "warn",
      "executor-supervisor",
      `attempt ${number} begins after step ${fromStep}: later checkpoints (${discarded.map((step) => `step ${step}`).join(", ")}) hold steps that nobody has counted, and are discarded`,
    );
  }
  return number;
}

/**
 * An attempt that did not complete. `replanned`: the next one has another plan, so that this one's failure
 * says nothing of it.
 */
interface Ended {
  readonly failure: Failure;
  readonly replanned?: boolean;
}

/**
 * Too few nodes are left for the plan: the run gets one for those that are there, in the same transaction as
 * the attempt ends, so that whoever goes on after a kill finds all of it or nothing.
 */
async function endForWantOfNodes(
  training: Training,
  candidate: Candidate,
  number: number,
  failure: Failure,
  nodesLeft: number,
): Promise<Ended> {
  const { settings, database, context, feed, runId } = training;
  const { job, signal, log } = context;
  const { spec } = job;
  feed.progress("running", `plans again for the nodes that are left: ${nodesLeft}`, 0, spec.steps);
  const stored = job.profileId === null ? undefined : await getProfile(database.db, job.profileId);
  if (!stored) throw new Error(`the profile ${job.profileId ?? ""} of job ${job.id} is not stored any more`);
  const search = (smaller: typeof spec, profile: typeof stored.profile) =>
    searchPlans(smaller, profile, { top: 10, threadsPerRank: settings.threadsPerRank }, signal);
  const smaller = await planForFewerNodes({ spec, profile: stored.profile, nodesLeft, failure, search });
  if ("failure" in smaller) {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "failed", failure }));
    log.warn({ attempt: number, failure: smaller.failure }, "too few nodes are left");
    feed.log("error", "executor-supervisor", `attempt ${number} failed: ${smaller.failure.message}`);
    return { failure: smaller.failure };
  }
  const lastStored = await lastStoredStep(database.db, runId);
  const fromStep =
    (await checkpointSteps(checkpointDirectory(settings.dataDirectory, job.id))).findLast(
      (step) => step <= lastStored,
    ) ?? 0;
  const message = changeWords(
    { nodes: nodesOf(candidate.plan, spec.cluster), plan: candidate.plan },
    { nodes: smaller.nodes, plan: smaller.candidate.plan },
    nodesLeft,
    fromStep,
  );
  await context.fenced(async (tx) => {
    if (!(await finishAttempt(tx, runId, number, { state: "failed", failure }))) return;
    await changeRunPlan(tx, runId, smaller.candidate);
    await appendJobEvent(tx, job.id, "log", { level: "warn", source: "executor-supervisor", message });
  });
  log.warn(
    { attempt: number, nodes: smaller.nodes, plan: planLabel(smaller.candidate.plan), fromStep },
    "planned again for fewer nodes",
  );
  return { failure, replanned: true };
}

/**
 * What the next ranks are given. Weights to begin with are looked at as long as no checkpoint is there to go on from:
 * afterwards nobody needs them.
 */
async function preparedForNext(training: Training): Promise<PreparedTraining> {
  const { settings, database, context } = training;
  const { job } = context;
  const steps = await checkpointSteps(checkpointDirectory(settings.dataDirectory, job.id));
  if (steps.length > 0) return { ...training.prepared, weights: undefined };
  if (job.spec.initialWeights !== undefined && training.prepared.weights === undefined) {
    const weights = await prepareWeights(settings, database, job, training.preparing);
    training.prepared = { ...training.prepared, weights };
  }
  return training.prepared;
}

/** A job as ranks are given it. */
function specForRanks(
  { settings, context: { job } }: Training,
  plan: Plan,
  { weights }: PreparedTraining,
): JobSpec {
  const spec = specOn(job.spec, nodesOf(plan, job.spec.cluster));
  if (spec.initialWeights === undefined) return spec;
  // Ranks that find no checkpoint after all refuse the folder of all weights, and do not begin with others.
  return { ...spec, initialWeights: weights ?? weightsDirectory(settings.dataDirectory, job.id) };
}

/** Starts the ranks under a plan, and looks meanwhile whether it is to be changed. */
async function launchAttempt(
  training: Training,
  {
    number,
    plan,
    runDirectory,
  }: { readonly number: number; readonly plan: Plan; readonly runDirectory: string },
): Promise<{ readonly outcome: LaunchOutcome; readonly isToChange: boolean }> {
  const { settings, context, feed, runId, heldOut, changes } = training;
  const { job, signal, giveWay } = context;
  const prepared = await preparedForNext(training);
  const spec = specForRanks(training, plan, prepared);
  const changing = new AbortController();
  const ended = new AbortController();
  const watching = changes.watch(ended.signal, (why) => {
    feed.log("info", "executor-supervisor", `the ranks write a checkpoint, and stop ${why}`);
    changing.abort();
  });
  feed.progress("running", "starts the ranks", 0, job.spec.steps);
  try {
    const outcome = await runAttempt({
      ...settings,
      spec,
      plan,
      dataset: prepared.dataset,
      heldOut,
      attempt: number,
      timeline: await recordTimeline(settings.dataDirectory, job.id, `attempt-${number}`, job.spec.timeline),
      runDirectory,
      checkpointDirectory: checkpointDirectory(settings.dataDirectory, job.id),
      signal,
      giveWay: AbortSignal.any([giveWay, changing.signal]),
      confirm: async () => {
        await assertPrepared(settings, job.spec, prepared, heldOut);
        await context.confirm();
      },
      onQueue: (message, waits) => feed.progress("running", message, 0, job.spec.steps, waits),
      onStarted: (resumedFromStep) => {
        // What was at work before them is over. Of a scheduler it is known where they run.
        if (schedulerOf(spec.cluster) === null) feed.progress("running", "", resumedFromStep, job.spec.steps);
        return context.fenced((tx) => setAttemptResumedFrom(tx, runId, number, resumedFromStep));
      },
      write: ({ steps, validations }) =>
        context
          .fenced(async (tx) => {
            await recordSteps(tx, { jobId: job.id, runId }, steps);
            await recordValidations(tx, { jobId: job.id, runId }, validations);
          })
          .then(() => changes.saw(steps)),
      onCheckpoint: (event, isRepeated) => {
        if (!isRepeated)
          feed.log(
            "info",
            "internevo-trainer",
            `checkpoint at step ${event.step}: ${formatBytes(event.bytes)} in ${event.seconds.toFixed(2)} s`,
          );
        return context.fenced((tx) => recordCheckpoint(tx, { runId, attempt: number }, event));
      },
      onHosts: (hosts) => {
        training.hosts = hosts;
        return changes.sawDisturbances(number, disturbancesOf(hosts, settings.mostOthersPercent));
      },
      onLog: (line) => feed.log("warn", "internevo-trainer", line),
    });
    return { outcome, isToChange: changing.signal.aborted };
  } finally {
    ended.abort();
    await watching;
  }
}

/**
 * One start of the ranks, until they end. @returns undefined when training is complete, else why the ranks
 * ended.
 */
async function attemptOnce(training: Training): Promise<Ended | undefined> {
  const { settings, database, context, feed, runId } = training;
  const { job, signal, giveWay, log } = context;
  const directory = checkpointDirectory(settings.dataDirectory, job.id);
  const runDirectory = launchDirectory(settings.dataDirectory, job.spec.cluster, job.id, "run");
  const left = await leftAttempt(training, runDirectory);
  const number = left ?? (await beginAttempt(training, directory, runDirectory));
  // The attempt's beginning may have changed the plan.
  const candidate = (await findRun(database.db, job.id))?.candidate;
  if (!candidate) throw new Error(`the run of job ${job.id} is missing`);
  const { plan } = candidate;
  log.info(
    { attempt: number, plan: planLabel(plan) },
    left === undefined ? "training begins" : "training is found again",
  );
  training.changes.begin();
  if (left !== undefined) await training.changes.foundAgain(left);
  const { outcome, isToChange } = await launchAttempt(training, { number, plan, runDirectory });
  if (outcome.status === "completed") {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "succeeded" }));
    return undefined;
  }
  if (outcome.status === "stopped" && outcome.detached) throw signal.reason;
  if (outcome.status === "stopped" && signal.aborted) {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "stopped" }));
    throw signal.reason;
  }
  // The attempt ends with the transaction that gives the hosts up.
  if (outcome.status === "stopped") giveWay.throwIfAborted();
  if (outcome.status === "stopped" && isToChange) {
    await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "stopped" }));
    return { failure: { code: "rank-lost", message: "the plan changes" }, replanned: true };
  }
  const failure: Failure =
    outcome.status === "failed"
      ? namingOwn(outcome.failure, job.spec, { ...training.prepared, heldOut: training.heldOut })
      : { code: "rank-lost", message: "the ranks were stopped from outside" };
  if (
    outcome.status === "failed" &&
    outcome.nodesLeft !== undefined &&
    job.spec.cluster.minNodes !== undefined
  )
    return endForWantOfNodes(training, candidate, number, failure, outcome.nodesLeft);
  await context.fenced((tx) => finishAttempt(tx, runId, number, { state: "failed", failure }));
  log.warn({ attempt: number, failure }, "an attempt failed");
  feed.log("error", "executor-supervisor", `attempt ${number} failed: ${failure.message}`);
  return { failure };
}

async function waitFor(seconds: number, signal: AbortSignal): Promise<void> {
  await pause(1000 * seconds, signal);
  signal.throwIfAborted();
}

/**
 * Starts the ranks until training is complete. @returns how the job ends when starting again makes no sense.
 */
async function trainUntilDone(training: Training): Promise<TrainingEnd | undefined> {
  const { settings, database, context, feed, runId, changes } = training;
  const { signal, giveWay } = context;
  const since = (await inStateSince(database.db, context.job.id)).toISOString();
  /** The last attempt of a plan that the run went back from. */
  let lastOfOther = 0;
  for (;;) {
    signal.throwIfAborted();
    const attempts: readonly Attempt[] = await listAttempts(database.db, runId);
    if (attempts.at(-1)?.state === "succeeded") return undefined;
    giveWay.throwIfAborted();
    const ended = await attemptOnce(training);
    if (!ended || ended.replanned) continue;
    const all = await listAttempts(database.db, runId);
    const tried = all.filter(({ startedAt, number }) => startedAt >= since && number > lastOfOther);
    const end = endAfter(tried, ended.failure, settings.restartLimit);
    if (await changes.returnAfter(ended.failure, end !== undefined)) {
      lastOfOther = all.at(-1)?.number ?? 0;
      continue;
    }
    if (end) return end;
    const seconds = secondsBeforeRestart(attemptsWithoutProgress(tried));
    feed.log("info", "executor-supervisor", `starts the ranks again in ${formatCounted(seconds, "second")}`);
    await waitFor(seconds, AbortSignal.any([signal, giveWay]));
  }
}

/** Whether training goes on from a checkpoint, however it is let go on. */
async function hasCountedCheckpoint(
  { dataDirectory }: ExecutorSettings,
  { db }: Database,
  jobId: string,
): Promise<boolean> {
  const [first] = await checkpointSteps(checkpointDirectory(dataDirectory, jobId));
  const run = first === undefined ? undefined : await findRun(db, jobId);
  return first !== undefined && run !== undefined && first <= (await lastStoredStep(db, run.id));
}

/** Training is complete, whatever becomes of the checkpoints that are older. */
async function removeOlderCheckpoints(
  settings: ExecutorSettings,
  { job: { id, spec }, log }: CommandContext<"job.run">,
  feed: JobFeed,
): Promise<void> {
  if (spec.checkpointing === null) return;
  await leaveNewest(
    checkpointDirectory(settings.dataDirectory, id),
    checkpointsToKeep(spec.checkpointing),
  ).catch((error: unknown) => {
    const words = "older checkpoints cannot be removed";
    log.warn({ error }, words);
    feed.log("warn", "executor-supervisor", `${words}: ${(error as Error).message}`);
  });
}

const ranksOf = (attempts: readonly Attempt[], chosen: Candidate): RanksOfAttempts => ({
  byAttempt: new Map(attempts.flatMap(({ number, plan }) => (plan ? [[number, worldSize(plan)]] : []))),
  otherwise: worldSize(chosen.plan),
});

/**
 * Trains with the chosen plan to the asked number of steps, through deaths of ranks and of this process, and
 * reports.
 */
export const train =
  (settings: ExecutorSettings, database: Database) =>
  async (context: CommandContext<"job.run">): Promise<Effect> => {
    const { job, log } = context;
    const { chosen } = job;
    if (!chosen)
      return failedJob(job.id, "running", {
        code: "internal",
        message: "the job has no chosen plan",
        remedy: "submit it again",
      });
    return withStageFeed(context, "running", async (feed) => {
      const tellAsked = (): void =>
        feed.log("info", "executor-supervisor", `${(context.giveWay.reason as Error).message}`);
      context.giveWay.addEventListener("abort", tellAsked, { once: true });
      const preparing = preparingFor(job, database, context.signal);
      const isBegun = await hasCountedCheckpoint(settings, database, job.id);
      const prepared = await prepareTraining(settings, database, job, preparing, isBegun);
      const heldOut = await prepareHeldOut(settings, job.spec, preparing);
      const reservation: LaunchReservationOptions = {
        ...settings,
        cluster: job.spec.cluster,
        claimHosts: (hosts) => context.claimHosts(hosts),
        confirm: () => context.confirm(),
        use: "train",
        signal: AbortSignal.any([context.signal, context.giveWay]),
        onWait: (message) => feed.progress("running", message, 0, job.spec.steps, true),
        onNotice: (message) => feed.log("warn", "executor-supervisor", message),
        onDetails: (message) => log.info(message),
      };
      const { run, training, end } = await whileReserved(reservation, async () => {
        const run = await context.fenced((tx) => ensureRun(tx, job.id, chosen));
        const changes = new PlanChanges({
          database,
          feed,
          run: { id: run.id, jobId: job.id },
          fenced: (work) => context.fenced(work),
          replanning: job.spec.replanning && { rule: job.spec.replanning, steps: job.spec.steps },
          search: (change, signal) => searchAnew({ settings, database, context, feed }, change, signal),
          onError: (error) => log.error({ err: error }, "a change of the plan could not be looked at"),
        });
        const training: Training = {
          settings,
          database,
          context,
          feed,
          runId: run.id,
          preparing,
          prepared,
          heldOut,
          changes,
        };
        const end = await trainUntilDone(training);
        if (!end) await changes.close();
        return { run, training, end };
      });
      if (end) return (end.state === "held" ? heldJob : failedJob)(job.id, "running", end.failure);
      await removeOlderCheckpoints(settings, context, feed);
      const attempts = await listAttempts(database.db, run.id);
      const report = reportOf({
        job: job.spec,
        chosen,
        steps: await stepTotals(database.db, run.id, ranksOf(attempts, chosen), context.signal),
        validation: await validationTotals(database.db, run.id, context.signal),
        attempts,
        trials: await listTrials(database.db, job.id),
        unigramEntropyNats: prepared.dataset.unigramEntropyNats,
        hosts: training.hosts ?? [],
        mostOthersPercent: settings.mostOthersPercent,
      });
      log.info({ report }, "training is complete");
      return async (tx) =>
        void (await transitionJob(tx, { jobId: job.id, from: "running", to: "succeeded", report }));
    });
  };
