import type { ImportedConfiguration, Inexpressible } from "@internevo/frameworks";
import { describeJob, formatBytes, formatSeconds, planLabel, printableJson, type JobSpec, type PlanningResult, type Prediction } from "@internevo/domain";
import type { Colors } from "./output.ts";

const shown = (value: unknown): string => (typeof value === "string" ? value : printableJson(value));

/** A line for each thing that a framework cannot say. */
export const inexpressibleText = (all: readonly Inexpressible[]): string[] =>
  all.map(({ field, value, nearest, reason }) => (value === nearest ? `not exactly: ${field} ${shown(value)}: ${reason}` : `not expressible: ${field} ${shown(value)}, written as ${shown(nearest)}: ${reason}`));

const figures = ({ stepTimeSeconds, tokensPerGpuPerSecond, peakMemoryBytes, mfu }: Prediction): string =>
  `${formatSeconds(stepTimeSeconds)} a step, ${tokensPerGpuPerSecond.toFixed(tokensPerGpuPerSecond < 100 ? 1 : 0)} tokens/GPU/s, ${formatBytes(peakMemoryBytes)} a GPU, MFU ${(mfu * 100).toFixed(1)}%`;

/** What was read, what its plan needs and takes, and what would be better. */
export function importText(imported: ImportedConfiguration, job: JobSpec, { located, candidates, counts }: PlanningResult, colors: Colors): string {
  const label = planLabel(imported.plan);
  const sections = [`${colors.bold(label)}\n${describeJob(job)}; read as of ${imported.version}`];
  if (imported.takenAs.length > 0) sections.push(imported.takenAs.map(({ option, value, as }) => `${option} ${shown(value)} is taken as ${as}`).join("\n"));
  if (imported.ignored.length > 0) sections.push(`without effect on time and memory: ${imported.ignored.join(", ")}`);
  const [best] = candidates;
  const predicted = located?.predicted ?? null;
  if (located?.feasible === true && predicted !== null) sections.push(`${colors.green("feasible")}: rank ${located.rank ?? "?"} of ${counts.feasible} plans: ${figures(predicted)}`);
  else sections.push(`${colors.red("does not run")}: ${located?.reason ?? "its plan is not one of the job's"}${predicted === null ? "" : `\n${figures(predicted)}`}`);
  if (best === undefined) sections.push("no plan of this job is feasible on this cluster");
  else if (planLabel(best.plan) !== label) {
    const gain = predicted === null ? null : predicted.stepTimeSeconds / best.predicted.stepTimeSeconds - 1;
    const faster = gain === null ? "" : gain < 0.0005 ? ", which takes as long" : `, ${(gain * 100).toFixed(1)}% faster`;
    sections.push(`the best plan${faster}: ${planLabel(best.plan)}\n${figures(best.predicted)}`);
  }
  return sections.join("\n\n");
}
