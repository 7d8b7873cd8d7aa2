import { spawn, type ChildProcessByStdio } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { TRAINER_EXIT } from "@internevo/contracts";
import { validate, type Failure } from "@internevo/domain";
import type { TSchema } from "typebox";
import { rankEnvironment } from "../environment.ts";
import { eventOf, isFatal, isSummaryOfMpirun } from "../event.ts";
import { failureOfEnd, type NativeError } from "../failure.ts";
import { ownHost } from "../hosts.ts";
import { LAST_WORD_SECONDS, type LaunchOptions, type LaunchOutcome } from "../launch-options.ts";
import { watchLauncher } from "../process/launcher-watch.ts";
import { LineSplitter, Tail } from "../process/lines.ts";
import { bootId, killRun, readProcess, signalProcess } from "../process/processes.ts";
import {
  killLeftoversBefore,
  removeRunRecord,
  SCRATCH_PREFIX,
  writeRunRecord,
  type RunRecord,
} from "../process/run-record.ts";
import type { EventOf, NativeProgram } from "../programs.ts";
import { withoutAbortText } from "./abort-text.ts";

type Cause =
  | { readonly kind: "stop" }
  | { readonly kind: "kill" }
  | { readonly kind: "failure"; readonly failure: Failure }
  | { readonly kind: "thrown"; readonly error: unknown };

/** Processes of this machine that the kernel has ended for want of memory since it started. */
function kernelMemoryKills(): number {
  return Number(/^oom_kill (\d+)$/m.exec(readFileSync("/proc/vmstat", "utf8"))?.[1] ?? 0);
}

interface Prepared {
  readonly record: RunRecord;
  readonly command: readonly [string, ...string[]];
  readonly environment: Record<string, string>;
}

/** Where a run's files lie, for the command line that starts it. */
export interface RunPlaces {
  readonly configPath: string;
  /** Scratch of this run: session files. */
  readonly temporaryDirectory: string;
  /** Scratch of this run in shared memory; null: the machine has none, or the ranks run elsewhere. */
  readonly sharedMemoryDirectory: string | null;
}

/** One way to start ranks with mpirun. */
export interface MpirunStart {
  readonly command: (places: RunPlaces) => string[];
  /** The hosts that the ranks run on. */
  readonly hosts: readonly string[];
  /** Whether ranks are processes of this machine, in mpirun's session. */
  readonly runsHere: boolean;
}

function prepare<P extends NativeProgram<TSchema, TSchema>>(
  options: LaunchOptions<P>,
  start: MpirunStart,
): Prepared {
  const { program, runDirectory, threadsPerRank } = options;
  const marker = randomUUID();
  mkdirSync(runDirectory, { recursive: true });
  const configPath = join(runDirectory, "config.json");
  writeFileSync(
    configPath,
    JSON.stringify(
      validate(program.configSchema, options.config, "internal", `the configuration of ${program.name}`),
      null,
      2,
    ),
  );
  // Short paths: names of sockets and segments are bounded.
  const temporaryDirectory = mkdtempSync(join(tmpdir(), SCRATCH_PREFIX));
  const sharedMemoryDirectory =
    start.runsHere && existsSync("/dev/shm") ? mkdtempSync(join("/dev/shm", SCRATCH_PREFIX)) : null;
  const environment = rankEnvironment({
    base: process.env,
    marker,
    temporaryDirectory,
    threadsPerRank,
    ...(options.environment ? { extra: options.environment } : {}),
  });
  const command = start.command({ configPath, temporaryDirectory, sharedMemoryDirectory });
  const record: RunRecord = {
    marker,
    bootId: bootId(),
    process: null,
    command,
    startedAt: new Date().toISOString(),
    hosts: [...start.hosts],
    scratch: [temporaryDirectory, ...(sharedMemoryDirectory === null ? [] : [sharedMemoryDirectory])],
  };
  return { record, command: command as unknown as readonly [string, ...string[]], environment };
}

/**
 * mpirun passes it on to every rank, here and on other hosts, and waits; at SIGTERM it would give them one
 * second.
 */
const STOP_SIGNAL = "SIGUSR1";

