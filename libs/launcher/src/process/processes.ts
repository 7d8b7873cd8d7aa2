import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/**
 * Every process of a run carries this variable with the run's own id, so that it is found again whatever
 * became of its parents.
 */
export const RUN_MARKER = "INTERNEVO_RUN";

/**
 * One live process, as /proc tells it; `startTicks` makes the pair (pid, startTicks) unique within one boot.
 */
export interface ProcessEntry {
  readonly pid: number;
  readonly parentPid: number;
  readonly session: number;
  readonly startTicks: number;
  readonly command: string;
}

/** The identity of this boot: a pid of another boot means nothing. */
export const bootId = (): string => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();

/** Reads one process; undefined when it is gone or only waits to be reaped. */
export function readProcess(pid: number): ProcessEntry | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    // It has ended.
    return undefined;
  }
  // The command stands in parentheses and may itself hold any character: fields are counted from the last
  // one.
  const open = stat.indexOf("(");
  const close = stat.lastIndexOf(")");
  const fields = stat.slice(close + 2).split(" ");
  const state = fields[0];
  if (state === "Z" || state === "X") return undefined;
  return {
    pid,
    command: stat.slice(open + 1, close),
    parentPid: Number(fields[1]),
    session: Number(fields[3]),
    startTicks: Number(fields[19]),
  };
}

function carriesMarker(pid: number, marker: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(`${RUN_MARKER}=${marker}`);
  } catch {
    // It has ended, or is another user's, whose ranks are not ours to end.
    return false;
  }
}

const livePids = (): number[] => readdirSync("/proc").map(Number).filter(Number.isInteger);

/**
 * All live processes of a run on this machine. mpirun puts every rank into a process group of its own, so the
 * group says nothing: a process belongs to the run when it carries the run's marker, or sits in the session
 * that mpirun leads.
 * @param session pid of the session's leader; only trusted while the caller still holds that child.
 */
export function processesOfRun(marker: string, session?: number): ProcessEntry[] {
  return livePids().flatMap((pid) => {
    if (pid === process.pid) return [];
    const entry = readProcess(pid);
    if (!entry) return [];
    return (session !== undefined && entry.session === session) || carriesMarker(pid, marker) ? [entry] : [];
  });
}

/** Whether a live process other than its leader is in a session. */
export const hasCompany = (session: number): boolean =>
  livePids().some((pid) => pid !== session && readProcess(pid)?.session === session);

/**
 * Whether a process has had a child that ended, and has taken notice of it: the kernel counts the memory
 * faults of such children, and a program cannot start without one.
 */
export function hadChildren(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return Number(fields[8]) > 0;
  } catch {
    return false;
  }
}

/** Sends a signal; a process that is gone by then is no error. */
export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/**
 * Kills every process of a run and waits until none is left.
 * @returns the processes that were killed, and those that are still there after `boundMilliseconds`
 * (uninterruptible ones).
 */
export async function killRun(
  marker: string,
  session?: number,
  boundMilliseconds = 10_000,
): Promise<{ killed: number; left: ProcessEntry[] }> {
  const seen = new Set<number>();
  const end = performance.now() + boundMilliseconds;
  for (;;) {
    const left = processesOfRun(marker, session);
    if (left.length === 0 || performance.now() > end) return { killed: seen.size, left };
    for (const entry of left) {
      seen.add(entry.pid);
      signalProcess(entry.pid, "SIGKILL");
    }
    await sleep(20);
  }
}
