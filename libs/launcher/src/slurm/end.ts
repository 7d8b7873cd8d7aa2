import { TRAINER_EXIT } from "@internevo/contracts";
import type { Failure } from "@internevo/domain";
import { diedOf, failureOfEnd, type NativeError } from "../failure.ts";
import { EXIT_TERMINATED } from "../launch-options.ts";
import type { SlurmJob, SlurmRefusalError } from "./control.ts";
import type { JobEnd } from "./files.ts";

/** Why a supervisor ends a job. */
export type Cause = { readonly kind: "stop" } | { readonly kind: "kill" } | { readonly kind: "failure"; readonly failure: Failure } | { readonly kind: "thrown"; readonly error: unknown };

/** Everything that is known of an end. */
export interface Ended {
  /** What the batch script left; undefined when it left nothing. */
  readonly end: JobEnd | undefined;
  /** As Slurm told it last. */
  readonly job: SlurmJob | undefined;
  readonly jobId: number | null;
  /** How it ended by Slurm's account; undefined when Slurm has not said that it ended. */
  readonly words: string | undefined;
  readonly cause: Cause | undefined;
  /** The ranks have said that they are done. */
  readonly done: boolean;
  readonly firstError: NativeError | undefined;
  readonly stderrTail: string;
}

type Outcome = { readonly status: "completed" } | { readonly status: "stopped"; readonly graceful: boolean } | { readonly status: "failed"; readonly failure: Failure } | { readonly thrown: unknown };

const MEMORY = /oom[-_ ]kill|Out Of Memory/i;

/** Slurm has refused a submission. */
export const refused = (error: SlurmRefusalError): Failure => ({
  code: "not-started",
  message: `Slurm refuses the job: ${error.message}`,
  remedy: "compare the job's nodes and ranks with what the partition has, and the cluster's slurm settings with what the site allows",
});

const failed = (failure: Failure): Outcome => ({ status: "failed", failure });

/** Ends that the batch script itself decided on. */
function scriptFailure({ told }: JobEnd, stderrTail: string, name: string): Failure | undefined {
  switch (told) {
    case "REQUEUED": return { code: "rank-lost", message: `${name} was started anew by Slurm: a job of its own takes its place` };
    case "NODES": return { code: "rank-lost", message: `${name} got fewer nodes than it asked for` };
    case "MODULE": return { code: "not-started", message: `${name}: ${stderrTail.split("\n").at(-1) ?? "an environment module cannot be loaded"}`, remedy: "change modules of the cluster's slurm settings" };
    default: return undefined;
  }
}

function slurmFailure({ job, words, stderrTail }: Ended): Failure | undefined {
  if (!job || words === undefined) return undefined;
  switch (job.state) {
    case "CANCELLED": return { code: "cancelled", message: `${words}, and not by InternEvo`, remedy: "submit the job again; it can begin with this one's checkpoint (initialWeights)" };
    case "OUT_OF_MEMORY": return { code: "out-of-memory", message: words, remedy: "raise memoryPerNodeBytes of the cluster's slurm settings, or use a plan that needs less memory" };
    case "TIMEOUT":
    case "NODE_FAIL":
    case "PREEMPTED":
    case "BOOT_FAIL":
    case "DEADLINE": return { code: "rank-lost", message: MEMORY.test(stderrTail) ? `${words}; ${stderrTail.split("\n").find((line) => MEMORY.test(line))}` : words };
    default: return undefined;
  }
}

/** What a launch on Slurm came to. */
export function outcomeOf(ended: Ended): Outcome {
  const { end, cause, done, firstError, stderrTail, jobId, words } = ended;
  if (cause?.kind === "thrown") return { thrown: cause.error };
  if (cause?.kind === "failure") return failed(cause.failure);
  const exitCode = end?.exitCode ?? null;
  if (exitCode === 0 && done) return { status: "completed" };
  const name = `Slurm job ${jobId ?? "(not submitted)"}`;
  // Ranks that ended one after the other in order, the last of them perhaps by their launcher: all said that they are done first.
  const orderly = done && firstError === undefined && (exitCode === EXIT_TERMINATED || (end?.told ?? "") !== "");
  if (cause) return { status: "stopped", graceful: cause.kind === "stop" && orderly };
  if (orderly) {
    const why = end?.told === "TERM" ? "Slurm took its nodes away" : "its time limit was near, or a job of higher priority needs its place";
    return failed({ code: "rank-lost", message: `${name} has ended in order, with a checkpoint: ${why}` });
  }
  const script = end && scriptFailure(end, stderrTail, name);
  if (script) return failed(script);
  const slurm = slurmFailure(ended);
  if (slurm) return failed(slurm);
  // Its own last word counts where the launcher around it never ended.
  if (!end && done && firstError === undefined) return { status: "completed" };
  if (!end && !firstError) return failed({ code: "rank-lost", message: words ?? `${name} is gone: Slurm does not know it any more, and it left no word` });
  // srun kills the others over the one that died, and tells of each of them.
  const tail = diedOf(firstError) ? stderrTail.split("\n").filter((line) => !/^srun: error: .*tasks? [\d,-]+: /.test(line)).join("\n") : stderrTail;
  const failure = failureOfEnd({ exitCode: exitCode ?? TRAINER_EXIT.communication, signal: null, stderrTail: tail, kernelKilledForMemory: MEMORY.test(stderrTail) }, firstError);
  return failed({ ...failure, message: `${failure.message} (${name}${ended.job && ended.job.nodes !== "" ? ` on ${ended.job.nodes}` : ""})` });
}
