import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { endProcesses, waitGone } from "./proc.ts";
import { RotatingLog, type LogRotation } from "./rotating-log.ts";

export interface ProcessDefinition {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly directory: string;
  readonly logFile: string;
  /** Default: 32 MiB, and four files of before. */
  readonly logRotation?: LogRotation;
  /** Asks it to end; after `stopSeconds` it is killed. */
  readonly stopSignal: NodeJS.Signals;
  readonly stopSeconds: number;
  /** Runs before every start: removes what a killed one has left. */
  readonly prepare?: () => Promise<void>;
}

export interface SupervisedProcess {
  readonly name: string;
  pid(): number | undefined;
  /** How often it was started. */
  starts(): number;
  /** It goes on, and is not started again when it ends. */
  letEnd(): void;
  stop(): Promise<void>;
  /** Resolves when it has ended for the n-th time, with how. */
  nextEnd(): Promise<ProcessEnd>;
}
export interface ProcessEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its last lines. */
  readonly tail: readonly string[];
}

export interface SupervisionEvents {
  /** It was started, perhaps again. */
  readonly onStart?: (name: string) => void;
  readonly onLine: (name: string, line: string) => void;
  readonly onEnd: (name: string, end: ProcessEnd, restartInSeconds: number | undefined) => void;
}

const FIRST_DELAY_SECONDS = 0.2;
const LONGEST_DELAY_SECONDS = 10;
const STEADY_SECONDS = 20;
const TAIL_LINES = 20;

class SupervisedLoop implements SupervisedProcess {
  readonly name: string;
  readonly #definition: ProcessDefinition;
  readonly #events: SupervisionEvents;
  readonly #stopping = new AbortController();
  readonly #log: RotatingLog;
  readonly #loop: Promise<void>;
  #child: ChildProcess | undefined;
  #starts = 0;
  #waiters: ((end: ProcessEnd) => void)[] = [];
  #linesLost = 0;

  constructor(definition: ProcessDefinition, events: SupervisionEvents) {
    this.name = definition.name;
    this.#definition = definition;
    this.#events = events;
    this.#log = new RotatingLog(definition.logFile, definition.logRotation);
    this.#loop = this.#run();
  }

  pid(): number | undefined {
    return this.#child?.pid;
  }

  starts(): number {
    return this.#starts;
  }

  nextEnd(): Promise<ProcessEnd> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  letEnd(): void {
    this.#stopping.abort();
  }

  async stop(): Promise<void> {
    this.letEnd();
    const pid = this.#child?.pid;
    if (pid !== undefined) {
      await endProcesses([pid], this.#definition.stopSignal, this.#definition.stopSeconds);
      await waitGone([pid], 1);
    }
    await this.#loop;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    for (let delay = FIRST_DELAY_SECONDS; !signal.aborted;) {
      const startedAt = performance.now();
      let end: ProcessEnd;
      try {
        await this.#definition.prepare?.();
        if (signal.aborted) break;
        end = await this.#runOnce();
      } catch (error) {
        end = { code: 127, signal: null, tail: [String(error)] };
      }
      this.#child = undefined;
      delay = performance.now() - startedAt > STEADY_SECONDS * 1000 ? FIRST_DELAY_SECONDS : delay;
      const told = this.#waiters;
      this.#waiters = [];
      for (const tell of told) tell(end);
      this.#events.onEnd(this.name, end, signal.aborted ? undefined : delay);
      // Rejects only when it is stopped, which the loop looks at.
      await sleep(delay * 1000, undefined, { signal }).catch(() => {});
      delay = Math.min(delay * 2, LONGEST_DELAY_SECONDS);
    }
    this.#log.close();
  }

  #runOnce(): Promise<ProcessEnd> {
    const { command, args, directory, env } = this.#definition;
    return new Promise((resolve) => {
      const tail: string[] = [];
      // Away from the terminal: its Ctrl-C is for the stack, which stops its processes in their order.
      const made = spawn(command, args, {
        cwd: directory,
        env: { ...env },
        stdio: ["ignore", "pipe", "pipe"],
        detached: true,
      });
      this.#child = made;
      this.#starts += 1;
      this.#events.onStart?.(this.name);
      const onLine = (line: string) => {
        this.#writeLine(line);
        tail.push(line);
        if (tail.length > TAIL_LINES) tail.shift();
        this.#events.onLine(this.name, line);
      };
      createInterface({ input: made.stdout }).on("line", onLine);
      createInterface({ input: made.stderr }).on("line", onLine);
      made.once("error", (error) => {
        onLine(`cannot be started: ${error.message}`);
        if (made.pid === undefined) resolve({ code: 127, signal: null, tail });
      });
      // `exit`, not `close`: a grandchild may keep the pipes open.
      made.once("exit", (code, signal) => setImmediate(() => resolve({ code, signal, tail })));
    });
  }

  /** A line that cannot be written, as where the disk is full, is lost; the processes are not. */
  #writeLine(line: string): void {
    try {
      if (this.#linesLost > 0)
        this.#log.writeLine(`(${this.#linesLost} lines before this one could not be written)`);
      this.#log.writeLine(line);
      this.#linesLost = 0;
    } catch (error) {
      this.#linesLost += 1;
      if (this.#linesLost > 1) return;
      const file = this.#definition.logFile;
      this.#events.onLine(
        this.name,
        `its log ${file} cannot be written: ${(error as Error).message}; lines are lost until it can`,
      );
    }
  }
}

/** Starts a process, and starts it again whenever it ends, later and later while it ends soon. */
export const supervise = (definition: ProcessDefinition, events: SupervisionEvents): SupervisedProcess =>
  new SupervisedLoop(definition, events);
