import { TRAINER_EXIT } from "@internevo/contracts";
import type { Failure } from "@internevo/domain";
import { goneOf, failureOfEnd, type NativeError } from "../failure.ts";
import type { Cause } from "../scheduled/followed-ranks.ts";
import { decidedBy, failed, isOrderly, type Outcome, RESUME } from "../scheduled/ends.ts";
import type { SlurmJob, SlurmNode, SlurmRefusalError } from "./control.ts";
import type { JobEnd } from "./files.ts";
import { describeNode } from "./words.ts";

/** Everything that is known of an end. */
export interface Ended {
  /** What the batch script left; undefined when it left nothing. */
  readonly end: JobEnd | undefined;
  /** As Slurm told it last. */
  readonly job: SlurmJob | undefined;
  readonly jobId: number | null;
  /** Its batch script has begun. */
  readonly begun: boolean;
  /** How it ended by Slurm's account; undefined when Slurm has not said that it ended. */
  readonly words: string | undefined;
  /**
   * Why the site's accounting says nothing of a job that the controller has forgotten, where it was asked in
   * vain.
   */
  readonly unaccounted?: string | undefined;
  readonly cause: Cause | undefined;
  /** Nodes of the job that can take none now. */
  readonly nodesOut: readonly SlurmNode[];
  /** The ranks have said that they are done. */
  readonly done: boolean;
  readonly firstError: NativeError | undefined;
  readonly stderrTail: string;
}

const MEMORY = /oom[-_ ]kill|Out Of Memory/i;

/** Slurm has refused a submission. */
export const refused = (error: SlurmRefusalError): Failure => ({
  code: "not-started",
  message: `Slurm refuses the job: ${error.message}`,
  remedy:
    "compare the job's nodes and ranks with what the partition " +
    "has, and the cluster's slurm settings with what the site allows",
});

/**
 * Whether an end means something only together with what Slurm says of job and nodes; what the script decided
 * or ranks tell of themselves does not.
 */
export function needsSlurmsWord({
  end,
  cause,
  done,
  firstError,
}: Pick<Ended, "end" | "cause" | "done" | "firstError">): boolean {
  if (cause !== undefined || end?.exitCode === 0 || end?.exitCode === null) return false;
  // USR1 is a warning, which Slurm sends before it takes nodes away. TERM it sends whoever wants the end.
  if (isOrderly({ end, done, firstError })) return end?.told !== "USR1";
  return firstError === undefined ? end !== undefined || !done : firstError.code === "communication_error";
}

/** Ends that the batch script itself decided on. */
function scriptFailure({ told }: JobEnd, stderrTail: string, name: string): Failure | undefined {
  switch (told) {
    case "REQUEUED":
      return {
        code: "rank-lost",
        message: `${name} was started anew by Slurm: a job of its own takes its place`,
      };
    case "NODES":
      return { code: "rank-lost", message: `${name} got fewer nodes than it asked for` };
    case "MODULE":
      return {
        code: "not-started",
        message: `${name}: ${stderrTail.split("\n").at(-1) ?? "an environment module cannot be loaded"}`,
        remedy: "change modules of the cluster's slurm settings",
      };
    default:
      return undefined;
  }
}

function slurmFailure({ job, words, stderrTail, begun }: Ended): Failure | undefined {
  if (!job || words === undefined) return undefined;
  switch (job.state) {
    case "CANCELLED":
      // What slurmd cannot start (its prolog fails, a controller that lost its state gives a number again)
      // Slurm cancels where it may not requeue it.
      if (!begun && job.nodes !== "")
        return {
          code: "rank-lost",
          message:
            `${words} before its script began: its first node could not start it, ` +
            "and the log of slurmd there says why, or somebody cancelled it just then",
        };
      return { code: "cancelled", message: `${words}, and not by InternEvo`, remedy: RESUME };
    case "OUT_OF_MEMORY":
      return {
        code: "out-of-memory",
        message: words,
        remedy:
          "raise memoryPerNodeBytes of the cluster's slurm settings, or use a plan that needs less memory",
      };
    case "TIMEOUT":
    case "NODE_FAIL":
    case "PREEMPTED":
    case "BOOT_FAIL":
    case "DEADLINE":
      return {
        code: "rank-lost",
        message: MEMORY.test(stderrTail)
          ? `${words}; ${stderrTail.split("\n").find((line) => MEMORY.test(line))}`
          : words,
      };
    default:
      return undefined;
  }
}

/** Nobody of ours has asked for such an end: who did, Slurm may have said. */
function orderlyFailure({ end, job, words }: Ended, name: string): Failure {
  const inOrder = `${name} has ended in order, with a checkpoint`;
  if (job?.state === "CANCELLED" && words !== undefined)
    return {
      code: "cancelled",
      message: `${inOrder}; cancelled in Slurm, and not by InternEvo`,
      remedy: RESUME,
    };
  const why =
    end?.told === "TERM"
      ? "Slurm took its nodes away"
      : "its time limit was near, or a job of higher priority needs its place";
  return { code: "rank-lost", message: `${inOrder}: ${why}` };
}

/** What a launch on Slurm came to. */
export function outcomeOf(ended: Ended): Outcome {
  const { end, cause, done, firstError, stderrTail, jobId, words } = ended;
  const decided = decidedBy(cause);
  if (decided) return decided;
  const exitCode = end?.exitCode ?? null;
  if (exitCode === 0 && done) return { status: "completed" };
  const name = `Slurm job ${jobId ?? "(not submitted)"}`;
  const orderly = isOrderly(ended);
  if (cause) return { status: "stopped", graceful: cause.kind === "stop" && orderly };
  if (orderly) return failed(orderlyFailure(ended, name));
  const script = end && scriptFailure(end, stderrTail, name);
  if (script) return failed(script);
  const slurm = slurmFailure(ended);
  if (slurm) return failed(slurm);
  // Its own last word counts where the launcher around it never ended.
  if (!end && done && firstError === undefined) return { status: "completed" };
  if (!end && !firstError)
    return failed({
      code: "rank-lost",
      message:
        words ??
        `${name} is gone: Slurm does not know it any more, and it left no word${ended.unaccounted === undefined ? "" : ` (its accounting: ${ended.unaccounted})`}`,
    });
  // srun kills the others over the one that died, and tells of each of them.
  const tail = goneOf(firstError)
    ? stderrTail
        .split("\n")
        .filter((line) => !/^srun: error: .*tasks? [\d,-]+: /.test(line))
        .join("\n")
    : stderrTail;
  const told = failureOfEnd(
    {
      exitCode: exitCode ?? TRAINER_EXIT.communication,
      signal: null,
      stderrTail: tail,
      kernelKilledForMemory: MEMORY.test(stderrTail),
    },
    firstError,
  );
  // The ranks that are left can only say that they cannot reach the others, or srun ends them without a word.
  const isOfNodes = told.code === "communication" || (told.code === "internal" && firstError === undefined);
  const failure: Failure =
    isOfNodes && ended.nodesOut.length > 0
      ? {
          ...told,
          code: "rank-lost",
          message: `${ended.nodesOut.map(describeNode).join(", ")}; ${told.message}`,
        }
      : told;
  return failed({
    ...failure,
    message: `${failure.message} (${name}${ended.job && ended.job.nodes !== "" ? ` on ${ended.job.nodes}` : ""})`,
  });
}
