import {
  isExact,
  type ImportedConfiguration,
  type Inexpressible,
  type PredictedConfiguration,
  type WrittenPrediction,
} from "@internevo/frameworks";
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
  verdictDoubt,
  withoutDefaults,
  withoutTrainer,
  type JobSpec,
  type Plan,
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

/** The plan that the framework can say and that is better than what is written, or that it can say none. */
function offeredText({ framework, plan, best }: PredictedConfiguration): string[] {
  if (best === undefined) return [];
  if (best === null)
    return [`no plan of the job that fits can be said in ${framework}'s words; choose another framework`];
  const label = planLabel(best.plan);
  if (label === planLabel(plan)) return [`no plan that ${framework} can say is faster`];
  return [
    `the best plan that ${framework} can say: ${label}: ${writtenFigures(best)}; write it with --plan '${label}'`,
  ];
}

const writtenFigures = ({ stepTimeSeconds, peakMemoryBytes, runtimeBytes }: WrittenPrediction): string =>
  `${stepTimeSeconds === null ? "" : `${formatSeconds(stepTimeSeconds)} a step, `}${formatBytes(peakMemoryBytes)} a GPU${runtimeBytes === null ? ", without the program itself, which no profile says" : ""}`;

/**
 * What a written configuration needs, a warning where that is more than there is, and what would be better.
 * @param asked the plan that it was to say
 */
export function writtenText(written: PredictedConfiguration, asked: Plan, colors: Colors): string[] {
  const { predicted, best, plan } = written;
  const { peakMemoryBytes, memoryLimitBytes, fits } = predicted;
  const lines = [`as it is written: ${writtenFigures(predicted)}`];
  const isOther = planLabel(withoutDefaults(asked)) !== planLabel(plan) && isExact(written);
  if (isOther)
    lines.unshift(
      `the best plan of all, ${planLabel(asked)}, cannot be said in ${written.framework}'s words; written is the best that can: ${planLabel(plan)}`,
    );
  if (!fits)
    lines.push(
      `${colors.red("warning")}: as it is written it does not fit: it needs ${formatBytes(peakMemoryBytes)} a GPU, ${formatBytes(peakMemoryBytes - memoryLimitBytes)} more than the ${formatBytes(memoryLimitBytes)} it has${best ? "" : "; choose another plan with --plan, or another framework"}`,
    );
  return [...lines, ...offeredText(written)];
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
  const doubt = predicted === null ? null : verdictDoubt(imported.takenAs, located?.feasible === true);
  if (doubt !== null) sections.push(doubt);
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
