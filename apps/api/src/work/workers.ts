import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { ProblemError, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
import { Piscina } from "piscina";
import type { DataTask } from "../submission/check-data.ts";
import type { WeightsTask } from "../submission/check-weights.ts";
import { createProcessPool } from "./process-pool.ts";
import { valueOf, type WorkResult } from "./work-result.ts";

export interface PlanTask {
  readonly spec: JobSpec;
  readonly profile: Profile;
  readonly top: number;
}

/** Work that takes processor time or touches files that others name, away from the server: it answers others meanwhile. Nothing takes longer than its deadline. */
export interface Workers {
  /** @throws ProblemError as planJob does; `unavailable` when it takes too long or too many wait */
  plan(task: PlanTask, signal?: AbortSignal): Promise<PlanningResult>;
  /** @throws ProblemError as checkData does; `unavailable` when it takes too long or too many wait */
  checkData(task: DataTask): Promise<void>;
  /** @throws ProblemError as checkWeights does; `unavailable` as checkData */
  checkWeights(task: WeightsTask): Promise<void>;
  close(): Promise<void>;
}

export interface WorkersOptions {
  /** Plans searched at once; as many again that turned out to take long. Default: the cores, at least 2. */
  readonly planThreads?: number;
  /** Plans that may wait; more are refused. Default 64. */
  readonly queue?: number;
  /** Bound on one search, waiting included. Default 300. */
  readonly planSeconds?: number;
  /** Bound on one check of a job's data, waiting included. Default 60. */
  readonly checkSeconds?: number;
  /** For tests: the module that checks data. */
  readonly checkEntry?: string;
}

/** Steps of a search, a tenth of a second or so, after which it goes on where it keeps nobody waiting. */
const QUICK_STEPS = 5000;

const PLAN_THREAD = new URL("./plan-thread.ts", import.meta.url).href;
const CHECK_PROCESS = fileURLToPath(new URL("./check-process.ts", import.meta.url));

const late = (field: string, message: string, remedy: string): ProblemError => new ProblemError("unavailable", `${field} ${message}`, [{ field, message, remedy }]);

export function createWorkers(options: WorkersOptions = {}): Workers {
  const { queue = 64, planThreads = Math.max(2, availableParallelism()), planSeconds = 300, checkSeconds = 60 } = options;
  const threads = () => new Piscina({ filename: PLAN_THREAD, minThreads: 0, maxThreads: planThreads, maxQueue: queue, idleTimeout: 60_000 });
  const plans = threads();
  // A search that is not over soon begins again on threads of its own: however many of them there are, short ones go on.
  const longPlans = threads();
  // Apart from the plans: a submission does not wait for somebody's search.
  const checks = createProcessPool({
    entry: options.checkEntry ?? CHECK_PROCESS,
    processes: 2,
    queue,
    deadlineSeconds: checkSeconds,
    onDeadline: () => late("data", `could not be checked within ${checkSeconds} s`, "see whether the file system of the data answers, and submit again"),
  });
  return {
    async plan(task, signal) {
      if (plans.queueSize >= queue) throw new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly");
      const deadline = AbortSignal.timeout(planSeconds * 1000);
      try {
        const how = { name: "plan", signal: signal ? AbortSignal.any([signal, deadline]) : deadline };
        const quick = (await plans.run({ ...task, maximumSteps: QUICK_STEPS }, how)) as WorkResult<PlanningResult> | null;
        if (quick !== null) return valueOf(quick);
        if (longPlans.queueSize >= queue) throw new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly");
        return valueOf((await longPlans.run({ ...task, maximumSteps: null }, how)) as WorkResult<PlanningResult>);
      } catch (error) {
        if (deadline.aborted && !signal?.aborted) throw late("job", `could not be planned within ${planSeconds} s`, "plan it with the command line, which has no such bound: `internevo plan`");
        throw error;
      }
    },
    checkData: async (task) => void valueOf((await checks.run(task)) as WorkResult<null>),
    checkWeights: async (task) => void valueOf((await checks.run(task)) as WorkResult<null>),
    close: async () => void (await Promise.all([plans.destroy(), longPlans.destroy(), checks.close()])),
  };
}
