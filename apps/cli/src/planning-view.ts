import { termWords } from "@internevo/advisor";
import { formatBytes, formatSeconds, planLabel, type Candidate, type PlanningResult } from "@internevo/domain";
import { table, type Colors, type Column } from "./output.ts";

const percent = (fraction: number): string => `${(fraction * 100).toFixed(1)}%`;

/** Why none of some plans runs, where that is one reason; it is said once then. */
function commonReason(candidates: readonly Candidate[]): string | null {
  const reasons = new Set(candidates.map(({ notRunnableReason }) => notRunnableReason));
  return reasons.size === 1 ? ([...reasons][0] ?? null) : null;
}

function candidatesTable(candidates: readonly Candidate[], colors: Colors): string {
  const columns: Column<Candidate>[] = [
    { title: "RANK", align: "right", value: ({ rank }) => String(rank) },
    { title: "PLAN", below: true, value: ({ plan, tied }) => `${planLabel(plan)}${tied === undefined ? "" : ` (and ${tied} that tie)`}` },
    { title: "STEP TIME", align: "right", value: ({ predicted }) => formatSeconds(predicted.stepTimeSeconds) },
    ...(candidates.some(({ predicted }) => predicted.stepTimeRangeSeconds) ? [{ title: "FROM – TO", align: "right" as const, value: ({ predicted: { stepTimeRangeSeconds: range } }: Candidate) => (range ? `${formatSeconds(range.low)} – ${formatSeconds(range.high)}` : "") }] : []),
    { title: "TOKENS/GPU/S", align: "right", value: ({ predicted }) => predicted.tokensPerGpuPerSecond.toFixed(predicted.tokensPerGpuPerSecond < 100 ? 1 : 0) },
    { title: "MFU", align: "right", value: ({ predicted }) => percent(predicted.mfu) },
    { title: "MFU, FULL ATTENTION", align: "right", value: ({ predicted }) => percent(predicted.mfuFullAttention) },
    { title: "PEAK MEMORY", align: "right", value: ({ predicted }) => formatBytes(predicted.peakMemoryBytes) },
    ...(commonReason(candidates) === null ? [{ title: "RUNNABLE", value: ({ runnable, notRunnableReason }: Candidate) => (runnable ? colors.green("yes") : (notRunnableReason ?? "no")) }] : []),
  ];
  return table(columns, candidates, colors);
}

/** How many of the best cannot be told from the first by what was measured: the ranges of their times touch its range. */
function tiesText(candidates: readonly Candidate[]): string | undefined {
  const most = candidates[0]?.predicted.stepTimeRangeSeconds?.high;
  if (most === undefined) return undefined;
  const ties = candidates.filter(({ predicted }) => (predicted.stepTimeRangeSeconds?.low ?? Infinity) <= most).length;
  return ties > 1 ? `From – to: every measurement at its 10th and at its 90th percentile. The ranges of ${ties} of these ${candidates.length} touch the first one's: only trials tell them apart.` : undefined;
}

/** What a peak is of: the trainer's own plan, as `internevo memory` shows it, holds more and less. */
function memoryNote({ candidates, memoryModel }: PlanningResult): string | undefined {
  const runtime = candidates[0]?.predicted.memory["runtime"];
  if (memoryModel !== "executor" || runtime === undefined) return undefined;
  return `Peak memory is with ${formatBytes(runtime)} of the program itself, as the profile has it, and without the staging of checkpoints, which \`internevo memory\` shows.`;
}

function memoryText(memory: Readonly<Record<string, number>>, colors: Colors): string {
  const lines = Object.entries(memory).filter(([, bytes]) => bytes > 0);
  return table([{ title: "MEMORY LINE", value: ([name]: [string, number]) => termWords(name) }, { title: "BYTES", align: "right", value: ([, bytes]) => formatBytes(bytes) }], lines.sort((a, b) => b[1] - a[1]), colors);
}

/** What people read of a planning result. */
export function planningText(result: PlanningResult, colors: Colors): string {
  const { counts, candidates, runnableCandidates, located, closest } = result;
  const rejected = Object.entries(counts.rejected).filter(([, count]) => count > 0);
  const sections = [
    `${colors.bold(result.job)}: profile ${result.profile}, memory model ${result.memoryModel}, ${formatBytes(result.memoryLimitBytes)} a GPU`,
    `${counts.evaluated} plans, ${counts.feasible} feasible${(counts.pruned ?? 0) > 0 ? ` among those worth a look, ${counts.pruned} slower by a bound` : ""}${rejected.length > 0 ? `; rejected: ${rejected.map(([reason, count]) => `${count} ${reason}`).join(", ")}` : ""}`,
  ];
  if (candidates.length > 0) sections.push(candidatesTable(candidates, colors));
  const notes = [commonReason(candidates) === null || candidates.length === 0 ? undefined : `None of these runs: ${commonReason(candidates) ?? ""}.`, memoryNote(result)];
  sections.push(...notes.filter((note) => note !== undefined));
  const ties = tiesText(candidates);
  if (ties !== undefined) sections.push(ties);
  if (runnableCandidates.length > 0 && candidates.some((candidate) => !candidate.runnable)) {
    sections.push(`best of the plans that run today:\n${candidatesTable(runnableCandidates, colors)}`);
  }
  if (closest) {
    sections.push(`no plan fits. The one that needs the least memory, ${planLabel(closest.plan)}, needs ${formatBytes(closest.peakMemoryBytes)}:\n${memoryText(closest.memory, colors)}`);
  } else if (counts.feasible === 0) {
    sections.push("no plan divides the job over the cluster: see the reasons above");
  }
  if (located) {
    const { rank, reason, predicted } = located;
    const where = rank === null ? `is rejected: ${reason ?? "unknown"}` : `is rank ${rank}: the best plans of ${rank - 1} families are ahead of it`;
    const figures = predicted ? ` (${formatSeconds(predicted.stepTimeSeconds)} a step, ${formatBytes(predicted.peakMemoryBytes)})` : "";
    sections.push(`the given plan ${where}${figures}`);
  }
  return sections.join("\n\n");
}
