import type { SlurmJob, SlurmNode } from "./control.ts";

/** Slurm's reasons why a job does not run, for people. `lasting`: waiting alone does not help. */
interface Words {
  readonly words: string;
  readonly remedy?: string;
}

const lasting = (words: string, remedy: string): Words => ({ words, remedy });
const passing = (words: string): Words => ({ words });

const REASONS: Readonly<Record<string, Words>> = {
  None: passing("Slurm has not looked at it yet"),
  Priority: passing("jobs of higher priority are before it"),
  Resources: passing("the nodes that it needs are busy"),
  Dependency: passing("it waits for a job that it depends on"),
  DependencyNeverSatisfied: lasting(
    "a job that it depends on ended in a way that will never let it start",
    "submit it again without the dependency",
  ),
  BeginTime: passing("its time to begin has not come"),
  Licenses: passing("licences that it needs are in use"),
  Cleaning: passing("Slurm cleans up after its last run"),
  Prolog: passing("the site's prolog runs on its nodes"),
  NodeDown: passing("a node that it needs is down"),
  BadConstraints: lasting(
    "no node can have all the features that it asks for",
    "change constraint, gres or partition of the cluster's slurm settings",
  ),
  ReqNodeNotAvail: passing("nodes that it needs are not available: down, drained or reserved"),
  Reservation: passing("its reservation has not begun"),
  ReservationDeleted: lasting(
    "its reservation was deleted",
    "change reservation of the cluster's slurm settings",
  ),
  PartitionDown: passing("its partition takes no jobs for now"),
  PartitionInactive: passing("its partition is inactive"),
  PartitionNodeLimit: lasting(
    "its partition does not give so many nodes to a job",
    "use fewer nodes, or another partition in the cluster's slurm settings",
  ),
  PartitionTimeLimit: lasting(
    "it asks for more time than its partition allows",
    "lower timeLimitSeconds in the cluster's slurm settings, or use another partition",
  ),
  InvalidAccount: lasting(
    "its account may not use Slurm here",
    "change account of the cluster's slurm settings",
  ),
  AccountNotAllowed: lasting(
    "its account may not use this partition",
    "change account or partition of the cluster's slurm settings",
  ),
  InvalidQOS: lasting("its quality of service does not exist", "change qos of the cluster's slurm settings"),
  QOSNotAllowed: lasting(
    "its quality of service may not be used in this partition",
    "change qos or partition of the cluster's slurm settings",
  ),
  QOSJobLimit: passing("its quality of service has as many jobs as it may have"),
  QOSResourceLimit: passing("its quality of service has as many resources as it may have"),
  QOSTimeLimit: passing("its quality of service has used up its time"),
  QOSUsageThreshold: passing("use of its quality of service is above the threshold"),
  QOSMaxJobsPerUserLimit: passing("this user runs as many jobs as the quality of service allows"),
  QOSMaxJobsPerAccountLimit: passing("this account runs as many jobs as the quality of service allows"),
  QOSMaxNodePerUserLimit: passing("this user has as many nodes as the quality of service allows"),
  QOSMaxNodePerJobLimit: lasting(
    "the quality of service does not give so many nodes to a job",
    "use fewer nodes, or another qos in the cluster's slurm settings",
  ),
  QOSMaxCpuPerJobLimit: lasting(
    "the quality of service does not give so many CPUs to a job",
    "use fewer ranks, or another qos in the cluster's slurm settings",
  ),
  QOSMaxGRESPerJob: lasting(
    "the quality of service does not give so many GPUs to a job",
    "use fewer, or another qos in the cluster's slurm settings",
  ),
  QOSMaxGRESPerUser: passing("this user has as many GPUs as the quality of service allows"),
  QOSMaxCpuPerUserLimit: passing("this user has as many CPUs as the quality of service allows"),
  QOSMaxWallDurationPerJobLimit: lasting(
    "it asks for more time than its quality of service allows",
    "lower timeLimitSeconds in the cluster's slurm settings",
  ),
  QOSGrpGRES: passing("the quality of service as a whole has as many GPUs as it may have"),
  QOSGrpNodeLimit: passing("the quality of service as a whole has as many nodes as it may have"),
  QOSGrpCpuLimit: passing("the quality of service as a whole has as many CPUs as it may have"),
  QOSGrpJobsLimit: passing("the quality of service as a whole runs as many jobs as it may"),
  AssociationJobLimit: passing("this user or account has as many jobs as it may have"),
  AssociationResourceLimit: passing("this user or account has as many resources as it may have"),
  AssociationTimeLimit: passing("this user or account has used up its time"),
  AssocGrpGRES: passing("the account has as many GPUs as it may have"),
  AssocGrpNodeLimit: passing("the account has as many nodes as it may have"),
  AssocGrpCpuLimit: passing("the account has as many CPUs as it may have"),
  AssocGrpJobsLimit: passing("the account runs as many jobs as it may"),
  AssocGrpCPUMinutesLimit: passing("the account has used up its CPU minutes"),
  AssocGrpGRESMinutes: passing("the account has used up its GPU minutes"),
  AssocMaxJobsLimit: passing("this user runs as many jobs as the account allows"),
  AssocMaxNodePerJobLimit: lasting(
    "the account does not give so many nodes to a job",
    "use fewer nodes, or another account in the cluster's slurm settings",
  ),
  AssocMaxWallDurationPerJobLimit: lasting(
    "it asks for more time than the account allows",
    "lower timeLimitSeconds in the cluster's slurm settings",
  ),
  JobHeldUser: passing("somebody holds it back: scontrol release lets it go"),
  JobHeldAdmin: passing("an administrator holds it back"),
  SystemFailure: passing("Slurm itself has a fault"),
  JobArrayTaskLimit: passing("its array runs as many tasks as it may"),
  MaxMemPerLimit: lasting(
    "it asks for more memory than a job may have",
    "lower memoryPerNodeBytes in the cluster's slurm settings",
  ),
  FrontEndDown: passing("the node that would start it is down"),
  InactiveLimit: passing("it was inactive for too long"),
  Preempted: passing("a job of higher priority has taken its place"),
};

