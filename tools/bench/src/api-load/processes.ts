import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";

const TICKS_A_SECOND = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

interface ProcessLook {
  readonly parent: number;
  /** Its own processor time, and that of children that have ended. */
  readonly processorSeconds: number;
}

function look(pid: number): ProcessLook | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name in brackets may hold anything.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = [11, 12, 13, 14].reduce((sum, field) => sum + Number(fields[field]), 0);
    return { parent: Number(fields[1]), processorSeconds: ticks / TICKS_A_SECOND };
  } catch {
    return undefined; // it has ended
  }
}

/**
 * Memory of a process: its share of what it holds together with others, bytes; 0 when it has ended. A backend of
 * Postgres maps all shared buffers, so resident sets would count them many times.
 */
function memoryBytesOf(pid: number): number {
  try {
    const rollup = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
    return 1024 * Number(/^Pss: +(\d+) kB$/m.exec(rollup)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** What a process and all its descendants have taken. */
export interface Taken {
  readonly processorSeconds: number;
  readonly memoryBytes: number;
}

/** Of each of some processes, with their descendants. */
export function takenBy(roots: Readonly<Record<string, number | undefined>>): Record<string, Taken> {
  const all = new Map<number, ProcessLook>();
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    const found = Number.isInteger(pid) ? look(pid) : undefined;
    if (found) all.set(pid, found);
  }
  const children = Map.groupBy(all.keys(), (pid) => all.get(pid)?.parent ?? 0);
  const familyOf = (pid: number): number[] => [pid, ...(children.get(pid) ?? []).flatMap(familyOf)];
  return Object.fromEntries(
    Object.entries(roots).map(([name, root]) => {
      const pids = root === undefined ? [] : familyOf(root);
      const sum = (of: (pid: number) => number): number => pids.reduce((total, pid) => total + of(pid), 0);
      return [
        name,
        {
          processorSeconds: sum((pid) => all.get(pid)?.processorSeconds ?? 0),
          memoryBytes: sum(memoryBytesOf),
        },
      ];
    }),
  );
}
