import { TRAINER_EXIT, type NativeErrorEventSchema } from "@internevo/contracts";
import {
  formatBytes,
  largestLinesWords,
  readTooMuchMemory,
  tooMuchMemoryWords,
  type Failure,
  type FailureCode,
} from "@internevo/domain";
import type { Static } from "typebox";

export type NativeError = Static<typeof NativeErrorEventSchema>;

/** The field that an error names, behind its message. */
function fieldWords({ field, value }: NativeError): string {
  if (field === undefined) return "";
  return ` (${field}${value === undefined ? "" : ` = ${JSON.stringify(value)}`})`;
}

/** What the trainer counts in bytes and by its own names, in the words and fields of jobs. */
function doesNotFitWords({ code, message }: NativeError): string | undefined {
  const said = code === "out_of_memory" ? readTooMuchMemory(message) : undefined;
  if (said === undefined) return undefined;
  const has = `the ${formatBytes(said.limitBytes)} that a rank may use (cluster.memoryPerGpu)`;
  return `${tooMuchMemoryWords(said, has)}: ${largestLinesWords(said.lines)}`;
}

/** The failure that an error event of a native program means. */
export function failureOfError(error: NativeError): Failure {
  const code = ((): FailureCode => {
    switch (error.code) {
      // What is wrong with a plan is the plan's, a device that is not there the machine's; the rest of a
      // configuration is ours.
      case "bad_config":
        if (error.field === "device") return "not-started";
        return error.field?.startsWith("plan.") === true ? "plan-unsupported" : "internal";
      case "plan_unsupported":
        return "plan-unsupported";
      case "out_of_memory":
        return "out-of-memory";
      case "data_error":
        return "data-invalid";
      case "checkpoint_error":
        return "checkpoint-invalid";
      case "communication_error":
        return "communication";
      case "internal":
        return "internal";
      case "not_finite":
        return "not-finite";
    }
  })();
  return {
    code,
    message: doesNotFitWords(error) ?? error.message + fieldWords(error),
    ...(error.rank === undefined ? {} : { rank: error.rank }),
    ...(error.remedy === undefined ? {} : { remedy: error.remedy }),
  };
}

/** How the launched process ended. */
export interface ProcessEnd {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** All ranks were gone and the launcher was not, so that it was killed: its exit says nothing of theirs. */
  readonly launcherStayed?: boolean;
  /** Last lines of standard error: mpirun and srun tell there which rank went. */
  readonly stderrTail: string;
  /** Whether the kernel's out-of-memory killer ended a process of this machine meanwhile. */
  readonly kernelKilledForMemory: boolean;
}

const LOST_RANK = [
  /process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)/,
  /srun: error: \S+: task (\d+): (Killed|Aborted|Segmentation fault|Bus error|Terminated)/,
] as const;

/** The rank that a signal ended, as mpirun or srun reported it. */
export function lostRankOf(stderrTail: string): { rank: number; how: string } | undefined {
  const mpirun = LOST_RANK[0].exec(stderrTail);
  if (mpirun) return { rank: Number(mpirun[1]), how: `signal ${mpirun[3]} on ${mpirun[2]}` };
  const srun = LOST_RANK[1].exec(stderrTail);
  return srun ? { rank: Number(srun[1]), how: srun[2] ?? "a signal" } : undefined;
}

const GONE = /^rank (\d+) on \S+ \(stage \d+\) (died; |is frozen: )/;

/**
 * What the trainer's watchdog says of a rank whose process is gone, or answers no more: a machine that hangs, or
 * somebody who stopped it. mpirun leaves its own word out in about one of twenty ends by a signal.
 */
export function goneOf(error: NativeError | undefined): { rank: number; how: string } | undefined {
  const gone = error?.code === "communication_error" ? GONE.exec(error.message) : null;
  if (!gone) return undefined;
  const how = gone[2] === "died; " ? "by which signal was not reported" : "it was ended";
  return { rank: Number(gone[1]), how };
}

const lastLine = (text: string): string => {
  const lines = text.split("\n").filter((line) => line.trim() !== "" && !/^-+$/.test(line));
  return lines.at(-1)?.slice(0, 500) ?? "";
};

/**
 * The failure of a process that ended without success.
 * @param error the first error event it wrote, if any: the most telling source, except when a rank was lost
 * after it.
 */
export function failureOfEnd(end: ProcessEnd, error: NativeError | undefined): Failure {
  const lost = lostRankOf(end.stderrTail) ?? goneOf(error);
  // The ranks that are left can only say that communication failed.
  if (error && !(lost && error.code === "communication_error")) return failureOfError(error);
  if (lost || end.signal !== null || (end.exitCode ?? 0) > 128) {
    const code = end.signal === null ? `exit code ${end.exitCode}` : `${end.signal} of the launcher`;
    const how =
      lost?.how ??
      (end.launcherStayed === true
        ? "what nobody saw: the launcher stayed when all of them were gone, and was killed"
        : code);
    const rank = lost ? { rank: lost.rank } : {};
    // An error that names the lost rank is not its own: another one saw it go.
    if (lost && error?.rank === lost.rank && !end.kernelKilledForMemory)
      return { ...failureOfError(error), code: "rank-lost", message: `${error.message}; ${how}` };
    return end.kernelKilledForMemory
      ? {
          code: "out-of-memory",
          message: `the kernel ended a rank for want of memory (${how})`,
          remedy: "use fewer ranks on the machine, or a plan that needs less memory",
          ...rank,
        }
      : {
          code: "rank-lost",
          message: `${lost ? `rank ${lost.rank}` : "the ranks"} ended by ${how}`,
          ...rank,
        };
  }
  const message = (what: string): string =>
    `${what}: ${lastLine(end.stderrTail) || "nothing was written to standard error"}`;
  switch (end.exitCode) {
    case TRAINER_EXIT.badConfig:
      return { code: "internal", message: message("the configuration was refused") };
    case TRAINER_EXIT.outOfMemory:
      return { code: "out-of-memory", message: message("the plan does not fit in memory") };
    case TRAINER_EXIT.data:
      return { code: "data-invalid", message: message("the data was refused") };
    case TRAINER_EXIT.checkpoint:
      return { code: "checkpoint-invalid", message: message("the checkpoint was refused") };
    case TRAINER_EXIT.communication:
      return { code: "communication", message: message("communication failed") };
    case TRAINER_EXIT.done:
      return { code: "internal", message: "the ranks ended without saying that they are done" };
    default:
      return { code: "internal", message: message(`the ranks ended with exit code ${end.exitCode}`) };
  }
}
