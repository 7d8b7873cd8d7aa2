import { formatInteger, type JobSpec, type ProblemDetail } from "@internevo/domain";

/** A run that is to look for better plans, and is over before it may. */
export function replanningWarnings({
  replanning,
  steps,
}: Pick<JobSpec, "replanning" | "steps">): ProblemDetail[] {
  if (replanning === undefined || replanning.notInLastSteps < steps) return [];
  return [
    {
      field: "replanning.notInLastSteps",
      value: replanning.notInLastSteps,
      message: `is no less than the job's ${formatInteger(steps)} steps: its plan is never changed`,
      remedy: "give fewer steps, or leave replanning out",
    },
  ];
}
