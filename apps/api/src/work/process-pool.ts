import { fork, type ChildProcess } from "node:child_process";
import { getPriority, setPriority } from "node:os";
import { ProblemError } from "@internevo/domain";
import { abortedLater } from "./when-aborted.ts";

export interface ProcessPool {
  /**
   * Takes a process that has nothing to do, or makes one: how many work at once is for the caller to bound. Settles
   * when a process is there for the next, also where the signal aborts: one that does not come back in time is
   * killed, and another one made ready in its place. @throws what the task threw; the signal's reason
   */
  run(task: object, options: { readonly signal: AbortSignal }): Promise<unknown>;
  destroy(): Promise<void>;
}

/** What says that a process is ready; it goes before all answers. */
const READY = "ready";

export type TaskAnswer = { readonly value: unknown } | { readonly error: Error };

const IDLE_MILLISECONDS = 60_000;

/** Niceness of a process: to look at ten thousand files keeps a core busy, and what is answered at once goes first. */
const PATIENT = 10;

/** From its start: what it loads first takes a core half a second. */
function haveGiveWay(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    setPriority(pid, Math.max(PATIENT, getPriority(pid)));
  } catch {
    // It has ended already, and its end is told elsewhere.
  }
}

/** @throws when the process ends, or cannot be reached */
function answerOf(child: ChildProcess, task: object): Promise<TaskAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<TaskAnswer>();
  const onMessage = (answer: unknown): void => {
    if (answer !== READY) resolve(answer as TaskAnswer);
  };
  const onExit = (code: number | null, signal: NodeJS.Signals | null): void =>
    reject(new Error(`a process of the API ended with ${signal ?? code} at its work`));
  child.on("message", onMessage).once("exit", onExit).once("error", reject);
  child.send(task);
  return promise.finally(() => child.off("message", onMessage).off("exit", onExit).off("error", reject));
}

/** See `createProcessPool`. */
class ForkedProcesses implements ProcessPool {
  /** A module that calls `answerTasks`. */
  readonly #entry: string;
  readonly #idle: { readonly process: ChildProcess; readonly end: NodeJS.Timeout }[] = [];
  readonly #alive = new Set<ChildProcess>();
  #closed = false;

  constructor(entry: string) {
    this.#entry = entry;
  }

  async run(task: object, { signal }: { readonly signal: AbortSignal }): Promise<unknown> {
    signal.throwIfAborted();
    if (this.#closed) throw new ProblemError("unavailable", "the service is stopping");
    const child = this.#take();
    const end = abortedLater(signal);
    end.signal.addEventListener("abort", () => void child.kill("SIGKILL"), { once: true });
    try {
      const answer = await answerOf(child, task);
      if ("value" in answer) return answer.value;
      throw answer.error;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      end.settle();
      this.#giveBack(child);
      if (end.signal.aborted) await this.#makeReady();
    }
  }

  async destroy(): Promise<void> {
    this.#closed = true;
    for (const { end } of this.#idle.splice(0)) clearTimeout(end);
    await Promise.all(
      [...this.#alive].map(
        (child) => new Promise<void>((gone) => (child.once("exit", () => gone()), child.kill("SIGKILL"))),
      ),
    );
  }

  #take(): ChildProcess {
    const kept = this.#idle.pop();
    if (kept) clearTimeout(kept.end);
    if (kept?.process.connected) return kept.process;
    return this.#make();
  }

  /** In place of a process that was killed. */
  async #makeReady(): Promise<void> {
    if (this.#closed || this.#idle.length > 0) return;
    const made = this.#make();
    const { promise, resolve } = Promise.withResolvers<void>();
    made.once("message", resolve).once("exit", resolve).once("error", resolve);
    await promise;
    this.#giveBack(made);
  }

  #make(): ChildProcess {
    const made = fork(this.#entry, {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      serialization: "advanced",
      execArgv: [],
    });
    haveGiveWay(made.pid);
    this.#alive.add(made);
    made.once("exit", () => {
      this.#alive.delete(made);
      const at = this.#idle.findIndex((one) => one.process === made);
      if (at >= 0) clearTimeout(this.#idle.splice(at, 1)[0]?.end);
    });
    return made;
  }

  #giveBack(child: ChildProcess): void {
    if (this.#closed || child.killed || !child.connected) return void child.kill("SIGKILL");
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
export const createProcessPool = (entry: string): ProcessPool => new ForkedProcesses(entry);

/** The other side: answers each task that the parent sends, and ends with the parent. */
export function answerTasks(work: (task: never) => Promise<unknown>): void {
  process.on("message", (task) => {
    work(task as never).then(
      (value) => process.send?.({ value }),
      (error: unknown) => process.send?.({ error }),
    );
  });
  // Not exit(): it would wait for a thread that waits inside the kernel.
  process.send?.(READY);
  process.on("disconnect", () => process.kill(process.pid, "SIGKILL"));
}
