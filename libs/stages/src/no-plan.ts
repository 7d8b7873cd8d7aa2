import { formatBytes, planLabel, type Failure, type JobSpec, type PlanningResult } from "@internevo/domain";

/** Reasons of rejection, most frequent first, for people. */
const reasonsOf = (result: PlanningResult): string =>
  Object.entries(result.counts.rejected)
    .filter(([, count]) => count > 0)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, count]) => `${reason} ${count}`)
    .join(", ");

/** What to say when nothing fits: what would, and which memory stands in the way. */
export function noFeasiblePlan(spec: JobSpec, result: PlanningResult): Failure {
  const { closest, memoryLimitBytes } = result;
  if (!closest) {
    return {
      code: "no-feasible-plan",
      message: `none of ${result.counts.evaluated} plans divides as the job asks: ${reasonsOf(result)}`,
      remedy: "change globalBatchTokens, sequenceLengthTokens or model.heads so that they divide over the cluster's ranks, or use a different number of ranks",
    };
  }
  const [line, bytes] = Object.entries(closest.memory).sort(([, a], [, b]) => b - a)[0] ?? ["memory", closest.peakMemoryBytes];
  return {
    code: "no-feasible-plan",
    message:
      `none of ${result.counts.evaluated} plans fits in ${formatBytes(memoryLimitBytes)} a rank (${reasonsOf(result)}); ` +
      `the closest, ${planLabel(closest.plan)}, needs ${formatBytes(closest.peakMemoryBytes)}, of it ${formatBytes(bytes)} for ${line}`,
    remedy: `give ranks ${formatBytes(closest.peakMemoryBytes)} or more (cluster.memoryPerGpu: ${closest.peakMemoryBytes}), more of them than ${spec.cluster.nodes * spec.cluster.gpusPerNode}, or a smaller model or sequence`,
  };
}

/** What to say when plans fit, and the executor runs none of them yet. */
export function noRunnablePlan(result: PlanningResult): Failure {
  const best = result.candidates[0];
  return {
    code: "plan-unsupported",
    message: `${result.counts.feasible} plans fit, and the executor runs none of them yet${best ? `: the best, ${planLabel(best.plan)}, ${best.notRunnableReason ?? "is not runnable"}` : ""}`,
    remedy: "use more memory or more ranks so that a plan without pipeline and tensor parallelism fits, or a precision that the executor runs",
  };
}
