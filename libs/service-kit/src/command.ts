import { ProblemError, type Failure } from "@internevo/domain";
import { CATALOG, type MessageData, type MessageType } from "@internevo/contracts";
import type { Bus, Consumption, Delivery } from "@internevo/bus";
import {
  acquireLease,
  assertFence,
  failJob,
  getJob,
  getJobState,
  isConnectionLoss,
  jobLease,
  lockJobState,
  recordHandled,
  recordMessageFailure,
  releaseLease,
  stageOf,
  STAGE_COMMANDS,
  StaleFenceError,
  stateForNewHolder,
  storeDeadLetter,
  traceIdOf,
  transitionJob,
  wasHandled,
  type Database,
  type Fence,
  type JobRow,
  type StageCommand,
  type Transaction,
} from "@internevo/store";
import type { CommandMetrics, CommandOutcome } from "./command-metrics.ts";
import {
  HEARTBEAT_SECONDS,
  keepLeases,
  LEASE_TTL_SECONDS,
  WorkStoppedError,
  type LeaseKeeper,
  type StopReason,
} from "./lease-keeper.ts";
import { logError, type Logger } from "./logging.ts";

export type CommandType = Exclude<MessageType, "job.transitioned">;

/**
 * What a handler's work changes, run in one transaction with the inbox row, guarded by the fence. For a
 * stage's command it must move the job on (`transitionJob`, to `failed` for an expected failure); the job's
 * row is locked and in that stage, so that it succeeds. It may run again when the connection is lost: no
 * effects outside the transaction.
 */
export type Effect = (tx: Transaction) => Promise<void>;

export interface CommandContext<T extends CommandType> {
  readonly data: MessageData<T>;
  /** The job, as it was when the work began; only with a stage's command. */
  readonly job: T extends StageCommand ? JobRow : undefined;
  /**
   * Aborts with a `WorkStoppedError`: the job is being cancelled, the lease was lost, or the service stops.
   * Leave no process behind, then return or throw.
   */
  readonly signal: AbortSignal;
  readonly fence: Fence;
  /** Bound to job and trace. */
  readonly log: Logger;
  readonly traceparent: string;
  /**
   * A short transaction while the work goes on. A holder that was replaced changes nothing
   * (`StaleFenceError`). Repeated while Postgres is away for a while, so what it does must be idempotent (the
   * repositories' functions are).
   */
  fenced<R>(work: (tx: Transaction) => Promise<R>): Promise<R>;
  /**
   * Before anything is started that must not run twice. @throws StaleFenceError, or the signal's reason,
   * where this holder was replaced or cannot tell.
   */
  confirm(): Promise<void>;
  /**
   * Waits for another resource, for example `hostLease(name)`; kept until released or the work ends, and a
   * part of the fence. `onWait` is told when somebody else has it.
   */
  reserve(resource: string, onWait?: () => void): Promise<{ release(): Promise<void> }>;
}

export interface CommandOptions<T extends CommandType> {
  readonly type: T;
  /** What may be worked on once at a time. Default: the job, or the workload. */
  readonly leaseResource?: (data: MessageData<T>) => string;
  /** Commands worked on at once in this process. Default 1. */
  readonly concurrency?: number;
  /**
   * Does the work. @returns what it changes. An error that it throws is unexpected: the command is tried
   * again, and ends in the dead letters.
   */
  readonly handler: (context: CommandContext<T>) => Promise<Effect>;
  /**
   * Whether the work is of no use any more, looked at with every heartbeat; a stage's ends by itself when its
   * job leaves the stage.
   */
  readonly isObsolete?: (data: MessageData<T>) => Promise<boolean>;
  /** Runs with the transition to `cancelled`, after the handler has ended. */
  readonly onCancelled?: (tx: Transaction, data: MessageData<T>) => Promise<void>;
  /** Runs with the dead letter; a job has been failed by then. */
  readonly onGivenUp?: (tx: Transaction, data: MessageData<T>, failure: Failure) => Promise<void>;
  /** Seconds before the next try, by failures so far. Default 1, 2, 4, … 30. */
  readonly backoffSeconds?: (failures: number) => number;
}

