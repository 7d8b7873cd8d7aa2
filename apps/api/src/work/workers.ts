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
  /** Default: one fewer than the cores, at least 1. */
  readonly threads?: number;
  /** Tasks that may wait; more are refused. Default 64. */
  readonly queue?: number;
}

export function createWorkers(options: WorkersOptions = {}): Workers {
  const pool = new Piscina({
    filename: new URL("./worker.ts", import.meta.url).href,
    minThreads: 0,
    maxThreads: options.threads ?? Math.max(1, availableParallelism() - 1),
    maxQueue: options.queue ?? 64,
    idleTimeout: 60_000,
  });
  async function run<T>(name: string, task: unknown, signal?: AbortSignal): Promise<T> {
    if (pool.queueSize >= (options.queue ?? 64)) throw new ProblemError("unavailable", "too many plans are being searched; try again shortly");
    const result = (await pool.run(task, { name, ...(signal ? { signal } : {}) })) as WorkResult<T>;
    if ("problem" in result) throw new ProblemError(result.problem.code, result.problem.message, result.problem.details);
    return result.value;
  }
  return {
    plan: (task, signal) => run("plan", task, signal),
    checkData: (spec) => run("data", spec),
    close: () => pool.destroy(),
  };
}
