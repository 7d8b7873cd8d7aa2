import { TRAINER_EXIT } from "@internevo/contracts";
import type { Failure } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { failureOfEnd } from "../failure.ts";
import { readRecordFile } from "../process/record-file.ts";
import type { Cause } from "../scheduled/followed-ranks.ts";
import { decidedBy, failed, isOrderly, type Outcome, type RanksEnd, RESUME } from "../scheduled/ends.ts";
import type { KubernetesRefusalError } from "./api.ts";
import { evictionWords, podEnd, type Seen } from "./reasons.ts";
import { namesInWords } from "./status.ts";

const PodsEndSchema = Type.Object(
  { pod: Type.String(), exitCode: Type.Union([Type.Integer(), Type.Null()]), told: Type.String() },
  { additionalProperties: false },
);
/** What the first pod left of how the ranks ended. `told`: TERM, AGAIN, or nothing. */
export type PodsEnd = Static<typeof PodsEndSchema>;

/** Undefined while the file is not there. */
export const readPodsEnd = (path: string): PodsEnd | undefined => readRecordFile(PodsEndSchema, path);

/** Everything that is known of an end. */
export interface Ended extends RanksEnd, Seen {
  readonly end: PodsEnd | undefined;
  /** Of the JobSet, for people. */
  readonly name: string;
  /** The API server has said that the JobSet is gone or going, and we did not delete it. */
  readonly isDeleted: boolean;
  readonly cause: Cause | undefined;
  /** Nodes of its pods that can take none now, in words. */
  readonly nodesOut: readonly string[];
  readonly stderrTail: string;
}

/** What mpirun says of a host whose daemon is gone. */
const DAEMON_LOST = /ORTE has lost communication with a remote daemon|ORTE daemon has unexpectedly failed/;

/** What to do about a refusal, by its status. */
const REFUSALS: Readonly<Record<number, string>> = {
  403: "give the account of the kubeconfig the rights of docs/how-to/run-on-kubernetes.md",
  404: "install JobSet in the cluster, and create the namespace",
};

/** The API server has refused the JobSet. */
export const refused = (error: KubernetesRefusalError): Failure => ({
  code: "not-started",
  message: `Kubernetes refuses the job: ${error.message}`,
  remedy: REFUSALS[error.status] ?? "compare the cluster's kubernetes settings with what the cluster allows",
});

/** Why Kubernetes took pods away, in words. */
const takenAway = ({ workload, pods }: Seen): string | undefined =>
  evictionWords(workload) ??
  pods.map(podEnd).find((each) => each !== undefined && !/ended with exit code/.test(each.words))?.words;

/** Ends that Kubernetes decided on, or somebody by its means. */
function kubernetesFailure(ended: Ended): Failure | undefined {
  const { end, pods, name, isDeleted } = ended;
  if (end?.told === "AGAIN")
    return {
      code: "rank-lost",
      message: `the pods of ${name} were started anew: ${takenAway(ended) ?? "a job of its own takes its place"}`,
    };
  const outOfMemory = pods.map(podEnd).find((each) => each?.outOfMemory === true);
  if (outOfMemory)
    return {
      code: "out-of-memory",
      message: outOfMemory.words,
      remedy:
        "raise memoryPerNodeBytes of the cluster's kubernetes settings, or use a plan that needs less memory",
    };
  if (isDeleted && end === undefined)
    return { code: "cancelled", message: `somebody has deleted ${name}, and not InternEvo`, remedy: RESUME };
  const taken = takenAway(ended);
  if (taken !== undefined && (end === undefined || end.told !== ""))
    return { code: "rank-lost", message: `${name} has ended: ${taken}` };
  return undefined;
}

/** What ranks that ended by themselves mean, where nodes were lost too. */
function ranksFailure({ end, firstError, stderrTail, nodesOut, name }: Ended): Failure {
  const told = failureOfEnd(
    {
      exitCode: end?.exitCode ?? TRAINER_EXIT.communication,
      signal: null,
      stderrTail,
      kernelKilledForMemory: false,
    },
    firstError,
  );
  // The ranks that are left can only say that they cannot reach the others.
  const isOfNodes = told.code === "communication" || (told.code === "internal" && firstError === undefined);
  const lost =
    nodesOut.length === 0 && DAEMON_LOST.test(stderrTail) ? "a pod was lost" : namesInWords(nodesOut);
  const failure: Failure =
    isOfNodes && lost !== "" ? { ...told, code: "rank-lost", message: `${lost}; ${told.message}` } : told;
  return { ...failure, message: `${failure.message} (${name})` };
}

/** Nobody of ours has asked for such an end. */
function orderlyFailure(ended: Ended): Failure {
  const inOrder = `${ended.name} has ended in order, with a checkpoint`;
  const taken = takenAway(ended);
  return ended.isDeleted && taken === undefined
    ? { code: "cancelled", message: `${inOrder}: somebody has deleted it, and not InternEvo`, remedy: RESUME }
    : { code: "rank-lost", message: `${inOrder}: ${taken ?? "Kubernetes took its pods away"}` };
}

/** What a launch on Kubernetes came to. */
export function outcomeOf(ended: Ended): Outcome {
  const { end, cause, done, firstError, name } = ended;
  const decided = decidedBy(cause);
  if (decided) return decided;
  if (end?.exitCode === 0 && done) return { status: "completed" };
  const orderly = isOrderly(ended);
  if (cause) return { status: "stopped", graceful: cause.kind === "stop" && orderly };
  if (orderly) return failed(orderlyFailure(ended));
  const failure = kubernetesFailure(ended);
  if (failure) return failed(failure);
  // Its own last word counts where mpirun around it never ended.
  if (!end && done && firstError === undefined) return { status: "completed" };
  if (!end && !firstError)
    return failed({
      code: "rank-lost",
      message: `${name} has ended without a word${ended.nodesOut.length === 0 ? "" : `: ${namesInWords(ended.nodesOut)}`}`,
    });
  return failed(ranksFailure(ended));
}
