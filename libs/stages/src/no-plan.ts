import {
  formatBytes,
  formatCounted,
  NONE_DIVIDES_REMEDY,
  planLabel,
  rejectionCounts,
  takenByHeadroom,
  termWords,
  tooLittleMemory,
  withoutTrainer,
  type Failure,
  type JobSpec,
  type PlanningResult,
} from "@internevo/domain";
import { trainerFault } from "@internevo/plan";
import { unmetOf } from "@internevo/search";

/** Whether plans divide and fit in a rank's memory, and none in that of the hosts. */
export const exceedsHosts = ({ closest, counts }: PlanningResult): boolean =>
  closest === null && counts.rejected["memory-exceeded"] > 0;

function noRoomOnHosts(spec: JobSpec, result: PlanningResult): Failure {
  const { hostMemoryBytes = 0 } = spec.cluster;
  return {
    code: "no-feasible-plan",
    message: `no plan fits in the memory of its hosts, ${formatBytes(hostMemoryBytes)} a node: those that fit in ${formatBytes(result.memoryLimitBytes)} a rank keep the products of gate and up there`,
    remedy: "give hosts more (cluster.hostMemory), or leave gateUp out of the job's `plan`",
  };
}

/** The published planner leaves plans out whose attention was not measured, though they fit. */
function noTimeKnown(result: PlanningResult): Failure {
  return {
    code: "no-feasible-plan",
    message: `plans fit in ${formatBytes(result.memoryLimitBytes)} a rank, and the time model ${result.timeModel ?? "executor"} knows the time of none: profile ${result.profile} has no attention of their size`,
    remedy:
      "leave timeModel out of the job, or give a profile that has attention of the job's sequence length",
  };
}

/**
 * What to say when nothing fits: what would, and which memory stands in the way. @param uncounted what a rank
 * needs beside what was counted, as a clause; the sum is enough only where there is nothing.
 */
export function noFeasiblePlan(spec: JobSpec, result: PlanningResult, uncounted?: string): Failure {
  const { closest, memoryLimitBytes, unmet } = result;
  if (unmet !== undefined)
    return {
      code: "no-feasible-plan",
      message: unmet,
      remedy: unmetOf(spec)?.remedy ?? "give other values in the job's `plan`, or leave them free",
    };
  if (exceedsHosts(result)) return noRoomOnHosts(spec, result);
  if (!closest) {
    return {
      code: "no-feasible-plan",
      message:
        `none of ${formatCounted(result.counts.evaluated, "plan")} divides ` +
        `as the job asks: ${rejectionCounts(result.counts.rejected)}`,
      remedy: NONE_DIVIDES_REMEDY,
    };
  }
  if (closest.peakMemoryBytes <= memoryLimitBytes) return noTimeKnown(result);
  const [line, bytes] = Object.entries(closest.memory).sort(([, a], [, b]) => b - a)[0] ?? [
    "memory",
    closest.peakMemoryBytes,
  ];
  const least = formatBytes(closest.peakMemoryBytes);
  const atLeast = uncounted === undefined ? least : `at least ${least}`;
  return {
    code: "no-feasible-plan",
    message:
      `no plan fits in ${formatBytes(memoryLimitBytes)} a rank${takenByHeadroom(spec)}; the one that needs the least memory needs ${atLeast}, ` +
      `of which ${termWords(line)} ${formatBytes(bytes)} (${planLabel(closest.plan)}). ` +
      `Why ${formatCounted(result.counts.evaluated, "plan")} ${result.counts.evaluated === 1 ? "was" : "were"} rejected: ` +
      rejectionCounts(result.counts.rejected),
    remedy: moreMemory(spec, closest.peakMemoryBytes, uncounted),
  };
}

function moreMemory(spec: JobSpec, neededBytes: number, uncounted: string | undefined): string {
  const least = formatBytes(neededBytes);
  if (tooLittleMemory(spec, neededBytes) === "headroom")
    return `give a headroom that leaves ${uncounted === undefined ? `${least} or more` : `clearly more than ${least}, because ${uncounted}`}`;
  const enough =
    uncounted === undefined
      ? `${least} or more (cluster.memoryPerGpu: ${neededBytes})`
      : `clearly more than ${least} (cluster.memoryPerGpu), because ${uncounted}`;
  const ranks = spec.cluster.nodes * spec.cluster.gpusPerNode;
  return `give ranks ${enough}; more of them than ${ranks}, or a smaller model or sequence`;
}

/** What to say when plans fit, and the trainer can run none of them. */
export function noRunnablePlan(spec: JobSpec, result: PlanningResult): Failure {
  const fault = trainerFault(spec);
  const reason = fault?.reason ?? result.candidates[0]?.notRunnableReason ?? "no plan that fits";
  return {
    code: "plan-unsupported",
    message: `${formatCounted(result.counts.feasible, "plan")} fit in memory. ${withoutTrainer(reason)}`,
    ...(fault === null ? {} : { remedy: fault.remedy }),
  };
}
