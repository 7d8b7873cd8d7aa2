import type { ImportedConfiguration, Inexpressible, WrittenPrediction } from "@internevo/frameworks";
import {
  describeJob,
  formatBytes,
  formatPercent,
  formatRate,
  formatSeconds,
  launchWords,
  planLabel,
  printable,
  printableJson,
  UTILISATION_WORDS,
  withoutTrainer,
  type JobSpec,
  type PlanningResult,
  type Prediction,
} from "@internevo/domain";
import { isRunnable } from "@internevo/plan";
import { rankText } from "./advice-view.ts";
import type { Colors } from "./output.ts";

/** What a file says may be anything, and a terminal obeys some of it. */
const shown = (value: unknown): string =>
  typeof value === "string" ? printable(value) : printableJson(value);

/** A line for each thing that a framework cannot say. */
export const inexpressibleText = (all: readonly Inexpressible[]): string[] =>
  all.map(({ field, value, nearest, reason }) =>
    value === nearest
      ? `not exactly: ${field} ${shown(value)}: ${reason}`
      : `not expressible: ${field} ${shown(value)}, written as ${shown(nearest)}: ${reason}`,
  );

const figures = ({ stepTimeSeconds, tokensPerGpuPerSecond, peakMemoryBytes, mfu }: Prediction): string =>
  `${formatSeconds(stepTimeSeconds)} a step, ${formatRate(tokensPerGpuPerSecond)} tokens/GPU/s, ` +
  `${formatBytes(peakMemoryBytes)} a GPU, ${formatPercent(mfu)} ${UTILISATION_WORDS.mfu}`;

/**
 * How the best plan's time is beside the one that was read; the latter's overlap may be one that is not
 * searched, so it may be faster.
 */
function besideText(read: Prediction, best: Prediction): string {
  const ratio = read.stepTimeSeconds / best.stepTimeSeconds;
  if (Math.abs(ratio - 1) < 0.0005) return ", which takes as long";
  return ratio > 1 ? `, ${formatPercent(ratio - 1)} faster` : `, ${formatPercent(1 / ratio - 1)} slower`;
}

/** What a written configuration needs, and a warning where that is more than there is. */
export function writtenText(
  { stepTimeSeconds, peakMemoryBytes, memoryLimitBytes, fits, runtimeBytes }: WrittenPrediction,
  colors: Colors,
): string[] {
  const lines = [
    `as it is written: ${stepTimeSeconds === null ? "" : `${formatSeconds(stepTimeSeconds)} a step, `}${formatBytes(peakMemoryBytes)} a GPU${runtimeBytes === null ? ", without the program itself, which no profile says" : ""}`,
  ];
  if (!fits)
    lines.push(
      `${colors.red("warning")}: as it is written it does not fit: it needs ${formatBytes(peakMemoryBytes)} a GPU, ${formatBytes(peakMemoryBytes - memoryLimitBytes)} more than the ${formatBytes(memoryLimitBytes)} it has; choose another plan with --plan, or another framework`,
    );
  return lines;
}

/** What was read, what its plan needs and takes, and what would be better. */
export function importText(
  imported: ImportedConfiguration,
  job: JobSpec,
  { located, candidates }: PlanningResult,
  families: number,
  colors: Colors,
): string {
  const label = planLabel(imported.plan);
  const sections = [
    `${colors.bold(label)}\n${describeJob(job)}; read ` +
      `${launchWords(imported.launch, imported.launchOrigin)}, as of ${imported.version}`,
  ];
  if (imported.warnings.length > 0)
    sections.push(
      imported.warnings
        .map(
          ({ field, value, message, remedy }) =>
            `${colors.red("warning")}: ${field} ${shown(value)} ${message}; ${remedy}`,
        )
        .join("\n"),
    );
  if (imported.takenAs.length > 0)
    sections.push(
      imported.takenAs
        .map(({ option, value, as }) => `${option} ${shown(value)} is taken as ${as}`)
        .join("\n"),
    );
  if (imported.ignored.length > 0)
    sections.push(`without effect on time and memory: ${imported.ignored.join(", ")}`);
  const [best] = candidates;
  const predicted = located?.predicted ?? null;
  if (located?.feasible === true && predicted !== null)
    sections.push(
      `${colors.green("feasible")}: ${rankText(located.rank ?? Number.NaN, families)}: ${figures(predicted)}`,
    );
  else
    sections.push(
      `${colors.red("cannot run")}: ${located?.reason ?? "its plan is not one of the job's"}${predicted === null ? "" : `\n${figures(predicted)}`}`,
    );
  const { reason } = isRunnable(imported.plan, job);
  if (located?.feasible === true && reason !== null)
    sections.push(`Fits in memory. ${withoutTrainer(reason)}.`);
  if (best === undefined) sections.push("no plan of this job is feasible on this cluster");
  else if (planLabel(best.plan) !== label) {
    const fits = located?.feasible === true;
    const text = predicted === null ? "" : besideText(predicted, best.predicted);
    const beside = fits
      ? text
      : text
          .replace(/(slower|faster)$/, "$1 than this one would be if it fitted")
          .replace("takes as long", "would take as long if this one fitted");
    sections.push(
      `the best plan${fits ? "" : " that fits"}${beside}: ${planLabel(best.plan)}\n${figures(best.predicted)}`,
    );
  }
  return sections.join("\n\n");
}