export interface CommandRuntime {
  readonly service: string;
  /** Names this process as a lease holder. */
  readonly holder: string;
  readonly database: Database;
  readonly bus: Bus;
  readonly log: Logger;
  readonly metrics: CommandMetrics;
  /** Aborts when the service stops. */
  readonly shutdown: AbortSignal;
}

const BUSY_RETRY_SECONDS = 2;
/**
 * Events may be late: only states that no stage follows end the work at once; for the rest the heartbeat
 * looks at the table.
 */
const ENDS_WORK: readonly string[] = ["cancelling", "cancelled", "failed"];
const isStageCommand = (type: MessageType): type is StageCommand =>
  (Object.values(STAGE_COMMANDS) as MessageType[]).includes(type);
const jobIdOf = (data: unknown): string => (data as { jobId: string }).jobId;
const resourceOf = (data: unknown): string => {
  const { jobId, workloadId } = data as { jobId?: string; workloadId?: string };
  return jobId === undefined ? `workload:${workloadId}` : jobLease(jobId);
};
const textOf = (error: unknown): string =>
  (error instanceof Error ? (error.stack ?? error.message) : String(error)).slice(0, 10_000);

/** Postgres stayed away for too long: nobody's fault, tried again without being counted. */
class DatabaseAwayError extends Error {}
/** The job left the stage while it was being worked on. */
class JobMovedOnError extends Error {}

type Begun =
  | { readonly kind: "begun"; readonly fence: Fence; readonly job: JobRow | undefined }
  | { readonly kind: "busy" }
  | { readonly kind: "moved-on" }
  | { readonly kind: "cancelling"; readonly fence: Fence };

/**
 * Works on the commands of a type with the reliability contract: delivered at least once, in effect once. A
 * message is acknowledged after the transaction of its effect; a lease with a fencing token keeps others away
 * meanwhile, and a silent holder is replaced.
 */
