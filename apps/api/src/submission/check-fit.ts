import { shippedProfile } from "@internevo/cost-model";
import { ProblemError, writeBytes, type JobSpec, type PlanningResult, type Profile } from "@internevo/domain";
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
  const { message, remedy = "change the job" } = noFeasiblePlan(spec, result);
  throw new ProblemError("no-feasible-plan", message, [
    {
      field: result.closest ? "cluster.memoryPerGpu" : "cluster.gpusPerNode",
      value: result.closest ? writeBytes(spec.cluster.memoryPerGpuBytes) : spec.cluster.gpusPerNode,
      message,
      remedy,
    },
  ]);
}
