import { DEFAULT_PRIORITY, ProblemError, type Failure } from "@internevo/domain";
import {
  COMMANDS,
  type CommandType,
  type Envelope,
  type MessageData,
  type MessageType,
} from "@internevo/contracts";
import type { Bus, Consumption, Delivery } from "@internevo/bus";
import {
  acquireLease,
  askedToGiveWay,
  assertFence,
  claimHosts,
  failJob,
  getJob,
  getJobState,
  giveWay,
  isConnectionLoss,
  isDiskFull,
  jobLease,
  lockJobState,
  lockQueue,
  queueLimit,
  recordHandled,
  recordMessageFailure,
  releaseHosts,
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
  type HostRequest,
  type JobRow,
  type StageCommand,
  type Transaction,
} from "@internevo/store";
import type { CommandMetrics, CommandOutcome } from "./command-metrics.ts";
import {
  HEARTBEAT_SECONDS,
  keepLease,
  LEASE_TTL_SECONDS,
  WorkStoppedError,
  type StopReason,
} from "./lease-keeper.ts";
import { logError, type Logger } from "./logging.ts";
import { Places } from "./places.ts";

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
  /**
   * Aborts with a {@link GiveWayError} when a more urgent job waits for the job's hosts. Work that can end in
   * order and go on later from what it has does so, leaves no process behind, and throws the reason. Other work
   * goes on: the job gives way before its next stage.
   */
  readonly giveWay: AbortSignal;
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
   * Claims hosts for the work, all or none, before it starts anything there. A job keeps them until it is over,
   * other work until this command is. @throws OthersGoFirstError while others go first: let it end the handler,
   * which then holds nothing, and is called again when its turn has come.
   */
  claimHosts(hosts: readonly string[]): Promise<void>;
}

/**
 * Others have the hosts, or wait for them with an earlier place, or a quota lets the work have none: it is in the
 * queue now.
 */
export class OthersGoFirstError extends Error {
  /** The quota of the work's project that it waits for, in words; null: it waits for hosts alone. */
  readonly limit: string | null;

  constructor(limit: string | null = null) {
    super(limit ?? "others go first on these hosts");
    this.name = "OthersGoFirstError";
    this.limit = limit;
  }
}

/**
 * The job gives its hosts up for a more urgent one, and waits for them again: let it end the handler, which is
 * called again when its turn has come.
 */
export class GiveWayError extends Error {
  constructor(to: string) {
    super(`asked to give way to ${to}`);
    this.name = "GiveWayError";
  }
}

export interface CommandOptions<T extends CommandType> {
  readonly type: T;
  /** What may be worked on once at a time. Default: the job, or the workload. */
  readonly leaseResource?: (data: MessageData<T>) => string;
  /** Commands worked on at once in this process. Default 1. */
  readonly concurrency?: number;
  /**
   * Whose work it is: a project has no more of the places at once than it leaves to others. What is too much comes
   * again later, and holds none meanwhile. Without it, and of work that is gone (undefined), any number.
   */
  readonly projectOf?: (data: MessageData<T>) => Promise<string | undefined>;
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
 * Seconds until work comes again that its project had no place for. What has waited for long is looked at seldom:
 * however much one project has waiting, that costs the others little.
 */
const postponedSeconds = (deliveries: number): number => Math.min(BUSY_RETRY_SECONDS * deliveries, 300);
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
/** Jobs get hosts by their priority and submission; scheduled work lets the jobs of an hour go first. */
const placeOf = (job: JobRow | undefined): Pick<HostRequest, "priority" | "submittedAt"> =>
  job
    ? { priority: job.spec.priority ?? DEFAULT_PRIORITY, submittedAt: job.createdAt }
    : { priority: "scheduled", submittedAt: new Date() };
const textOf = (error: unknown): string =>
  (error instanceof Error ? (error.stack ?? error.message) : String(error)).slice(0, 10_000);
const defaultBackoffSeconds = (failures: number): number => Math.min(2 ** (failures - 1), 30);
/** What a handler throws because its signal ended it. */
const isStop = (error: unknown): boolean =>
  error instanceof WorkStoppedError || (error as Error | null)?.name === "AbortError";
/** @returns whether the job was being cancelled; it is cancelled then. */
const cancelJob = (tx: Transaction, jobId: string) =>
  transitionJob(tx, { jobId, from: "cancelling", to: "cancelled", reason: "cancelled on request" });

/** Postgres stayed away for too long: nobody's fault, tried again without being counted. */
class DatabaseAwayError extends Error {}
/** The job left the stage while it was being worked on. */
class JobMovedOnError extends Error {}

type Begun =
  | { readonly kind: "begun"; readonly fence: Fence; readonly job: JobRow | undefined }
  | { readonly kind: "busy" }
  | { readonly kind: "moved-on" }
  | { readonly kind: "cancelling"; readonly fence: Fence };

/** What one delivery's work has: its lease, and the signal that ends it. */
interface Holding {
  readonly fence: Fence;
  readonly signal: AbortSignal;
  readonly giveWay: AbortSignal;
  readonly log: Logger;
}

/** Works on the deliveries of one type of command. */
class CommandWorker<T extends CommandType> {
  readonly #runtime: CommandRuntime;
  readonly #options: CommandOptions<T>;
  readonly #consumer: string;
  readonly #stage: ReturnType<typeof stageOf> | undefined;
  readonly #places: Places;

