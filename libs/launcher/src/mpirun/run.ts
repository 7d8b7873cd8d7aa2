import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { validate, type Failure } from "@internevo/domain";
import type { TSchema } from "typebox";
import { rankEnvironment } from "../environment.ts";
import { eventOf, isFatal } from "../event.ts";
import { failureOfEnd, type NativeError } from "../failure.ts";
import {
  EXIT_TERMINATED,
  LAST_WORD_SECONDS,
  type LaunchOptions,
  type LaunchOutcome,
} from "../launch-options.ts";
import { watchLauncher } from "../process/launcher-watch.ts";
import { LineSplitter, Tail } from "../process/lines.ts";
import { bootId, killRun, readProcess, signalProcess } from "../process/processes.ts";
import {
  killLeftovers,
  removeRunRecord,
  SCRATCH_PREFIX,
  writeRunRecord,
  type RunRecord,
} from "../process/run-record.ts";
import type { EventOf, NativeProgram } from "../programs.ts";

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
  if (!isStopped()) await killLeftovers(options.runDirectory);
  const begin = performance.now();
  const elapsed = (): number => (performance.now() - begin) / 1000;
  if (isStopped()) return { status: "stopped", graceful: false, seconds: 0, exitCode: null };

  const { record, command, environment } = prepare(options, start);
  const memoryKillsBefore = kernelMemoryKills();
  // The record comes first: were this process killed right after the start, the marker would still find the
  // ranks.
  writeRunRecord(options.runDirectory, record);
  const [file, ...parameters] = command;
  const child = spawn(file, parameters, {
    env: environment,
    cwd: options.runDirectory,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let killing: Promise<unknown> | undefined;
  const ended = new Promise<{ exitCode: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once("error", reject);
    // The launcher is gone, and with it the reason of its ranks to live: one of them could hold the pipes
    // open.
    child.once("exit", () => {
      killing ??= killRun(record.marker, child.pid);
    });
    child.once("close", (exitCode, signal) => resolve({ exitCode, signal }));
  });

  let cause: Cause | undefined;
  let firstError: NativeError | undefined;
  let done = false;
  const stderr = new Tail();
  const timers = new Set<NodeJS.Timeout>();
  const after = (seconds: number, action: () => void): NodeJS.Timeout => {
    const timer = setTimeout(action, Math.min(seconds * 1000, 2 ** 31 - 1));
    timers.add(timer);
    return timer;
  };
  const kill = (why: Cause): void => {
    if (cause === undefined || cause.kind === "stop") cause = why;
    if (child.pid !== undefined) killing ??= killRun(record.marker, child.pid);
  };
  const stop = (): void => {
    if (cause !== undefined || child.pid === undefined) return;
    cause = { kind: "stop" };
    const graceSeconds = options.graceSeconds ?? 30;
    if (graceSeconds <= 0) return kill({ kind: "kill" });
    signalProcess(child.pid, STOP_SIGNAL);
    after(graceSeconds, () => kill({ kind: "kill" }));
  };
  const killNow = (): void => kill({ kind: "kill" });
  const fail = (failure: Failure): void => kill({ kind: "failure", failure });

  let silence: NodeJS.Timeout | undefined;
  const { silenceSeconds, timeoutSeconds } = options;
  if (silenceSeconds !== undefined)
    silence = after(silenceSeconds, () =>
      fail({ code: "timeout", message: `the ranks said nothing for ${silenceSeconds} s` }),
    );
  if (timeoutSeconds !== undefined)
    after(timeoutSeconds, () =>
      fail({ code: "timeout", message: `the ranks did not end within ${timeoutSeconds} s` }),
    );

  let stayed = false;
  const endStaying = (): void => {
    stayed = true;
    if (child.pid !== undefined) killing ??= killRun(record.marker, child.pid);
  };
  let lineNumber = 0;
  const onLine = (line: string): void => {
    lineNumber += 1;
    if (cause !== undefined && cause.kind !== "stop") return;
    const event = eventOf(options.program, line, lineNumber);
    if ("failure" in event) return fail(event.failure);
    silence?.refresh();
    const fatal = isFatal(event);
    // Its last word, after which nothing is left to do but to end.
    if ((fatal || event.event === "done") && firstError === undefined && !done)
      after(LAST_WORD_SECONDS, endStaying);
    if (fatal) firstError ??= event;
    if (event.event === "done") done = true;
    try {
      options.onEvent(event as EventOf<P>, false);
    } catch (error) {
      kill({ kind: "thrown", error });
    }
  };
  const out = new LineSplitter({
    onLine,
    onOverlong: (bound) =>
      fail({ code: "internal", message: `${options.program.name} wrote a line of more than ${bound} bytes` }),
  });
  const log = new LineSplitter({
    onLine: (line) => {
      stderr.push(line);
      options.onLog?.(line);
    },
    onOverlong: (bound) => options.onLog?.(`(a line of more than ${bound} bytes was dropped)`),
  });
  child.stdout.on("data", (chunk: Buffer) => out.push(chunk)).on("end", () => out.end());
  child.stderr.on("data", (chunk: Buffer) => log.push(chunk)).on("end", () => log.end());

  const started = child.pid === undefined ? undefined : readProcess(child.pid);
  if (started)
    writeRunRecord(options.runDirectory, {
      ...record,
      process: { pid: started.pid, startTicks: started.startTicks },
    });
  options.signal?.addEventListener("abort", stop, { once: true });
  options.killSignal?.addEventListener("abort", killNow, { once: true });
  if (options.signal?.aborted) stop();
  if (options.killSignal?.aborted) killNow();

  let unkillable = false;
  // On hosts ranks are in sessions of their own, which says nothing of theirs here.
  const endWatch =
    child.pid === undefined || !start.runsHere
      ? undefined
      : watchLauncher(child.pid, () => lineNumber > 0, endStaying);
  try {
    const { exitCode, signal } = await ended;
    endWatch?.();
    for (const timer of timers) clearTimeout(timer);
    await killing;
    const { left } = await killRun(record.marker, child.pid);
    unkillable = left.length > 0;
    if (unkillable)
      throw new Error(
        `processes ${left.map((entry) => entry.pid).join(", ")} of a run do not end after SIGKILL`,
      );
    const seen = cause;
    if (seen?.kind === "thrown") throw seen.error;
    const common = { seconds: elapsed(), exitCode };
    if (seen?.kind === "failure") return { ...common, status: "failed", failure: seen.failure };
    // A launcher that stayed when its ranks were gone says nothing of how they ended: their own last word
    // counts.
    const orderly = stayed && done && firstError === undefined;
    if ((exitCode === 0 && done) || (orderly && seen === undefined))
      return { ...common, status: "completed" };
    if ((exitCode === EXIT_TERMINATED && done) || (orderly && seen?.kind === "stop"))
      return { ...common, status: "stopped", graceful: true };
    if (seen) return { ...common, status: "stopped", graceful: false };
    const kernelKilledForMemory = kernelMemoryKills() > memoryKillsBefore;
    return {
      ...common,
      status: "failed",
      failure: failureOfEnd(
        { exitCode, signal, launcherStayed: stayed, stderrTail: stderr.text, kernelKilledForMemory },
        firstError,
      ),
    };
  } finally {
    endWatch?.();
    for (const timer of timers) clearTimeout(timer);
    options.signal?.removeEventListener("abort", stop);
    options.killSignal?.removeEventListener("abort", killNow);
    if (!unkillable) removeRunRecord(options.runDirectory, record);
  }
}
