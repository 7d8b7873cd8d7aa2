import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const readProc = (pid: number | string, file: string): string | undefined => {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    // It has ended, or is another user's.
    return undefined;
  }
};

/**
 * When a process began, in the kernel's ticks: with the pid it names a process for good. Undefined when there
 * is none, or only its zombie.
 */
export function processStart(pid: number): string | undefined {
  const stat = readProc(pid, "stat");
  if (stat === undefined) return undefined;
  // The command, in parentheses, may contain anything.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" ? undefined : fields[19];
}

export const isAlive = (pid: number): boolean => processStart(pid) !== undefined;

/** A process's arguments, and whether one contains the text. */
export const commandContains = (pid: number, text: string): boolean =>
  readProc(pid, "cmdline")?.includes(text) ?? false;

/** Set in every process of a stack, and inherited by what those start. */
export const STACK_MARKER = "INTERNEVO_STACK_DIRECTORY";

/** Processes that carry a stack's marker: its services, and what they have started. */
export function processesOfStack(dataDirectory: string): number[] {
  const mark = `\0${STACK_MARKER}=${dataDirectory}\0`;
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((name) => `\0${readProc(name, "environ") ?? ""}\0`.includes(mark))
    .map(Number)
    .filter(isAlive);
}

export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Asks a process to end, also where it was stopped: it would only hear it later. */
export function askToEnd(pid: number, signal: NodeJS.Signals): void {
  signalProcess(pid, signal);
  signalProcess(pid, "SIGCONT");
}

/** Waits for processes to be gone. @returns those that are not. */
export async function waitGone(pids: readonly number[], seconds: number): Promise<number[]> {
  const deadline = performance.now() + seconds * 1000;
  for (;;) {
    const left = pids.filter(isAlive);
    if (left.length === 0 || performance.now() > deadline) return left;
    await sleep(25);
  }
}

/** Ends processes: with a signal first, after a while for good. */
export async function endProcesses(
  pids: readonly number[],
  signal: NodeJS.Signals,
  graceSeconds: number,
): Promise<void> {
  for (const pid of pids) askToEnd(pid, signal);
  const left = await waitGone(pids, graceSeconds);
  for (const pid of left) signalProcess(pid, "SIGKILL");
  await waitGone(left, 5);
}

/** Ends whatever carries a stack's marker, and what that starts while it is being ended. */
export async function endProcessesOfStack(dataDirectory: string, graceSeconds: number): Promise<void> {
  await endProcesses(processesOfStack(dataDirectory), "SIGTERM", graceSeconds);
  for (let left = processesOfStack(dataDirectory); left.length > 0; left = processesOfStack(dataDirectory))
    await endProcesses(left, "SIGKILL", 0);
}