/** See `launchRanks`: ranks that one mpirun starts, and that end with this process. */
export async function runUnderMpirun<P extends NativeProgram<TSchema, TSchema>>(
  options: LaunchOptions<P>,
  start: MpirunStart,
): Promise<LaunchOutcome> {
  const isStopped = (): boolean => options.signal?.aborted === true || options.killSignal?.aborted === true;
  if (!isStopped()) await killLeftoversBefore(options.runDirectory, start.hosts, ownHost());
  const begin = performance.now();
  if (isStopped()) return { status: "stopped", graceful: false, seconds: 0, exitCode: null };
  return new MpirunRun(options, start, begin).outcome();
}

/** How mpirun itself ended. */
interface LauncherEnd {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** One mpirun and its ranks, from the start to what became of them. */
class MpirunRun<P extends NativeProgram<TSchema, TSchema>> {
  readonly #options: LaunchOptions<P>;
  readonly #begin: number;
  readonly #record: RunRecord;
  readonly #runsHere: boolean;
  readonly #memoryKillsBefore = kernelMemoryKills();
  readonly #child: ChildProcessByStdio<null, Readable, Readable>;
  readonly #ended: Promise<LauncherEnd>;
  readonly #stderr = new Tail();
  readonly #timers = new Set<NodeJS.Timeout>();
  #silence: NodeJS.Timeout | undefined;
  #killing: Promise<unknown> | undefined;
  #cause: Cause | undefined;
  #firstError: NativeError | undefined;
  #done = false;
  /** The launcher stayed when its ranks were gone, and was ended. */
  #stayed = false;
  #lineNumber = 0;

  constructor(options: LaunchOptions<P>, start: MpirunStart, begin: number) {
    this.#options = options;
    this.#begin = begin;
    this.#runsHere = start.runsHere;
    const { record, command, environment } = prepare(options, start);
    this.#record = record;
    // The record comes first: were this process killed right after the start, the marker would still find the
    // ranks.
    writeRunRecord(options.runDirectory, record);
    const [file, ...parameters] = command;
    this.#child = spawn(file, parameters, {
      env: environment,
      cwd: options.runDirectory,
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#ended = this.#followChild();
    this.#startClocks();
    this.#readOutput();
    this.#recordProcess();
  }

