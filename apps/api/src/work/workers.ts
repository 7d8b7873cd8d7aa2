import { createHash } from "node:crypto";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import type { FirstCounts } from "@internevo/cost-model";
import { ProblemError, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
import type { DataPlaces, DataRoots } from "@internevo/data";
import { SEARCH_MEGABYTES, searchTooLarge } from "@internevo/search";
import { FairTurns } from "@internevo/service-kit";
import type { Allowed, CheckedData, DataTask } from "../submission/check-data.ts";
import type { OwnerTask, WeightsTask } from "../submission/check-weights.ts";
import type { Answers, Question } from "./advice.ts";
import { callerNow } from "./caller.ts";
import { createProcessPool, type ProcessPool } from "./process-pool.ts";
import { Remembered } from "./remembered.ts";
import { shareProfile } from "./shared-profile.ts";
import { StoppableThreads } from "./stoppable-threads.ts";
import type { AdviceTask, CountTask, LimitedPlanTask, PlanTask, SearchLimit } from "./tasks.ts";
import { unlessAborted } from "./when-aborted.ts";
import { valueOf, type WorkResult } from "./work-result.ts";

/**
 * Work that takes processor time or touches files that others name, away from the server: it answers others
 * meanwhile. Nothing takes longer than its deadline.
 */
export interface Workers {
  /** @throws ProblemError as planJob does; `unavailable` when it takes too long or too many wait */
  plan(task: PlanTask, signal?: AbortSignal): Promise<PlanningResult>;
  /** The same where it is soon known; null where the search would take longer than a moment. */
  quickPlan(task: PlanTask, signal?: AbortSignal): Promise<PlanningResult | null>;
  /** How much a job measures before it is planned. @param fresh what is fresh and comparable; undefined: nothing is */
  firstCounts(spec: JobSpec, fresh: Profile | undefined, signal?: AbortSignal): Promise<FirstCounts>;
  /**
   * One question about plans. Those that search many times (sweep, largest sequence, front, cluster) have
   * threads of their own.
   * @throws ProblemError as the question does; `unavailable` when it takes too long or too many wait
   */
  advise<Kind extends Question["kind"]>(
    question: Extract<Question, { kind: Kind }>,
    signal?: AbortSignal,
  ): Promise<Answers[Kind]>;
  /** Turns of one request that `advise` should have at work at once. */
  readonly adviceThreads: number;
  /** @throws ProblemError as checkData does; `unavailable` when it takes too long or too many wait */
  checkData(task: DataTask, signal?: AbortSignal): Promise<CheckedData>;
  /** @throws ProblemError as checkWeights does; `unavailable` as checkData */
  checkWeights(task: WeightsTask, signal?: AbortSignal): Promise<void>;
  /** @throws ProblemError `unavailable` as checkData */
  ownerOfWeights(task: OwnerTask, signal?: AbortSignal): Promise<string | null>;
  close(): Promise<void>;
}

export interface WorkersOptions {
  /**
   * Plans searched at once; as many again that take some seconds, that take long, and searches of what-if
   * questions. Default: the cores, at least 2.
   */
  readonly planThreads?: number;
  /** Plans that may wait; more are refused. Default 64. */
  readonly queue?: number;
  /**
   * Searches of one token, of a kind, that run or wait on threads for what takes longer; more are refused.
   * Default 16.
   */
  readonly searchesOfOneToken?: number;
  /** A thread that has had nothing to do for so long ends, and gives its memory back. Default 20. */
  readonly idleThreadSeconds?: number;
  /** Answers to searches that are kept for whoever asks the same. Default 256, some megabytes. */
  readonly rememberedAnswers?: number;
  /** Bound on one search, waiting included. Default 300. */
  readonly planSeconds?: number;
  /** Bound on one reading of another framework's files, waiting included. Default 20. */
  readonly importSeconds?: number;
  /** Memory that one such reading may take, beside what it just made. Default 256. */
  readonly importMegabytes?: number;
  /** Bound on one check of a job's data, waiting included. Default 60. */
  readonly checkSeconds?: number;
  /** Where jobs may name data and weights. Default: anywhere. */
  readonly roots?: DataRoots;
  /** The data directory of the installation, where no data may lie. Default: not known here. */
  readonly own?: string | undefined;
  /**
   * Told of what happens to a thread when nobody waits for it: it ends, or answers work that was aborted just
   * before. The searches go on with other threads.
   */
  readonly onThreadError?: (error: Error) => void;
  /** For tests: the module that checks data. */
  readonly checkEntry?: string;
}

/** A tenth of a second or so, after which a search goes on where it keeps nobody waiting. */
const QUICK: SearchLimit = { steps: 5000, seconds: 1 };

/**
 * Some seconds, after which a search goes on among those that may take minutes: those of some seconds do not
 * wait for them.
 */
const MIDDLE: SearchLimit = { steps: 50 * QUICK.steps, seconds: 15 };

/** Answers with more plans are not kept. */
const MOST_REMEMBERED_PLANS = 50;

/**
 * A search makes some tens of megabytes of short-lived objects: with room for them they are collected a tenth
 * faster.
 */
const YOUNG_MEGABYTES = 96;

/** One token has two of them: data whose file system does not answer keeps no other job from being checked. */
const CHECK_PROCESSES = 3;

const PLAN_THREAD = new URL("./plan-thread.ts", import.meta.url).href;
const CHECK_PROCESS = fileURLToPath(new URL("./check-process.ts", import.meta.url));

/**
 * Where a question is answered: among short searches, among long ones, or among those that search many times.
 */
const ADVICE: Readonly<
  Record<
    Question["kind"],
    { readonly pool: "quick" | "long" | "whatIf" | "imports"; readonly command: string }
  >
> = {
  "why-not": { pool: "long", command: "internevo why-not" },
  explain: { pool: "quick", command: "internevo explain" },
  memory: { pool: "quick", command: "internevo memory" },
  sweep: { pool: "whatIf", command: "internevo what-if --axis" },
  "largest-sequence": { pool: "whatIf", command: "internevo what-if --largest-sequence" },
  pareto: { pool: "whatIf", command: "internevo what-if --pareto" },
  cluster: { pool: "whatIf", command: "internevo what-if --deadline" },
  estimates: { pool: "quick", command: "internevo plan" },
  export: { pool: "quick", command: "internevo export" },
  import: { pool: "imports", command: "internevo import" },
};

/**
 * Threads, or processes, and the turns that tokens take on them. A turn lasts until what worked is there for the
 * next, also where its token has left: whoever asks and leaves costs nobody else a thread.
 */
interface Lane {
  readonly pool: StoppableThreads | ProcessPool;
  readonly turns: FairTurns;
}

const late = (field: string, message: string, remedy: string): ProblemError =>
  new ProblemError("unavailable", `${field} ${message}`, [{ field, message, remedy }]);

/** How long a task may take, and what is said of one that takes longer. */
interface Bounds {
  readonly seconds: number;
  readonly late: () => ProblemError;
  /** What is said of one that takes more memory than its thread has. */
  readonly tooLarge?: () => ProblemError;
}

const filesTooLarge = (): ProblemError =>
  new ProblemError("bad-request", "files take more memory to read than an import may have", [
    {
      field: "files",
      message: "take more memory to read than an import may have",
      remedy:
        "leave out what says nothing of the plan, or read them with the command line: `internevo import`",
    },
  ]);

type CheckTask = (DataTask | WeightsTask | OwnerTask) & Allowed;

/** Runs one task on a lane's threads. */
type Run = (
  lane: Lane,
  task: LimitedPlanTask | AdviceTask | CountTask | CheckTask,
  name: string,
) => Promise<unknown>;

/** See `Workers`: the threads and processes, and the lanes that questions take. */
class WorkerPools implements Workers {
  readonly adviceThreads: number;
  readonly #options: WorkersOptions;
  readonly #queue: number;
  readonly #planSeconds: number;
  readonly #plans: Lane;
  // A search that is not over soon begins again on threads of its own: however many of them there are, short
  // ones go on.
  readonly #middlePlans: Lane;
  readonly #longPlans: Lane;
  readonly #whatIfs: Lane;
  // Files are somebody's text: a reading that takes too much memory ends its thread, and nothing else.
  readonly #imports: Lane;
  // Nor does a submission wait for searches that others asked for: whether any plan fits, and what is measured
  // first, has a thread of its own.
  readonly #fits: Lane;
  readonly #answers: Remembered<PlanningResult>;
  // Apart from the plans: a submission does not wait for somebody's search.
  readonly #checks: Lane;

  constructor(options: WorkersOptions) {
    this.#options = options;
    this.#queue = options.queue ?? 64;
    this.#planSeconds = options.planSeconds ?? 300;
    this.adviceThreads = options.planThreads ?? Math.max(2, availableParallelism());
    this.#plans = this.#quickLane(this.adviceThreads);
    this.#middlePlans = this.#fairLane();
    this.#longPlans = this.#fairLane();
    this.#whatIfs = this.#fairLane();
    this.#imports = this.#fairLane(options.importMegabytes ?? 256);
    this.#fits = this.#quickLane(1);
    this.#answers = new Remembered<PlanningResult>(options.rememberedAnswers ?? 256);
    this.#checks = {
      pool: createProcessPool(options.checkEntry ?? CHECK_PROCESS),
      // One token's data may be far away: it leaves a process to the others.
      turns: new FairTurns({
        atOnce: CHECK_PROCESSES,
        atOnceOfOne: CHECK_PROCESSES - 1,
        mostOfOne: this.#queue + CHECK_PROCESSES,
        mostWaiting: 4 * this.#queue,
      }),
    };
  }

  #threads(maxThreads: number, megabytes = SEARCH_MEGABYTES): StoppableThreads {
    return new StoppableThreads(
      {
        filename: PLAN_THREAD,
        minThreads: 0,
        maxThreads,
        maxQueue: this.#queue,
        idleTimeout: (this.#options.idleThreadSeconds ?? 20) * 1000,
        resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MEGABYTES, maxOldGenerationSizeMb: megabytes },
      },
      this.#options.onThreadError ?? (() => undefined),
    );
  }

  /** Nothing takes long here. A project leaves a thread to the others all the same, where there are more. */
  #quickLane(threads: number): Lane {
    return {
      pool: this.#threads(threads),
      turns: new FairTurns({
        atOnce: threads,
        atOnceOfOne: Math.max(1, threads - 1),
        mostOfOne: this.#queue + threads,
        mostWaiting: 4 * this.#queue,
      }),
    };
  }

  /** One token leaves a thread to the others, whatever it asks for. */
  #fairLane(megabytes?: number): Lane {
    const threads = this.adviceThreads;
    return {
      pool: this.#threads(threads, megabytes),
      turns: new FairTurns({
        atOnce: threads,
        atOnceOfOne: Math.max(1, threads - 1),
        mostOfOne: this.#options.searchesOfOneToken ?? 16,
        mostWaiting: this.#queue,
      }),
    };
  }

  plan({ profile, ...task }: PlanTask, signal?: AbortSignal): Promise<PlanningResult> {
    const shared = { ...task, profile: shareProfile(profile) };
    const search = (waited: AbortSignal | undefined): Promise<PlanningResult> =>
      this.#within(waited, this.#planBounds("internevo plan"), (run) => this.#search(shared, run));
    // A search is pure: the same job, profile and number of plans have the same answer.
    if ((task.ranks?.length ?? task.top) + (task.plans ?? 0) > MOST_REMEMBERED_PLANS) return search(signal);
    const key = createHash("sha256")
      .update(JSON.stringify([shared.profile.key, task]))
      .digest("base64");
    return this.#answers.get(key, search, signal, callerNow().giveUpTurn);
  }

  async #search(task: Omit<LimitedPlanTask, "limit" | "isPatient">, run: Run): Promise<PlanningResult> {
    return this.#fromQuickToLong(
      async (lane, limit) =>
        (await run(
          lane,
          { ...task, limit, isPatient: lane !== this.#plans },
          "plan",
        )) as WorkResult<PlanningResult> | null,
    );
  }

  /** Begins among what is quick, and anew among what takes longer where it is not. */
  async #fromQuickToLong<T>(
    searched: (lane: Lane, limit: SearchLimit | null) => Promise<WorkResult<T> | null>,
  ): Promise<T> {
    const found =
      (await searched(this.#plans, QUICK)) ??
      (await searched(this.#middlePlans, MIDDLE)) ??
      (await searched(this.#longPlans, null));
    if (found === null) throw new Error("a search without a limit was not finished");
    return valueOf(found);
  }

  quickPlan({ profile, ...task }: PlanTask, signal?: AbortSignal): Promise<PlanningResult | null> {
    return this.#within(signal, this.#planBounds("internevo plan"), async (run) => {
      const quick = (await run(
        this.#fits,
        { ...task, profile: shareProfile(profile), limit: QUICK, isPatient: false },
        "plan",
      )) as WorkResult<PlanningResult> | null;
      return quick === null ? null : valueOf(quick);
    });
  }

  firstCounts(spec: JobSpec, fresh: Profile | undefined, signal?: AbortSignal): Promise<FirstCounts> {
    const task: CountTask = { spec, fresh: fresh === undefined ? null : shareProfile(fresh) };
    return this.#within(
      signal,
      this.#planBounds("internevo plan"),
      async (run) => (await run(this.#fits, task, "count")) as FirstCounts,
    );
  }

  advise<Kind extends Question["kind"]>(
    question: Extract<Question, { kind: Kind }>,
    signal?: AbortSignal,
  ): Promise<Answers[Kind]> {
    const { pool, command } = ADVICE[question.kind];
    const bounds = pool === "imports" ? this.#importBounds : this.#planBounds(command);
    const { profile, ...rest } = question as Question & { profile?: Profile };
    const shared = profile === undefined ? null : shareProfile(profile);
    return this.#within(signal, bounds, async (run) => {
      const asked = async (lane: Lane, limit: SearchLimit | null) => {
        const limitSeconds = limit?.seconds ?? null;
        const task = { question: rest, profile: shared, limitSeconds, isPatient: lane !== this.#plans };
        return (await run(lane, task, "advise")) as WorkResult<Answers[Kind]> | null;
      };
      if (pool === "quick") return this.#fromQuickToLong(asked);
      const lane = { long: this.#longPlans, whatIf: this.#whatIfs, imports: this.#imports }[pool];
      return valueOf((await asked(lane, null)) as WorkResult<Answers[Kind]>);
    });
  }

  checkData(task: DataTask, signal?: AbortSignal): Promise<CheckedData> {
    return this.#check({ ...task, ...this.#places }, signal);
  }

  checkWeights(task: WeightsTask, signal?: AbortSignal): Promise<void> {
    return this.#check({ ...task, ...this.#places }, signal);
  }

  ownerOfWeights(task: OwnerTask, signal?: AbortSignal): Promise<string | null> {
    return this.#check({ ...task, roots: null, own: undefined }, signal);
  }

  get #places(): DataPlaces {
    const { roots = null, own } = this.#options;
    return { roots, own };
  }

  #check<T>(task: CheckTask, signal: AbortSignal | undefined): Promise<T> {
    return this.#within(signal, this.#checkBounds, async (run) =>
      valueOf((await run(this.#checks, task, "check")) as WorkResult<T>),
    );
  }

  async close(): Promise<void> {
    const searches = [this.#plans, this.#middlePlans, this.#longPlans, this.#whatIfs, this.#fits];
    await Promise.all([...searches, this.#imports, this.#checks].map(({ pool }) => pool.destroy()));
  }

  #planBounds(command: string): Bounds {
    const seconds = this.#planSeconds;
    return {
      seconds,
      late: () =>
        late(
          "job",
          `could not be planned within ${seconds} s`,
          `plan it with the command line, which has no such bound: \`${command}\``,
        ),
      tooLarge: searchTooLarge,
    };
  }

  get #importBounds(): Bounds {
    const seconds = this.#options.importSeconds ?? 20;
    return {
      seconds,
      late: () =>
        late(
          "files",
          `could not be read within ${seconds} s`,
          "read them with the command line, which has no such bound: `internevo import`",
        ),
      tooLarge: filesTooLarge,
    };
  }

  get #checkBounds(): Bounds {
    const seconds = this.#options.checkSeconds ?? 60;
    return {
      seconds,
      late: () =>
        late(
          "data",
          `could not be checked within ${seconds} s`,
          "see whether the file system of the data answers, and submit again",
        ),
    };
  }

  /**
   * Runs a task within the bounds on all of them: the queue's length, the deadline, and whether anybody still
   * waits.
   */
  async #within<T>(
    signal: AbortSignal | undefined,
    { seconds, late: whyLate, tooLarge }: Bounds,
    work: (run: Run) => Promise<T>,
  ): Promise<T> {
    const caller = callerNow();
    // Searches and checks have turns of their own.
    caller.giveUpTurn();
    const deadline = AbortSignal.timeout(seconds * 1000);
    const either = signal ? AbortSignal.any([signal, deadline]) : deadline;
    try {
      return await work(({ pool, turns }, task, name) => {
        const failed = Promise.withResolvers<never>();
        const options = { name, signal: either, onFailed: failed.reject };
        const turn = turns.run(caller.token, either, () => pool.run(task, options), caller.group);
        return unlessAborted(either, Promise.race([turn, failed.promise]));
      });
    } catch (error) {
      if (deadline.aborted && !signal?.aborted) throw whyLate();
      if (tooLarge && (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY") throw tooLarge();
      throw error;
    }
  }
}

export const createWorkers = (options: WorkersOptions = {}): Workers => new WorkerPools(options);