  constructor(runtime: CommandRuntime, options: CommandOptions<T>) {
    this.#runtime = runtime;
    this.#options = options;
    this.#consumer = `${runtime.service}/${options.type}`;
    this.#places = new Places(options.concurrency ?? 1);
    this.#stage = isStageCommand(options.type) ? stageOf(options.type) : undefined;
  }

  async deliver(delivery: Delivery<T>): Promise<CommandOutcome> {
    const { envelope } = delivery;
    if (!envelope) return this.#bury(delivery);
    const log = this.#runtime.log.child({
      traceId: traceIdOf(envelope.traceparent),
      type: this.#options.type,
      messageId: envelope.id,
      ...(this.#stage === undefined ? envelope.data : { jobId: jobIdOf(envelope.data) }),
    });
    try {
      return await this.#handle(delivery, envelope, log);
    } catch (error) {
      return this.#onUnexpected(delivery, error, log);
    }
  }

  async #handle(delivery: Delivery<T>, envelope: Envelope<T>, log: Logger): Promise<CommandOutcome> {
    if (await wasHandled(this.#runtime.database.db, this.#consumer, envelope.id)) {
      delivery.ack();
      return "repeated";
    }
    const project = await this.#options.projectOf?.(envelope.data);
    if (project === undefined) return this.#handleInPlace(delivery, envelope, log);
    const giveBack = this.#places.take(project);
    if (giveBack === undefined) {
      delivery.retryLater(postponedSeconds(delivery.deliveries));
      return "postponed";
    }
    try {
      return await this.#handleInPlace(delivery, envelope, log);
    } finally {
      giveBack();
    }
  }