/** `(Nodes required for job are DOWN, DRAINED or reserved …)` is a text of its own in every version. */
const NODES_OUT = /^(ReqNodeNotAvail|Nodes[ _]required)/;

function known(reason: string): Words | undefined {
  if (Object.hasOwn(REASONS, reason)) return REASONS[reason];
  return NODES_OUT.test(reason) ? REASONS["ReqNodeNotAvail"] : undefined;
}

/** Why a job does not run: in words, or as Slurm says it where that is not known here. */
export const reasonWords = (reason: string): string => known(reason)?.words ?? reason;

/** What to do where waiting does not help; undefined where it may. */
export const remedyOf = (reason: string): string | undefined => known(reason)?.remedy;

const clock = (date: Date): string => `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;

/** What people are told while a job waits. */
export function queueWords({ id, reason, startsAt }: Pick<SlurmJob, "id" | "reason" | "startsAt">): string {
  const start =
    startsAt !== undefined && startsAt.getTime() > Date.now()
      ? `; Slurm expects it to start at ${clock(startsAt)}`
      : "";
  return `waits in Slurm's queue as job ${id}: ${reasonWords(reason)}${start}`;
}

const ENDS: Readonly<Record<string, string>> = {
  TIMEOUT: "its time limit was over",
  NODE_FAIL: "a node failed",
  PREEMPTED: "a job of higher priority took its place",
  CANCELLED: "it was cancelled in Slurm",
  OUT_OF_MEMORY: "it used more memory than it may",
  BOOT_FAIL: "its nodes could not be started",
  DEADLINE: "its deadline was over",
  FAILED: "it failed",
  COMPLETED: "it ended without a word about how",
};

/** How a job ended, in words. */
export const endWords = ({ id, state, nodes }: Pick<SlurmJob, "id" | "state" | "nodes">): string =>
  `Slurm job ${id}${nodes === "" ? "" : ` on ${nodes}`} has ended: ${ENDS[state] ?? `its state is ${state}`}`;

/** The state of a node, in words. */
export const describeNode = ({ name, state, reason }: Pick<SlurmNode, "name" | "state" | "reason">): string =>
  `${name} is ${state}${reason === "" ? "" : ` (${reason})`}`;
