import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Only the processes that build and hold a testbed carry it: never what runs on one. */
export const HOLDER_MARKER = "INTERNEVO_TESTBED_HOLDER";

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return undefined;
  }
};

export const pids = (): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number);

/** When a process began, in the kernel's ticks; undefined when it is gone or only waits to be reaped. */
export function startTicks(pid: number): number | undefined {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return undefined;
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields[0] === "Z" || fields[0] === "X" ? undefined : Number(fields[19]);
}

/** Holders of one owner are told apart from another's, and two testbeds of one owner by their names. */
export const markOf = (name: string): string => `${process.getuid?.() ?? 0}:${name}`;

/** Live processes that build or hold a testbed, whatever became of the command that started them. */
export const markedProcesses = (name: string): number[] =>
  pids().filter(
    (pid) =>
      read(`/proc/${pid}/environ`)
        ?.split("\0")
        .includes(`${HOLDER_MARKER}=${markOf(name)}`) && startTicks(pid) !== undefined,
  );

/** What a process is called in its own pid namespace, or undefined where that is this one. */
export function innerPid(pid: number): number | undefined {
  const pids = /^NSpid:\s+(.+)$/m.exec(read(`/proc/${pid}/status`) ?? "")?.[1]?.split(/\s+/) ?? [];
  return pids.length > 1 ? Number(pids.at(-1)) : undefined;
}

/** Of the marked processes, the one that is process 1 of its own pid namespace. */
export const holderOf = (name: string): number | undefined =>
  markedProcesses(name).find((pid) => innerPid(pid) === 1);

/** All processes inside a testbed: those in its holder's pid namespace. */
export function processesInside(holder: number): number[] {
  const namespaceOf = (pid: number): string | undefined => {
    try {
      return readlinkSync(`/proc/${pid}/ns/pid`);
    } catch {
      return undefined;
    }
  };
  const wanted = namespaceOf(holder);
  return wanted === undefined
    ? []
    : pids().filter((pid) => namespaceOf(pid) === wanted && startTicks(pid) !== undefined);
}

export function kill(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}
