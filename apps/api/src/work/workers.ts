import { availableParallelism } from "node:os";
import { ProblemError, type JobSpec, type PlanningResult, type ProblemCode, type ProblemDetail, type Profile } from "@internevo/domain";
import { Piscina } from "piscina";

/** What crosses the threads: an error's class does not. */
export type WorkResult<T> = { readonly value: T } | { readonly problem: { readonly code: ProblemCode; readonly message: string; readonly details: readonly ProblemDetail[] } };

export interface PlanTask {
  readonly spec: JobSpec;
  readonly profile: Profile;
  readonly top: number;
}

/** Work that takes processor time, on threads of its own: the server answers others meanwhile. */
export interface Workers {
  /** @throws ProblemError as planJob does */
  plan(task: PlanTask, signal?: AbortSignal): Promise<PlanningResult>;
  /** @throws ProblemError as checkData does */
  checkData(spec: JobSpec): Promise<void>;
  close(): Promise<void>;
}

export interface WorkersOptions {
  /** Plans searched at once. Default: the cores, at least 2. */
  readonly planThreads?: number;
  /** Plans that may wait; more are refused. Default 64. */
  readonly queue?: number;
}

const WORKER = new URL("./worker.ts", import.meta.url).href;

export function createWorkers(options: WorkersOptions = {}): Workers {
  const { queue = 64, planThreads = Math.max(2, availableParallelism()) } = options;
  const common = { filename: WORKER, minThreads: 0, maxQueue: queue, idleTimeout: 60_000 };
  const plans = new Piscina({ ...common, maxThreads: planThreads });
  // Apart from the plans: a submission does not wait for somebody's search.
  const checks = new Piscina({ ...common, maxThreads: 2 });
  async function run<T>(pool: Piscina, name: string, task: unknown, signal?: AbortSignal): Promise<T> {
    if (pool.queueSize >= queue) throw new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly");
    const result = (await pool.run(task, { name, ...(signal ? { signal } : {}) })) as WorkResult<T>;
    if ("problem" in result) throw new ProblemError(result.problem.code, result.problem.message, result.problem.details);
    return result.value;
  }
  return {
    plan: (task, signal) => run(plans, "plan", task, signal),
    checkData: (spec) => run(checks, "data", spec),
    close: async () => void (await Promise.all([plans.destroy(), checks.destroy()])),
  };
}
