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

/**
 * Processes for work that may never come back. A thread that waits inside the kernel (a file system that does
 * not answer) cannot be ended, and keeps one of the threads that all file access of its process shares; a
 * process can be killed.
 */
export function createProcessPool(options: ProcessPoolOptions): ProcessPool {
  const idle: { readonly process: ChildProcess; readonly end: NodeJS.Timeout }[] = [];
  const alive = new Set<ChildProcess>();
  const waiting: Pending[] = [];
  let busy = 0;
  let closed = false;

  function take(): ChildProcess {
    const kept = idle.pop();
    if (kept) clearTimeout(kept.end);
    if (kept?.process.connected) return kept.process;
    const made = fork(options.entry, {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      serialization: "advanced",
      execArgv: [],
    });
    alive.add(made);
    made.once("exit", () => {
      alive.delete(made);
      const at = idle.findIndex((one) => one.process === made);
      if (at >= 0) clearTimeout(idle.splice(at, 1)[0]?.end);
    });
    return made;
  }

  function giveBack(child: ChildProcess): void {
    if (closed || !child.connected) return void child.kill("SIGKILL");
    const end = setTimeout(() => child.kill("SIGKILL"), IDLE_MILLISECONDS);
    end.unref();
    idle.push({ process: child, end });
  }

  function start(pending: Pending): void {
    const child = take();
    pending.process = child;
    busy += 1;
    const finish = (answer: TaskAnswer): void => {
      child.off("message", onMessage).off("exit", onExit).off("error", onError);
      busy -= 1;
      giveBack(child);
      pending.settle(answer);
      const next = waiting.shift();
      if (next) start(next);
    };
    const onMessage = (answer: unknown): void => finish(answer as TaskAnswer);
    const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
      finish({ error: new Error(`a process of the API ended with ${signal ?? code} at its work`) });
    const onError = (error: Error): void => finish({ error });
    child.once("message", onMessage).once("exit", onExit).once("error", onError);
    child.send(pending.task as never);
  }

  return {
    run: (task) =>
      new Promise((resolve, reject) => {
        if (closed) return reject(new ProblemError("unavailable", "the service is stopping"));
        if (waiting.length >= options.queue)
          return reject(
            new ProblemError("unavailable", "too many requests of this kind are at work; try again shortly"),
          );
        const deadline = setTimeout(() => {
          reject(options.onDeadline());
          const at = waiting.indexOf(pending);
          if (at >= 0) waiting.splice(at, 1);
          // Its end makes room for the next.
          else pending.process?.kill("SIGKILL");
        }, options.deadlineSeconds * 1000);
        const pending: Pending = {
          task,
          process: undefined,
          settle(answer) {
            clearTimeout(deadline);
            if ("value" in answer) resolve(answer.value);
            else reject(answer.error);
          },
        };
        if (busy < options.processes) start(pending);
        else waiting.push(pending);
      }),
    async close() {
      closed = true;
      for (const pending of waiting.splice(0))
        pending.settle({ error: new ProblemError("unavailable", "the service is stopping") });
      for (const { end } of idle.splice(0)) clearTimeout(end);
      await Promise.all(
        [...alive].map(
          (child) => new Promise<void>((gone) => (child.once("exit", () => gone()), child.kill("SIGKILL"))),
        ),
      );
    },
  };
}

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
