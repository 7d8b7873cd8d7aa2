import { termWords } from "@internevo/advisor";
import { CostModel, pipelineStages, planFault, sumLines } from "@internevo/cost-model";
import { chunksOf, formatBytes, planLabel, ProblemError, type JobSpec, type MemoryLines, type Plan, type Profile } from "@internevo/domain";
import { unmeasuredProfile } from "@internevo/frameworks";
import { table, type Colors } from "../output.ts";

/** What the planner counts for a rank of a stage. */
export interface PlannedLines {
  readonly stage: number;
  readonly layers: number;
  readonly memory: MemoryLines;
  readonly plannedPeakBytes: number;
  readonly fits: boolean;
  /** Whether the program itself is in it: a profile has to say it. */
  readonly hasRuntime: boolean;
  /** Why there are no offsets. */
  readonly notPlannedByOffset: string;
}

/**
 * The planner's lines of memory of a plan whose precision the trainer does not run.
 * @param stage null: the fullest.
 * @throws ProblemError `plan-invalid` when the plan's factors do not divide the job.
 */
export function plannedLines(spec: JobSpec, plan: Plan, stage: number | null, profile: Profile | null): PlannedLines {
  const fault = planFault(plan, spec);
  if (fault !== null) throw new ProblemError("plan-invalid", `the plan does not divide the job: ${fault.message}`, [{ field: "--plan", value: planLabel(plan), message: `${fault.reason}: ${fault.message}`, remedy: "ask why-not for the smallest change that makes it feasible" }]);
  const all = new CostModel(spec, profile ?? unmeasuredProfile(spec)).stageMemory(plan);
  const sums = all.map(sumLines);
  const index = stage ?? sums.indexOf(Math.max(...sums));
  const memory = all[index] as MemoryLines;
  const plannedPeakBytes = sums[index] as number;
  const layers = pipelineStages(spec.model, plan.pipelineParallel, chunksOf(plan))[index]?.layers ?? 0;
  return {
    stage: index, layers, memory, plannedPeakBytes, fits: plannedPeakBytes <= spec.cluster.memoryPerGpuBytes, hasRuntime: profile !== null,
    notPlannedByOffset: `The trainer does not run precision ${spec.precision}: nothing is planned by offset. These are the lines that \`internevo plan\` counts, ${profile === null ? "without the program itself, which no profile says, and" : "with the program itself as the profile has it,"} without the staging of checkpoints.`,
  };
}

export interface PlannedLinesView {
  readonly limitBytes: number;
  readonly rank: number | undefined;
  readonly stages: number;
  readonly colors: Colors;
}

export function plannedLinesText({ stage, layers, memory, plannedPeakBytes, fits, notPlannedByOffset }: PlannedLines, { limitBytes, rank, stages, colors }: PlannedLinesView): string {
  const who = rank !== undefined ? `rank ${rank}, stage ${stage}` : stages > 1 ? `stage ${stage}, the fullest` : "every rank";
  const rows = Object.entries(memory).filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]);
  const shown = table<[string, number]>([
    { title: "MEMORY", value: ([line]) => termWords(line) },
    { title: "SIZE", align: "right", value: ([, bytes]) => formatBytes(bytes) },
    { title: "OF A GPU", align: "right", value: ([, bytes]) => `${((100 * bytes) / limitBytes).toFixed(1)}%` },
  ], rows, colors);
  return `${formatBytes(plannedPeakBytes)} of the ${formatBytes(limitBytes)} of a GPU${fits ? "" : colors.red(": it does not fit")}; ${who}: ${layers} layers\n\n${shown}\n\n${notPlannedByOffset}`;
}