export function handleCommand<T extends CommandType>(
  runtime: CommandRuntime,
  options: CommandOptions<T>,
): Consumption {
  const { database, bus, metrics } = runtime;
  const consumer = `${runtime.service}/${options.type}`;
  const stage = isStageCommand(options.type) ? stageOf(options.type) : undefined;
  const leaseResource = options.leaseResource ?? resourceOf;
  const backoffSeconds = options.backoffSeconds ?? ((failures: number) => Math.min(2 ** (failures - 1), 30));

  /** Takes the lease and looks at the job in one transaction, see `requestCancel` for the other side. */
  const begin = (data: MessageData<T>): Promise<Begun> =>
    database.idempotentTransaction(
      async (tx): Promise<Begun> => {
        const fence = await acquireLease(tx, leaseResource(data), runtime.holder, LEASE_TTL_SECONDS);
        if (!fence) return { kind: "busy" };
        if (stage === undefined) return { kind: "begun", fence, job: undefined };
        const state = await stateForNewHolder(tx, jobIdOf(data));
        if (state === "cancelling") return { kind: "cancelling", fence };
        const job = state === stage ? await getJob(tx, jobIdOf(data)) : undefined;
        if (job) return { kind: "begun", fence, job };
        await releaseLease(tx, fence);
        return { kind: "moved-on" };
      },
      { signal: runtime.shutdown },
    );

  const cancel = (data: MessageData<T>, messageId: string, fences: readonly Fence[]) =>
    database.idempotentTransaction(async (tx) => {
      for (const fence of fences) await assertFence(tx, fence);
      await recordHandled(tx, consumer, messageId);
      if (
        await transitionJob(tx, {
          jobId: jobIdOf(data),
          from: "cancelling",
          to: "cancelled",
          reason: "cancelled on request",
        })
      )
        await options.onCancelled?.(tx, data);
    });

  const finish = (
    data: MessageData<T>,
    messageId: string,
    fences: readonly Fence[],
    effect: Effect,
  ): Promise<CommandOutcome> =>
    database.idempotentTransaction(async (tx): Promise<CommandOutcome> => {
      for (const fence of fences) await assertFence(tx, fence);
      if (!(await recordHandled(tx, consumer, messageId))) return "repeated";
      if (stage !== undefined) {
        const state = await lockJobState(tx, jobIdOf(data));
        if (state === "cancelling") {
          await transitionJob(tx, {
            jobId: jobIdOf(data),
            from: "cancelling",
            to: "cancelled",
            reason: "cancelled on request",
          });
          await options.onCancelled?.(tx, data);
          return "cancelled";
        }
        if (state !== stage) return "moved-on";
      }
      await effect(tx);
      if (stage !== undefined && (await lockJobState(tx, jobIdOf(data))) === stage)
        throw new Error(`the effect of ${options.type} left job ${jobIdOf(data)} in ${stage}`);
      return "done";
    });

  function contextOf(
    delivery: { data: MessageData<T>; traceparent: string },
    job: JobRow | undefined,
    fence: Fence,
    keeper: LeaseKeeper,
    signal: AbortSignal,
    log: Logger,
  ): CommandContext<T> {
    return {
      data: delivery.data,
      job: job as CommandContext<T>["job"],
      signal,
      fence,
      log,
      traceparent: delivery.traceparent,
      confirm() {
        return this.fenced(async () => {});
      },
      async fenced(work) {
        try {
          return await database.idempotentTransaction(
            async (tx) => {
              for (const held of keeper.fences) await assertFence(tx, held);
              if (stage !== undefined) {
                const state = await lockJobState(tx, jobIdOf(delivery.data));
                if (state !== stage && state !== "cancelling")
                  throw new JobMovedOnError(
                    `job ${jobIdOf(delivery.data)} is ${state ?? "gone"}, no longer ${stage}`,
                  );
              }
              return work(tx);
            },
            { signal },
          );
        } catch (error) {
          throw isConnectionLoss(error) ? new DatabaseAwayError("Postgres is away", { cause: error }) : error;
        }
      },
      async reserve(resource, onWait) {
        const held = await keeper.reserve(resource, onWait);
        return { release: () => keeper.release(held) };
      },
    };
  }

  /** Runs the handler under its leases. @returns how it ended; whatever is thrown here is unexpected. */
  async function work(
    delivery: { id: string; data: MessageData<T>; traceparent: string },
    begun: Extract<Begun, { kind: "begun" }>,
    log: Logger,
  ): Promise<CommandOutcome | { readonly stopped: StopReason }> {
    const stop = new AbortController();
    const onShutdown = () => stop.abort(new WorkStoppedError("shutdown"));
    runtime.shutdown.addEventListener("abort", onShutdown, { once: true });
    if (runtime.shutdown.aborted) onShutdown();
    const isCancelled = async () => {
      if (stage === undefined) return (await options.isObsolete?.(delivery.data)) ?? false;
      const state = await getJobState(database.db, jobIdOf(delivery.data));
      return state !== undefined && state !== stage;
    };
    const unlisten =
      stage === undefined
        ? () => {}
        : bus.listen("job.transitioned", (event) => {
            if (event.data.jobId === jobIdOf(delivery.data) && ENDS_WORK.includes(event.data.to))
              stop.abort(new WorkStoppedError("cancelled"));
          });
    const keeper = keepLeases({
      database,
      holder: runtime.holder,
      first: begun.fence,
      stop,
      isCancelled,
      heartbeatSeconds: HEARTBEAT_SECONDS,
    });
    const endTimer = metrics.seconds.startTimer({ type: options.type });
    try {
      let effect: Effect;
      try {
        effect = await options.handler(contextOf(delivery, begun.job, begun.fence, keeper, stop.signal, log));
      } catch (error) {
        if (!stop.signal.aborted && !(error instanceof JobMovedOnError)) throw error;
        if (
          stop.signal.aborted &&
          !(error instanceof WorkStoppedError) &&
          (error as Error | null)?.name !== "AbortError"
        )
          logError(log, error, "the handler ended with an error after it was stopped");
        const why = stop.signal.reason instanceof WorkStoppedError ? stop.signal.reason.why : "cancelled";
        if (why !== "cancelled") return { stopped: why };
        effect = async () => {};
        if (stage === undefined) return { stopped: why };
        const fences = [...keeper.fences];
        await cancel(delivery.data, delivery.id, fences);
        return "cancelled";
      }
      return await finish(delivery.data, delivery.id, [...keeper.fences], effect);
    } finally {
      endTimer();
      runtime.shutdown.removeEventListener("abort", onShutdown);
      unlisten();
      await keeper.close();
    }
  }

  async function giveUp(delivery: Delivery<T>, failures: number, error: unknown): Promise<void> {
    const { envelope } = delivery;
    if (!envelope) return;
    const failure: Failure = {
      code: "internal",
      message: `${options.type} failed ${failures} times: ${error instanceof Error ? error.message : String(error)}`,
      remedy: "see the dead letters, and the log of this trace",
    };
    await database.idempotentTransaction(async (tx) => {
      if (!(await recordHandled(tx, consumer, envelope.id))) return;
      await storeDeadLetter(tx, {
        consumer,
        messageId: envelope.id,
        messageType: options.type,
        subject: delivery.subject,
        payload: envelope,
        error: textOf(error),
        deliveries: delivery.deliveries,
      });
      if (stage !== undefined) await failJob(tx, jobIdOf(envelope.data), failure);
      await options.onGivenUp?.(tx, envelope.data, failure);
    });
  }

  async function bury(delivery: Delivery<T>): Promise<void> {
    const { unreadable } = delivery;
    if (!unreadable) return;
    await storeDeadLetter(database.db, {
      consumer,
      messageId: unreadable.messageId,
      messageType: options.type,
      subject: delivery.subject,
      payload: unreadable.text,
      error: unreadable.error,
      deliveries: delivery.deliveries,
    });
    delivery.discard();
  }

  async function onUnexpected(delivery: Delivery<T>, error: unknown, log: Logger): Promise<CommandOutcome> {
    const { envelope } = delivery;
    if (
      !envelope ||
      isConnectionLoss(error) ||
      error instanceof DatabaseAwayError ||
      error instanceof StaleFenceError
    ) {
      log.warn({ err: error }, `${options.type} is tried again`);
      delivery.retryLater(BUSY_RETRY_SECONDS);
      return "stopped";
    }
    logError(log, error, `${options.type} failed`);
    const failures = await recordMessageFailure(database.db, consumer, envelope.id, textOf(error));
    if (
      failures < CATALOG[options.type].maxDeliver &&
      !(error instanceof ProblemError && error.code !== "unavailable")
    ) {
      delivery.retryLater(backoffSeconds(failures));
      return "failed";
    }
    await giveUp(delivery, failures, error);
    delivery.discard();
    return "dead-letter";
  }

  async function deliver(delivery: Delivery<T>): Promise<CommandOutcome> {
    const { envelope } = delivery;
    if (!envelope) {
      await bury(delivery);
      runtime.log.error(
        { type: options.type, messageId: delivery.unreadable?.messageId, error: delivery.unreadable?.error },
        "a message could not be read",
      );
      return "dead-letter";
    }
    const log = runtime.log.child({
      traceId: traceIdOf(envelope.traceparent),
      type: options.type,
      messageId: envelope.id,
      ...(stage === undefined ? envelope.data : { jobId: jobIdOf(envelope.data) }),
    });
    try {
      if (await wasHandled(database.db, consumer, envelope.id)) {
        delivery.ack();
        return "repeated";
      }
      const begun = await begin(envelope.data);
      if (begun.kind === "busy") {
        delivery.retryLater(BUSY_RETRY_SECONDS);
        return "busy";
      }
      if (begun.kind === "moved-on") {
        delivery.ack();
        return "moved-on";
      }
      if (begun.kind === "cancelling") {
        await cancel(envelope.data, envelope.id, [begun.fence]);
        await releaseLease(database.db, begun.fence);
        delivery.ack();
        return "cancelled";
      }
      log.info(
        { fencingToken: begun.fence.token, deliveries: delivery.deliveries },
        `${options.type} begins`,
      );
      const end = await work(envelope, begun, log);
      if (typeof end === "object") {
        log.info({ why: end.stopped }, `${options.type} was stopped`);
        delivery.retryLater(end.stopped === "shutdown" ? 0 : 1);
        return "stopped";
      }
      delivery.ack();
      log.info({ outcome: end }, `${options.type} ends`);
      return end;
    } catch (error) {
      return onUnexpected(delivery, error, log);
    }
  }

  return bus.consume<T>({
    type: options.type,
    concurrency: options.concurrency ?? 1,
    onError: (error) =>
      runtime.log.warn({ err: error, type: options.type }, "the broker or the database is away"),
    handler: async (delivery) => {
      metrics.outcomes.inc({ type: options.type, outcome: await deliver(delivery) });
    },
  });
}
