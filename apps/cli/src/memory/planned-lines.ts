import { CostModel, pipelineStages, sumLines } from "@internevo/cost-model";
import {
  chunksOf,
  formatBytes,
  formatCounted,
  formatPercent,
  memoryLineName,
  type JobSpec,
  type MemoryLines,
  type Profile,
} from "@internevo/domain";
import { unmeasuredProfile } from "@internevo/frameworks";
import type { PlanOfJob } from "@internevo/plan";
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
 */
export function plannedLines(
  spec: JobSpec,
  plan: PlanOfJob,
  stage: number | null,
  profile: Profile | null,
): PlannedLines {
  const all = new CostModel(spec, profile ?? unmeasuredProfile(spec)).stageMemory(plan);
  const sums = all.map(sumLines);
  const index = stage ?? sums.indexOf(Math.max(...sums));
  const memory = all[index] as MemoryLines;
  const plannedPeakBytes = sums[index] as number;
  const layers = pipelineStages(spec.model, plan.pipelineParallel, chunksOf(plan))[index]?.layers ?? 0;
  return {
    stage: index,
    layers,
    memory,
    plannedPeakBytes,
    fits: plannedPeakBytes <= spec.cluster.memoryPerGpuBytes,
    hasRuntime: profile !== null,
    notPlannedByOffset: `The trainer does not run precision ${spec.precision}: nothing is planned by offset. These are the lines that \`internevo plan\` counts, ${profile === null ? "without the program itself, which no profile says, and" : "with the program itself as the profile has it,"} without the staging of checkpoints.`,
  };
}

export interface PlannedLinesView {
  readonly limitBytes: number;
  readonly rank: number | undefined;
  readonly stages: number;
  readonly colors: Colors;
}

/** Whose memory is shown: of the stage that is the fullest, or of a rank that was asked for. */
export function whoseMemory(stages: number, rank: number | undefined, stage: number): string {
  if (rank !== undefined) return `rank ${rank}, stage ${stage}`;
  return stages > 1 ? `stage ${stage}, the fullest` : "every rank";
}

export function plannedLinesText(
  { stage, layers, memory, plannedPeakBytes, fits, notPlannedByOffset }: PlannedLines,
  { limitBytes, rank, stages, colors }: PlannedLinesView,
): string {
  const who = whoseMemory(stages, rank, stage);
  const rows = Object.entries(memory)
    .filter(([, bytes]) => bytes > 0)
    .sort((a, b) => b[1] - a[1]);
  const shown = table<[string, number]>(
    [
      { title: "MEMORY", value: ([line]) => memoryLineName(line) },
      { title: "SIZE", align: "right", value: ([, bytes]) => formatBytes(bytes) },
      { title: "OF A GPU", align: "right", value: ([, bytes]) => formatPercent(bytes / limitBytes) },
    ],
    rows,
    colors,
  );
  return `${formatBytes(plannedPeakBytes)} of the ${formatBytes(limitBytes)} of a GPU${fits ? "" : colors.red(": it does not fit")}; ${who}: ${formatCounted(layers, "layer")}\n\n${shown}\n\n${notPlannedByOffset}`;
}
