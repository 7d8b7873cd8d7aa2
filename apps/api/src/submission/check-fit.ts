import { shippedProfile } from "@internevo/cost-model";
import { ProblemError, writeBytes, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
import { pinnedFault, pinnedPlan } from "@internevo/plan";
import { noFeasiblePlan } from "@internevo/stages";

/**
 * A profile of whose figures memory takes the program's own alone, and that is none here: plans need no less
 * on any cluster.
 */
let leastMemory: Profile | undefined;
export function leastMemoryProfile(): Profile {
  if (leastMemory) return leastMemory;
  const profile = shippedProfile("a800-128");
  return (leastMemory = { ...profile, device: { ...profile.device, runtimeBytes: 0 } });
}

/**
 * Refuses a job that no plan fits, which needs no measurement to be known.
 * @param result of a search with {@link leastMemoryProfile}; null where it would have taken long.
 * @throws ProblemError `no-feasible-plan`
 */
export function assertFits(spec: JobSpec, result: PlanningResult | null): void {
  if (result === null || result.counts.feasible > 0) return;
  const fault = pinnedFault(spec);
  if (fault !== null) {
    const { field, message, remedy } = fault;
    throw new ProblemError("no-feasible-plan", "the job's plan does not divide the job", [
      { field: `plan.${field}`, value: pinnedPlan(spec)?.[field], message, remedy },
    ]);
  }
  const { message, remedy = "change the job" } = noFeasiblePlan(spec, result);
  if (result.unmet !== undefined)
    throw new ProblemError("no-feasible-plan", "no plan is as the job's plan asks", [
      { field: "plan", message, remedy },
    ]);
  throw new ProblemError("no-feasible-plan", message, [
    {
      field: result.closest ? "cluster.memoryPerGpu" : "cluster.gpusPerNode",
      value: result.closest ? writeBytes(spec.cluster.memoryPerGpuBytes) : spec.cluster.gpusPerNode,
      message,
      remedy,
    },
  ]);
}
