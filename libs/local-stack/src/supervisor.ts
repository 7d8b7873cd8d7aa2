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

/** Starts a process, and starts it again whenever it ends, later and later while it ends soon. */
export function supervise(definition: ProcessDefinition, events: SupervisionEvents): SupervisedProcess {
  const stopping = new AbortController();
  const log = new RotatingLog(definition.logFile, definition.logRotation);
  let child: ChildProcess | undefined;
  let starts = 0;
  let waiters: ((end: ProcessEnd) => void)[] = [];
  let lost = 0;

  /** A line that cannot be written, as where the disk is full, is lost; the processes are not. */
  function writeLine(line: string): void {
    try {
      if (lost > 0) log.writeLine(`(${lost} lines before this one could not be written)`);
      log.writeLine(line);
      lost = 0;
    } catch (error) {
      lost += 1;
      if (lost === 1)
        events.onLine(
          definition.name,
          `its log ${definition.logFile} cannot be written: ${(error as Error).message}; lines are lost until it can`,
        );
    }
  }

  function runOnce(): Promise<ProcessEnd> {
    return new Promise((resolve) => {
      const tail: string[] = [];
      // Away from the terminal: its Ctrl-C is for the stack, which stops its processes in their order.
      const made = spawn(definition.command, definition.args, {
        cwd: definition.directory,
        env: { ...definition.env },
        stdio: ["ignore", "pipe", "pipe"],
        detached: true,
      });
      child = made;
      starts += 1;
      events.onStart?.(definition.name);
      const onLine = (line: string) => {
        writeLine(line);
        tail.push(line);
        if (tail.length > TAIL_LINES) tail.shift();
        events.onLine(definition.name, line);
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

  const loop = (async () => {
    for (let delay = FIRST_DELAY_SECONDS; !stopping.signal.aborted;) {
      const startedAt = performance.now();
      let end: ProcessEnd;
      try {
        await definition.prepare?.();
        if (stopping.signal.aborted) break;
        end = await runOnce();
      } catch (error) {
        end = { code: 127, signal: null, tail: [String(error)] };
      }
      child = undefined;
      delay = performance.now() - startedAt > STEADY_SECONDS * 1000 ? FIRST_DELAY_SECONDS : delay;
      const told = waiters;
      waiters = [];
      for (const tell of told) tell(end);
      events.onEnd(definition.name, end, stopping.signal.aborted ? undefined : delay);
      // Rejects only when it is stopped, which the loop looks at.
      await sleep(delay * 1000, undefined, { signal: stopping.signal }).catch(() => {});
      delay = Math.min(delay * 2, LONGEST_DELAY_SECONDS);
    }
    log.close();
  })();

  return {
    name: definition.name,
    pid: () => child?.pid,
    starts: () => starts,
    nextEnd: () => new Promise((resolve) => waiters.push(resolve)),
    async stop() {
      stopping.abort();
      const pid = child?.pid;
      if (pid !== undefined) {
        await endProcesses([pid], definition.stopSignal, definition.stopSeconds);
        await waitGone([pid], 1);
      }
      await loop;
    },
  };
}
