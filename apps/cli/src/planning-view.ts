import {
  estimatesWords,
  formatBytes,
  formatCounted,
  formatInteger,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  memoryLineName,
  noneWithoutTrainer,
  planLabel,
  rankWords,
  rejectionCounts,
  termWords,
  tiedWithFastest,
  tieWords,
  undividedWords,
  UTILISATION_WORDS,
  type Candidate,
  type PlanningResult,
} from "@internevo/domain";
import { table, type Colors, type Column } from "./output.ts";

/** Why none of some plans runs, where that is one reason; it is said once then. */
function commonReason(candidates: readonly Candidate[]): string | null {
  const reasons = new Set(candidates.map(({ notRunnableReason }) => notRunnableReason));
  return reasons.size === 1 ? ([...reasons][0] ?? null) : null;
}

function candidatesTable(candidates: readonly Candidate[], colors: Colors): string {
  const columns: Column<Candidate>[] = [
    { title: "RANK", align: "right", value: ({ rank }) => String(rank) },
    {
      title: "PLAN",
      below: true,
      value: ({ plan, tied }) => `${planLabel(plan)}${tied === undefined ? "" : ` (and ${tied} that tie)`}`,
    },
    {
      title: "STEP TIME",
      align: "right",
      value: ({ predicted }) => formatSeconds(predicted.stepTimeSeconds),
    },
    ...(candidates.some(({ predicted }) => predicted.stepTimeRangeSeconds)
      ? [
          {
            title: "FROM – TO",
            align: "right" as const,
            value: ({ predicted: { stepTimeRangeSeconds: range } }: Candidate) =>
              range ? formatSecondsRange(range) : "",
          },
        ]
      : []),
    {
      title: "TOKENS/GPU/S",
      align: "right",
      value: ({ predicted }) => formatRate(predicted.tokensPerGpuPerSecond),
    },
    {
      title: UTILISATION_WORDS.mfu.toUpperCase(),
      align: "right",
      value: ({ predicted }) => formatPercent(predicted.mfu),
    },
    {
      title: UTILISATION_WORDS.mfuFullAttention.toUpperCase(),
      align: "right",
      spare: 1,
      value: ({ predicted }) => formatPercent(predicted.mfuFullAttention),
    },
    {
      title: "PEAK MEMORY",
      align: "right",
      value: ({ predicted }) => formatBytes(predicted.peakMemoryBytes),
    },
    ...(commonReason(candidates) === null
      ? [
          {
            title: "RUNNABLE",
            value: ({ runnable, notRunnableReason }: Candidate) =>
              runnable ? colors.green("yes") : (notRunnableReason ?? "no"),
          },
        ]
      : []),
  ];
  return table(columns, candidates, colors);
}

/**
 * How many of the best cannot be told from the first by what was measured: the ranges of their times touch
 * its range.
 */
function tiesText(candidates: readonly Candidate[]): string | undefined {
  const ties = tiedWithFastest(
    candidates,
    ({ predicted }) => predicted.stepTimeSeconds,
    ({ predicted }) => predicted.stepTimeRangeSeconds,
  ).length;
  const words = tieWords(ties, candidates.length);
  return words === undefined
    ? undefined
    : `From – to: the step time if every measurement took its 10th percentile, and if every one took its 90th, wider where nothing was measured. ${words}`;
}

/** What a peak is of: the trainer's own plan, as `internevo memory` shows it, holds more and less. */
function memoryNote({ candidates, memoryModel }: PlanningResult): string | undefined {
  const runtime = candidates[0]?.predicted.memory["runtime"];
  if (memoryModel !== "executor" || runtime === undefined) return undefined;
  return (
    `Peak memory includes ${formatBytes(runtime)} of ${termWords("runtime")}, the program itself, as the ` +
    `profile has it. It leaves out ${termWords("checkpointStaging")}, which \`internevo memory\` shows.`
  );
}

function memoryText(memory: Readonly<Record<string, number>>, colors: Colors): string {
  const lines = Object.entries(memory).filter(([, bytes]) => bytes > 0);
  return table(
    [
      { title: "MEMORY LINE", value: ([name]: [string, number]) => memoryLineName(name) },
      { title: "BYTES", align: "right", value: ([, bytes]) => formatBytes(bytes) },
    ],
    lines.sort((a, b) => b[1] - a[1]),
    colors,
  );
}

/**
 * How many plans there were, and what became of them. How many are skipped depends on how many are asked for,
 * and so does how many fit.
 */
export const countsText = ({ evaluated, feasible, pruned = 0 }: PlanningResult["counts"]): string =>
  pruned > 0
    ? `${formatCounted(evaluated, "plan")}: ${formatInteger(feasible)} were examined and fit; ${formatInteger(pruned)} were skipped, because the listed plans are faster`
    : `${formatCounted(evaluated, "plan")}: ${formatInteger(feasible)} fit`;

/** What people read of a planning result. */
export function planningText(result: PlanningResult, colors: Colors): string {
  const { counts, candidates, runnableCandidates, located, closest } = result;
  const rejected = rejectionCounts(counts.rejected);
  const sections = [
    `${colors.bold(result.job)}: profile ${result.profile}, memory model ` +
      `${result.memoryModel}, ${result.timeModel === undefined ? "" : `time model ${result.timeModel}, `}${formatBytes(result.memoryLimitBytes)} a GPU`,
    `${countsText(counts)}${rejected === "" ? "" : `; rejected: ${rejected}`}`,
  ];
  const listed = result.plans ?? candidates;
  if (listed.length > 0) sections.push(candidatesTable(listed, colors));
  if (result.plans !== undefined && listed.length > 0)
    sections.push(
      "Single plans, whatever their family. Other commands name plans by the ranks of families, which `--show families` lists.",
    );
  const reason = commonReason(listed);
  const notes = [
    result.documents,
    reason === null
      ? undefined
      : `${noneWithoutTrainer(reason)}. \`internevo export\` writes them for other frameworks.`,
    memoryNote(result),
  ];
  sections.push(...notes.filter((note) => note !== undefined));
  const ties = tiesText(listed);
  if (ties !== undefined) sections.push(ties);
  if (candidates.length > 0 && result.estimates) sections.push(estimatesWords(result.estimates));
  if (
    result.plans === undefined &&
    runnableCandidates.length > 0 &&
    candidates.some((candidate) => !candidate.runnable)
  ) {
    sections.push(
      `best of the plans that InternEvo's own trainer can run:\n${candidatesTable(runnableCandidates, colors)}`,
    );
  }
  if (closest) {
    sections.push(
      `no plan fits. The one that needs the least memory, ${planLabel(closest.plan)}, ` +
        `needs ${formatBytes(closest.peakMemoryBytes)}:\n${memoryText(closest.memory, colors)}`,
    );
  } else if (counts.feasible === 0) {
    const { message = "no plan fits, for the reasons above", remedy } = undividedWords(result) ?? {};
    sections.push(remedy === undefined ? message : `${message}\n    → ${remedy}`);
  }
  if (located) {
    const { rank, reason, predicted } = located;
    const where = rank === null ? `is rejected: ${reason ?? "unknown"}` : `is ${rankWords(rank)}`;
    const figures = predicted
      ? ` (${formatSeconds(predicted.stepTimeSeconds)} a step, ${formatBytes(predicted.peakMemoryBytes)})`
      : "";
    sections.push(`the given plan ${where}${figures}`);
  }
  return sections.join("\n\n");
}
