import { fork, type ChildProcess } from "node:child_process";
import { ProblemError } from "@internevo/domain";

export interface ProcessPoolOptions {
  /** A module that calls `answerTasks`. */
  readonly entry: string;
  readonly processes: number;
  /** Tasks that may wait; more are refused. */
  readonly queue: number;
  /** From asking to the answer, waiting included. */
  readonly deadlineSeconds: number;
  /** What the caller is told at the deadline. */
  readonly onDeadline: () => ProblemError;
}

export interface ProcessPool {
  /** @throws what the task threw; ProblemError `unavailable` when too many wait; what `onDeadline` makes. */
  run(task: unknown): Promise<unknown>;
  close(): Promise<void>;
}

export type TaskAnswer = { readonly value: unknown } | { readonly error: Error };

interface Pending {
  readonly task: unknown;
  readonly settle: (answer: TaskAnswer) => void;
  process: ChildProcess | undefined;
}

const IDLE_MILLISECONDS = 60_000;

/** See `createProcessPool`. */
class ForkedProcesses implements ProcessPool {
  readonly #options: ProcessPoolOptions;
  readonly #idle: { readonly process: ChildProcess; readonly end: NodeJS.Timeout }[] = [];
  readonly #alive = new Set<ChildProcess>();
  readonly #waiting: Pending[] = [];
  #busy = 0;
  #closed = false;

  constructor(options: ProcessPoolOptions) {
    this.#options = options;
  }

  run(task: unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new ProblemError("unavailable", "the service is stopping"));
      if (this.#waiting.length >= this.#options.queue)
        return reject(
          new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly"),
        );
      const deadline = setTimeout(() => {
        reject(this.#options.onDeadline());
        const at = this.#waiting.indexOf(pending);
        if (at >= 0) this.#waiting.splice(at, 1);
        // Its end makes room for the next.
        else pending.process?.kill("SIGKILL");
      }, this.#options.deadlineSeconds * 1000);
      const pending: Pending = {
        task,
        process: undefined,
        settle(answer) {
          clearTimeout(deadline);
          if ("value" in answer) resolve(answer.value);
          else reject(answer.error);
        },
      };
      if (this.#busy < this.#options.processes) this.#start(pending);
      else this.#waiting.push(pending);
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const pending of this.#waiting.splice(0))
      pending.settle({ error: new ProblemError("unavailable", "the service is stopping") });
    for (const { end } of this.#idle.splice(0)) clearTimeout(end);
    await Promise.all(
      [...this.#alive].map(
        (child) => new Promise<void>((gone) => (child.once("exit", () => gone()), child.kill("SIGKILL"))),
      ),
    );
  }

  #start(pending: Pending): void {
    const child = this.#take();
    pending.process = child;
    this.#busy += 1;
    const finish = (answer: TaskAnswer): void => {
      child.off("message", onMessage).off("exit", onExit).off("error", onError);
      this.#busy -= 1;
      this.#giveBack(child);
      pending.settle(answer);
      const next = this.#waiting.shift();
      if (next) this.#start(next);
    };
    const onMessage = (answer: unknown): void => finish(answer as TaskAnswer);
    const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
      finish({ error: new Error(`a process of the API ended with ${signal ?? code} at its work`) });
    const onError = (error: Error): void => finish({ error });
    child.once("message", onMessage).once("exit", onExit).once("error", onError);
    child.send(pending.task as never);
  }

  #take(): ChildProcess {
    const kept = this.#idle.pop();
    if (kept) clearTimeout(kept.end);
    if (kept?.process.connected) return kept.process;
    const made = fork(this.#options.entry, {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      serialization: "advanced",
      execArgv: [],
    });
    this.#alive.add(made);
    made.once("exit", () => {
      this.#alive.delete(made);
      const at = this.#idle.findIndex((one) => one.process === made);
      if (at >= 0) clearTimeout(this.#idle.splice(at, 1)[0]?.end);
    });
    return made;
  }

  #giveBack(child: ChildProcess): void {
    if (this.#closed || !child.connected) return void child.kill("SIGKILL");
    const end = setTimeout(() => child.kill("SIGKILL"), IDLE_MILLISECONDS);
    end.unref();
    this.#idle.push({ process: child, end });
  }
}

/**
 * Processes for work that may never come back. A thread that waits inside the kernel (a file system that does
 * not answer) cannot be ended, and keeps one of the threads that all file access of its process shares; a
 * process can be killed.
 */
export const createProcessPool = (options: ProcessPoolOptions): ProcessPool => new ForkedProcesses(options);

/** The other side: answers each task that the parent sends, and ends with the parent. */
export function answerTasks(work: (task: never) => Promise<unknown>): void {
  process.on("message", (task) => {
    work(task as never).then(
      (value) => process.send?.({ value }),
      (error: unknown) => process.send?.({ error }),
    );
  });
  // Not exit(): it would wait for a thread that waits inside the kernel.
  process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
}
