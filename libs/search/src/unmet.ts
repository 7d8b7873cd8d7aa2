import type { JobSpec, PlanConstraints } from "@internevo/domain";
import { clusterRanks, countRecomputed, layoutsOf, pinnedFault, shardingsOf } from "@internevo/plan";

/** Whether the space of a job has any plan, divided or not. */
function hasAny(job: JobSpec): boolean {
  for (const { replicas, microBatchSizes, chunks, recomputed } of layoutsOf(job)) {
    if (
      microBatchSizes?.length !== 0 &&
      chunks.length > 0 &&
      countRecomputed(recomputed) > 0 &&
      shardingsOf(replicas, job).length > 0
    )
      return true;
  }
  return false;
}

const listed = (words: readonly string[], last: string): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1) ?? ""}`;
const shown = (plan: PlanConstraints, field: string): string =>
  `${field} ${[plan[field as keyof PlanConstraints]].flat().map(String).join(" or ")}`;

/**
 * Why no plan meets what a job's `plan` asks for, and which part of it stands in the way; undefined where one
 * does.
 */
export function unmetConstraints(job: JobSpec): string | undefined {
  const { plan } = job;
  if (plan === undefined || hasAny(job)) return undefined;
  const fault = pinnedFault(job);
  if (fault !== null) return `the job's plan does not divide it: ${fault.message}; ${fault.remedy}`;
  const fields = Object.keys(plan);
  const free = fields.filter((field) =>
    hasAny({ ...job, plan: Object.fromEntries(Object.entries(plan).filter(([name]) => name !== field)) }),
  );
  const remedy =
    free.length === 0
      ? "no one of them alone stands in the way"
      : `there are plans without ${listed(free, "or without")}`;
  return `no plan of ${clusterRanks(job)} ranks has ${listed(
    fields.map((field) => shown(plan, field)),
    "and",
  )}${fields.length > 1 ? " together" : ""}: ${remedy}`;
}