  /** @throws what the caller's `onEvent` threw, or that the ranks cannot be ended. */
  async outcome(): Promise<LaunchOutcome> {
    const { signal, killSignal, runDirectory } = this.#options;
    signal?.addEventListener("abort", this.#stop, { once: true });
    killSignal?.addEventListener("abort", this.#killNow, { once: true });
    if (signal?.aborted) this.#stop();
    if (killSignal?.aborted) this.#killNow();
    // On hosts ranks are in sessions of their own, which says nothing of theirs here.
    const endWatch =
      this.#child.pid === undefined || !this.#runsHere
        ? undefined
        : watchLauncher(this.#child.pid, () => this.#lineNumber > 0, this.#endStaying);
    let unkillable = false;
    try {
      const end = await this.#ended;
      endWatch?.();
      this.#clearTimers();
      await this.#killing;
      const { left } = await killRun(this.#record.marker, this.#child.pid);
      unkillable = left.length > 0;
      if (unkillable)
        throw new Error(
          `processes ${left.map((entry) => entry.pid).join(", ")} of a run do not end after SIGKILL`,
        );
      return this.#outcomeOf(end);
    } finally {
      endWatch?.();
      this.#clearTimers();
      signal?.removeEventListener("abort", this.#stop);
      killSignal?.removeEventListener("abort", this.#killNow);
      if (!unkillable) removeRunRecord(runDirectory, this.#record);
    }
  }

  #outcomeOf({ exitCode, signal }: LauncherEnd): LaunchOutcome {
    const seen = this.#cause;
    if (seen?.kind === "thrown") throw seen.error;
    const common = { seconds: (performance.now() - this.#begin) / 1000, exitCode };
    if (seen?.kind === "failure") return { ...common, status: "failed", failure: seen.failure };
    // A launcher that stayed when its ranks were gone says nothing of how they ended: their own last word
    // counts.
    const orderly = this.#stayed && this.#done && this.#firstError === undefined;
    if ((exitCode === 0 && this.#done) || (orderly && seen === undefined))
      return { ...common, status: "completed" };
    if ((exitCode === TRAINER_EXIT.terminated && this.#done) || (orderly && seen?.kind === "stop"))
      return { ...common, status: "stopped", graceful: true };
    if (seen) return { ...common, status: "stopped", graceful: false };
    const how = {
      exitCode,
      signal,
      launcherStayed: this.#stayed,
      stderrTail: this.#stderr.text,
      kernelKilledForMemory: kernelMemoryKills() > this.#memoryKillsBefore,
    };
    return { ...common, status: "failed", failure: failureOfEnd(how, this.#firstError) };
  }

  #followChild(): Promise<LauncherEnd> {
    return new Promise((resolve, reject) => {
      this.#child.once("error", reject);
      // The launcher is gone, and with it the reason of its ranks to live: one of them could hold the pipes
      // open.
      this.#child.once("exit", () => {
        this.#killing ??= killRun(this.#record.marker, this.#child.pid);
      });
      this.#child.once("close", (exitCode, signal) => resolve({ exitCode, signal }));
    });
  }

  #startClocks(): void {
    const { silenceSeconds, timeoutSeconds } = this.#options;
    if (silenceSeconds !== undefined)
      this.#silence = this.#after(silenceSeconds, () =>
        this.#fail({ code: "timeout", message: `the ranks said nothing for ${silenceSeconds} s` }),
      );
    if (timeoutSeconds !== undefined)
      this.#after(timeoutSeconds, () =>
        this.#fail({ code: "timeout", message: `the ranks did not end within ${timeoutSeconds} s` }),
      );
  }

  #readOutput(): void {
    const { program, onLog } = this.#options;
    const out = new LineSplitter({
      onLine: (line) => this.#onLine(line),
      onOverlong: (bound) =>
        this.#fail({ code: "internal", message: `${program.name} wrote a line of more than ${bound} bytes` }),
    });
    const tell = withoutAbortText(
      (line) => onLog?.(line),
      () => this.#cause?.kind === "stop" || this.#cause?.kind === "kill",
    );
    const log = new LineSplitter({
      onLine: (line) => {
        this.#stderr.push(line);
        tell(line);
      },
      onOverlong: (bound) => onLog?.(`(a line of more than ${bound} bytes was dropped)`),
    });
    this.#child.stdout.on("data", (chunk: Buffer) => out.push(chunk)).on("end", () => out.end());
    this.#child.stderr.on("data", (chunk: Buffer) => log.push(chunk)).on("end", () => log.end());
  }

  #recordProcess(): void {
    const started = this.#child.pid === undefined ? undefined : readProcess(this.#child.pid);
    if (!started) return;
    const { pid, startTicks } = started;
    writeRunRecord(this.#options.runDirectory, { ...this.#record, process: { pid, startTicks } });
  }

  #onLine(line: string): void {
    this.#lineNumber += 1;
    if (this.#cause !== undefined && this.#cause.kind !== "stop") return;
    if (isSummaryOfMpirun(line)) return this.#options.onLog?.(line);
    const event = eventOf(this.#options.program, line, this.#lineNumber);
    if ("failure" in event) return this.#fail(event.failure);
    this.#silence?.refresh();
    const fatal = isFatal(event);
    // Its last word, after which nothing is left to do but to end.
    if ((fatal || event.event === "done") && this.#firstError === undefined && !this.#done)
      this.#after(LAST_WORD_SECONDS, this.#endStaying);
    if (fatal) this.#firstError ??= event;
    if (event.event === "done") this.#done = true;
    try {
      this.#options.onEvent(event as EventOf<P>, false);
    } catch (error) {
      this.#kill({ kind: "thrown", error });
    }
  }

  readonly #stop = (): void => {
    if (this.#cause !== undefined || this.#child.pid === undefined) return;
    this.#cause = { kind: "stop" };
    const graceSeconds = this.#options.graceSeconds ?? 30;
    if (graceSeconds <= 0) return this.#killNow();
    signalProcess(this.#child.pid, STOP_SIGNAL);
    this.#after(graceSeconds, this.#killNow);
  };

  readonly #killNow = (): void => this.#kill({ kind: "kill" });

  #fail(failure: Failure): void {
    this.#kill({ kind: "failure", failure });
  }

  #kill(why: Cause): void {
    if (this.#cause === undefined || this.#cause.kind === "stop") this.#cause = why;
    this.#endRun();
  }

  readonly #endStaying = (): void => {
    this.#stayed = true;
    this.#endRun();
  };

  #endRun(): void {
    if (this.#child.pid !== undefined) this.#killing ??= killRun(this.#record.marker, this.#child.pid);
  }

  #after(seconds: number, action: () => void): NodeJS.Timeout {
    const timer = setTimeout(action, Math.min(seconds * 1000, 2 ** 31 - 1));
    this.#timers.add(timer);
    return timer;
  }

  #clearTimers(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