  async #handleInPlace(delivery: Delivery<T>, envelope: Envelope<T>, log: Logger): Promise<CommandOutcome> {
    const { database } = this.#runtime;
    const { type } = this.#options;
    const begun = await this.#begin(envelope.data);
    if (begun.kind === "busy") {
      delivery.retryLater(BUSY_RETRY_SECONDS);
      return "busy";
    }
    if (begun.kind === "moved-on") {
      delivery.ack();
      return "moved-on";
    }
    if (begun.kind === "cancelling") {
      await this.#cancel(envelope, begun.fence);
      await releaseLease(database.db, begun.fence);
      delivery.ack();
      return "cancelled";
    }
    log.info({ fencingToken: begun.fence.token, deliveries: delivery.deliveries }, `${type} begins`);
    const end = await this.#work(envelope, begun, log);
    if (typeof end === "object") {
      log.info({ why: end.stopped }, `${type} was stopped`);
      delivery.retryLater(end.stopped === "shutdown" ? 0 : 1);
      return "stopped";
    }
    delivery.ack();
    log.info({ outcome: end }, `${type} ends`);
    return end;
  }

  /** Takes the lease and looks at the job in one transaction, see `requestCancel` for the other side. */
  #begin(data: MessageData<T>): Promise<Begun> {
    const { database, holder, shutdown } = this.#runtime;
    const resource = (this.#options.leaseResource ?? resourceOf)(data);
    return database.idempotentTransaction(
      async (tx): Promise<Begun> => {
        const fence = await acquireLease(tx, resource, holder, LEASE_TTL_SECONDS);
        if (!fence) return { kind: "busy" };
        if (this.#stage === undefined) return { kind: "begun", fence, job: undefined };
        const state = await stateForNewHolder(tx, jobIdOf(data));
        if (state === "cancelling") return { kind: "cancelling", fence };
        const job = state === this.#stage ? await getJob(tx, jobIdOf(data)) : undefined;
        if (job) return { kind: "begun", fence, job };
        await releaseLease(tx, fence);
        return { kind: "moved-on" };
      },
      { signal: shutdown },
    );
  }

  /** Runs the handler under its leases. @returns how it ended; whatever is thrown here is unexpected. */
  async #work(
    envelope: Envelope<T>,
    begun: Extract<Begun, { kind: "begun" }>,
    log: Logger,
  ): Promise<CommandOutcome | { readonly stopped: StopReason }> {
    const { database, metrics, shutdown } = this.#runtime;
    const stop = new AbortController();
    const onShutdown = () => stop.abort(new WorkStoppedError("shutdown"));
    shutdown.addEventListener("abort", onShutdown, { once: true });
    if (shutdown.aborted) onShutdown();
    const unlisten = this.#stopWhenJobEnds(envelope.data, stop);
    const asked = new AbortController();
    const keeper = keepLease({
      database,
      fence: begun.fence,
      stop,
      isCancelled: () => this.#isObsolete(envelope.data),
      onKept: () => this.#lookWhetherAsked(envelope.data, asked),
      heartbeatSeconds: HEARTBEAT_SECONDS,
    });
    const endTimer = metrics.seconds.startTimer({ type: this.#options.type });
    try {
      return await this.#runHandler(envelope, begun, {
        fence: begun.fence,
        signal: stop.signal,
        giveWay: asked.signal,
        log,
      });
    } finally {
      endTimer();
      shutdown.removeEventListener("abort", onShutdown);
      unlisten();
      await keeper.close();
    }
  }

  async #isObsolete(data: MessageData<T>): Promise<boolean> {
    if (this.#stage === undefined) return (await this.#options.isObsolete?.(data)) ?? false;
    const state = await getJobState(this.#runtime.database.db, jobIdOf(data));
    return state !== undefined && state !== this.#stage;
  }

  /** Only jobs give way. */
  async #lookWhetherAsked(data: MessageData<T>, asked: AbortController): Promise<void> {
    if (this.#stage === undefined || asked.signal.aborted) return;
    const to = await askedToGiveWay(this.#runtime.database.db, resourceOf(data));
    if (to !== undefined) asked.abort(new GiveWayError(to));
  }

  /** Ends the work at once when an event says that its job ends. @returns a function that ends this. */
  #stopWhenJobEnds(data: MessageData<T>, stop: AbortController): () => void {
    if (this.#stage === undefined) return () => {};
    return this.#runtime.bus.listen("job.transitioned", (event) => {
      if (event.data.jobId === jobIdOf(data) && ENDS_WORK.includes(event.data.to))
        stop.abort(new WorkStoppedError("cancelled"));
    });
  }

  async #runHandler(
    envelope: Envelope<T>,
    begun: Extract<Begun, { kind: "begun" }>,
    holding: Holding,
  ): Promise<CommandOutcome | { readonly stopped: StopReason }> {
    const { fence, signal, log } = holding;
    let effect: Effect;
    try {
      effect = await this.#options.handler(this.#contextOf(envelope, begun, holding));
    } catch (error) {
      if (error instanceof OthersGoFirstError && !signal.aborted) return this.#queued(envelope, fence);
      if (error instanceof GiveWayError && !signal.aborted) return this.#gaveWay(envelope, holding, error);
      if (!signal.aborted && !(error instanceof JobMovedOnError)) throw error;
      if (signal.aborted && !isStop(error))
        logError(log, error, "the handler ended with an error after it was stopped");
      const why = signal.reason instanceof WorkStoppedError ? signal.reason.why : "cancelled";
      if (why !== "cancelled" || this.#stage === undefined) return { stopped: why };
      await this.#cancel(envelope, fence);
      return "cancelled";
    }
    return this.#finish(envelope, fence, effect);
  }

  #contextOf(
    envelope: Envelope<T>,
    begun: Extract<Begun, { kind: "begun" }>,
    { fence, signal, giveWay: asked, log }: Holding,
  ): CommandContext<T> {
    const fenced = <R>(work: (tx: Transaction) => Promise<R>): Promise<R> =>
      this.#fenced(envelope.data, fence, signal, work);
    const { type, data, traceparent } = envelope;
    return {
      data: envelope.data,
      job: begun.job as CommandContext<T>["job"],
      signal,
      giveWay: asked,
      fence,
      log,
      traceparent,
      fenced,
      confirm: () => fenced(async () => {}),
      async claimHosts(hosts) {
        const owner = resourceOf(data);
        // Whoever worked on it before died, or had a stage that does not stop in the middle.
        const to = await fenced((tx) => askedToGiveWay(tx, owner));
        if (to !== undefined) throw new GiveWayError(to);
        const waitsFor = await fenced(async (tx) => {
          // Its priority may have changed since the work began: preparing may take an hour. Whoever changes it moves
          // those that wait, under the queue's lock: it is either read here, or finds this work waiting.
          await lockQueue(tx);
          const job = begun.job && (await getJob(tx, begun.job.id));
          const claimed = await claimHosts(tx, {
            owner,
            hosts,
            ...placeOf(job),
            command: { type, data, traceparent },
          });
          return claimed ? undefined : { limit: await queueLimit(tx, owner) };
        });
        if (waitsFor) throw new OthersGoFirstError(waitsFor.limit);
      },
    };
  }

  async #fenced<R>(
    data: MessageData<T>,
    fence: Fence,
    signal: AbortSignal,
    work: (tx: Transaction) => Promise<R>,
  ): Promise<R> {
    try {
      return await this.#runtime.database.idempotentTransaction(
        async (tx) => {
          await assertFence(tx, fence);
          if (this.#stage !== undefined) {
            const state = await lockJobState(tx, jobIdOf(data));
            if (state !== this.#stage && state !== "cancelling")
              throw new JobMovedOnError(
                `job ${jobIdOf(data)} is ${state ?? "gone"}, no longer ${this.#stage}`,
              );
          }
          return work(tx);
        },
        { signal },
      );
    } catch (error) {
      throw isConnectionLoss(error) ? new DatabaseAwayError("Postgres is away", { cause: error }) : error;
    }
  }

  #cancel(envelope: Envelope<T>, fence: Fence): Promise<void> {
    return this.#runtime.database.idempotentTransaction(async (tx) => {
      await assertFence(tx, fence);
      await recordHandled(tx, this.#consumer, envelope.id);
      if (await cancelJob(tx, jobIdOf(envelope.data))) await this.#options.onCancelled?.(tx, envelope.data);
    });
  }

  /** The message is done with: the queue publishes another when the turn has come. */
  #queued(envelope: Envelope<T>, fence: Fence): Promise<CommandOutcome> {
    return this.#runtime.database.idempotentTransaction(async (tx): Promise<CommandOutcome> => {
      await assertFence(tx, fence);
      if (!(await recordHandled(tx, this.#consumer, envelope.id))) return "repeated";
      if (this.#stage === undefined) return "queued";
      if (!(await cancelJob(tx, jobIdOf(envelope.data)))) return "queued";
      await this.#options.onCancelled?.(tx, envelope.data);
      return "cancelled";
    });
  }

  /** As {@link #queued}, and the hosts are given up with it. */
  #gaveWay(envelope: Envelope<T>, { fence, log }: Holding, why: GiveWayError): Promise<CommandOutcome> {
    const { type, data, traceparent } = envelope;
    log.info({ why: why.message }, `${type} gives way`);
    return this.#runtime.database.idempotentTransaction(async (tx): Promise<CommandOutcome> => {
      await assertFence(tx, fence);
      if (!(await recordHandled(tx, this.#consumer, envelope.id))) return "repeated";
      const left = await this.#leftStage(tx, data);
      if (left !== undefined) return left;
      await giveWay(tx, jobIdOf(data), { type, data, traceparent });
      return "queued";
    });
  }

  /** Ends a job that was cancelled meanwhile. @returns what became of it; undefined: it is still in the stage */
  async #leftStage(tx: Transaction, data: MessageData<T>): Promise<CommandOutcome | undefined> {
    const state = await lockJobState(tx, jobIdOf(data));
    if (state === "cancelling") {
      await cancelJob(tx, jobIdOf(data));
      await this.#options.onCancelled?.(tx, data);
      return "cancelled";
    }
    return state === this.#stage ? undefined : "moved-on";
  }

  #finish(envelope: Envelope<T>, fence: Fence, effect: Effect): Promise<CommandOutcome> {
    const { data } = envelope;
    return this.#runtime.database.idempotentTransaction(async (tx): Promise<CommandOutcome> => {
      await assertFence(tx, fence);
      if (!(await recordHandled(tx, this.#consumer, envelope.id))) return "repeated";
      if (this.#stage === undefined) await releaseHosts(tx, resourceOf(data));
      else {
        const left = await this.#leftStage(tx, data);
        if (left !== undefined) return left;
      }
      await effect(tx);
      if (this.#stage !== undefined && (await lockJobState(tx, jobIdOf(data))) === this.#stage)
        throw new Error(`the effect of ${this.#options.type} left job ${jobIdOf(data)} in ${this.#stage}`);
      return "done";
    });
  }

  async #onUnexpected(delivery: Delivery<T>, error: unknown, log: Logger): Promise<CommandOutcome> {
    const { envelope } = delivery;
    const { type } = this.#options;
    if (
      !envelope ||
      isConnectionLoss(error) ||
      isDiskFull(error) ||
      error instanceof DatabaseAwayError ||
      error instanceof StaleFenceError
    ) {
      log.warn({ err: error }, `${type} is tried again`);
      delivery.retryLater(BUSY_RETRY_SECONDS);
      return "stopped";
    }
    logError(log, error, `${type} failed`);
    const { database } = this.#runtime;
    const failures = await recordMessageFailure(database.db, this.#consumer, envelope.id, textOf(error));
    if (
      failures < COMMANDS[type].maxDeliver &&
      !(error instanceof ProblemError && error.code !== "unavailable")
    ) {
      const backoffSeconds = this.#options.backoffSeconds ?? defaultBackoffSeconds;
      delivery.retryLater(backoffSeconds(failures));
      return "failed";
    }
    await this.#giveUp(delivery, failures, error);
    delivery.discard();
    return "dead-letter";
  }

  async #giveUp(delivery: Delivery<T>, failures: number, error: unknown): Promise<void> {
    const { envelope } = delivery;
    if (!envelope) return;
    const { type } = this.#options;
    const failure: Failure = {
      code: "internal",
      message: `${type} failed ${failures} times: ${error instanceof Error ? error.message : String(error)}`,
      remedy: "see the dead letters, and the log of this trace",
    };
    await this.#runtime.database.idempotentTransaction(async (tx) => {
      if (!(await recordHandled(tx, this.#consumer, envelope.id))) return;
      await storeDeadLetter(tx, {
        consumer: this.#consumer,
        messageId: envelope.id,
        messageType: type,
        subject: delivery.subject,
        payload: envelope,
        error: textOf(error),
        deliveries: delivery.deliveries,
      });
      if (this.#stage === undefined) await releaseHosts(tx, resourceOf(envelope.data));
      else await failJob(tx, jobIdOf(envelope.data), failure);
      await this.#options.onGivenUp?.(tx, envelope.data, failure);
    });
  }

  /** A message that nobody can read becomes a dead letter at once. */
  async #bury(delivery: Delivery<T>): Promise<CommandOutcome> {
    const { unreadable } = delivery;
    const { database, log } = this.#runtime;
    const { type } = this.#options;
    if (unreadable) {
      await storeDeadLetter(database.db, {
        consumer: this.#consumer,
        messageId: unreadable.messageId,
        messageType: type,
        subject: delivery.subject,
        payload: unreadable.text,
        error: unreadable.error,
        deliveries: delivery.deliveries,
      });
      delivery.discard();
    }
    log.error(
      { type, messageId: unreadable?.messageId, error: unreadable?.error },
      "a message could not be read",
    );
    return "dead-letter";
  }
}

/**
 * Works on the commands of a type with the reliability contract: delivered at least once, in effect once. A
 * message is acknowledged after the transaction of its effect; a lease with a fencing token keeps others away
 * meanwhile, and a silent holder is replaced.
 */
export function handleCommand<T extends CommandType>(
  runtime: CommandRuntime,
  options: CommandOptions<T>,
): Consumption {
  const worker = new CommandWorker(runtime, options);
  return runtime.bus.consume<T>({
    type: options.type,
    concurrency: options.concurrency ?? 1,
    onError: (error) =>
      runtime.log.warn({ err: error, type: options.type }, "the broker or the database is away"),
    handler: async (delivery) => {
      runtime.metrics.outcomes.inc({ type: options.type, outcome: await worker.deliver(delivery) });
    },
  });
}
