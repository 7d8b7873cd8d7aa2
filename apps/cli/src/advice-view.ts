import type {
  ClusterChoice,
  Explanation,
  FieldChange,
  GpuRow,
  LargestSequence,
  SweepAxis,
  SweepRow,
  Term,
  WhyNot,
} from "@internevo/advisor";
import {
  alikeWords,
  formatBytes,
  formatCounted,
  formatInteger,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSigned,
  formatSpan,
  frontSample,
  lowered,
  measuredStandingWords,
  memoryLineName,
  planChanges,
  planLabel,
  REJECTION_WORDS,
  splitTerms,
  sumOfDifferences,
  termName,
  termWords,
  UTILISATION_WORDS,
  withoutTrainer,
  type Candidate,
  type Prediction,
} from "@internevo/domain";
import { table, type Colors, type Column } from "./output.ts";
import { unmetText } from "./unmet-deadline.ts";

const perGpu = ({ tokensPerGpuPerSecond }: Prediction): string => formatRate(tokensPerGpuPerSecond);
const figures = (predicted: Prediction): string =>
  `${formatSeconds(predicted.stepTimeSeconds)} a step, ${formatBytes(predicted.peakMemoryBytes)} a GPU`;
const changesText = (changes: readonly FieldChange[]): string => planChanges(changes);

/** A plan that is not its family's best can be behind all of them. */
export const rankText = (rank: number, of: number): string =>
  rank > of
    ? `behind the best plans of all ${formatCounted(of, "family", "families")}`
    : `rank ${formatInteger(rank)} of ${formatCounted(of, "family", "families")} of plans`;

/** @param gpuBytes what a GPU has, with what a headroom keeps free of it */
export function whyNotText(answer: WhyNot, gpuBytes: number, colors: Colors): string {
  const {
    plan,
    bestOf,
    binding,
    excessBytes,
    predicted,
    notRunnableReason,
    memory,
    smallestChange,
    standing,
    measured,
  } = answer;
  const fits = excessBytes !== null && excessBytes <= 0;
  const sections = [
    `${bestOf === undefined ? "" : `${fits ? "the best of the plans" : "no plan fits; the one that needs least memory"} with ${bestOf}:\n`}${colors.bold(planLabel(plan))}`,
  ];
  if (binding !== null)
    sections.push(
      `${colors.red("rejected")}, ${lowered(REJECTION_WORDS[binding.reason].name)}: ${binding.message}`,
    );
  else if (standing !== null)
    sections.push(
      `${colors.green("feasible")}: by prediction ${rankText(standing.rank, standing.of)}, ` +
        `${predicted ? figures(predicted) : ""}, ${formatBytes(Math.abs(excessBytes ?? 0))} to spare`,
    );
  if (measured !== null) sections.push(measuredStandingWords(measured));
  if (notRunnableReason !== null) sections.push(`Fits in memory. ${withoutTrainer(notRunnableReason)}.`);
  if (memory.length > 0) {
    const columns: Column<(typeof memory)[number]>[] = [
      { title: "MEMORY OF THE FULLEST RANK", value: ({ line }) => memoryLineName(line) },
      { title: "BYTES", align: "right", value: ({ bytes }) => formatBytes(bytes) },
      { title: "OF A GPU", align: "right", value: ({ bytes }) => formatPercent(bytes / gpuBytes) },
    ];
    sections.push(table(columns, memory, colors));
  }
  if (smallestChange !== null)
    sections.push(
      `smallest change that makes it feasible: ${colors.bold(changesText(smallestChange.changes))}\n ` +
        ` ${planLabel(smallestChange.plan)}: ${figures(smallestChange.predicted)}`,
    );
  else if (binding !== null)
    sections.push("no plan of the job is feasible: give it more or larger GPUs, or a shorter sequence");
  if (standing !== null && standing.rank > 1 && predicted !== null) {
    const { best } = standing;
    const faster = predicted.stepTimeSeconds / best.predicted.stepTimeSeconds - 1;
    sections.push(
      `by prediction the best plan is ${formatPercent(faster)} faster: ${changesText(best.changes)}\n  ${planLabel(best.plan)}: ${figures(best.predicted)}\nTerm by term: internevo explain JOB '${planLabel(plan)}' '${planLabel(best.plan)}'`,
    );
  }
  return sections.join("\n\n");
}

export function explanationText(answer: Explanation, colors: Colors): string {
  const { a, b, changes, time, memory, summary } = answer;
  const side = (name: string, { plan, predicted, fits }: Explanation["a"]): string =>
    `${colors.bold(name)}  ${planLabel(plan)}: ${figures(predicted)}, ` +
    `${perGpu(predicted)} tokens/GPU/s${fits ? "" : colors.red(", does not fit")}`;
  const rows = (list: readonly Term[], title: string, format: (value: number) => string): string => {
    const { differing, alike } = splitTerms(list, format);
    const columns: Column<Term>[] = [
      { title, value: ({ name }) => termName(name) },
      { title: "A", align: "right", value: (term) => format(term.a) },
      { title: "B", align: "right", value: (term) => format(term.b) },
      { title: "B − A", align: "right", value: ({ difference }) => formatSigned(difference, format) },
    ];
    const alikeSum = sumOfDifferences(alike);
    const same =
      alike.length === 0
        ? []
        : [
            `${lowered(alikeWords(alike))}${alikeSum === 0 ? "" : ` (${formatSigned(alikeSum, format)} together)`}: ${[
              ...alike,
            ]
              .sort((x, y) => y.a - x.a)
              .map((term) => `${termWords(term.name)} ${format(term.a)}`)
              .join(", ")}`,
          ];
    return [differing.length === 0 ? title : table(columns, differing, colors), ...same].join("\n");
  };
  return [
    `${side("A", a)}\n${side("B", b)}`,
    changes.length === 0 ? "they are the same plan" : `from A to B: ${changesText(changes)}`,
    rows(time, "PREDICTED TIME OF A STEP", formatSeconds),
    rows(memory, "PREDICTED MEMORY OF THE FULLEST RANK", formatBytes),
    summary,
  ].join("\n\n");
}

export function axisValue(axis: SweepAxis, value: number): string {
  if (axis === "memory") return formatBytes(value);
  return axis.endsWith("bandwidth") || axis === "compute-speed" ? `× ${value}` : formatInteger(value);
}

export const sweepText = (axis: SweepAxis, rows: readonly SweepRow[], colors: Colors): string =>
  table<SweepRow>(
    [
      { title: axis.toUpperCase(), align: "right", value: ({ value }) => axisValue(axis, value) },
      ...pointColumns(rows),
    ],
    rows,
    colors,
  );

/** The best plan of the job on each kind of GPU. */
export const gpusText = (rows: readonly GpuRow[], colors: Colors): string =>
  table<GpuRow>(
    [
      { title: "GPU", value: ({ gpu }) => gpu },
      { title: "OF", align: "right", value: ({ memoryPerGpuBytes }) => formatBytes(memoryPerGpuBytes) },
      ...pointColumns(rows),
    ],
    rows,
    colors,
  );

type Point = Omit<SweepRow, "value">;

/** Of the best plan at each point; ranges where the profile says how far off its times may be. */
function pointColumns(rows: readonly Point[]): Column<Point>[] {
  return [
    {
      title: "TOKENS/S",
      align: "right",
      value: ({ best, tokensPerSecond }) => (best === null ? "–" : formatRate(tokensPerSecond)),
    },
    {
      title: "TOKENS/GPU/S",
      align: "right",
      value: ({ best }) => (best === null ? "–" : perGpu(best.predicted)),
    },
    {
      title: "STEP TIME",
      align: "right",
      value: ({ best }) => (best === null ? "–" : formatSeconds(best.predicted.stepTimeSeconds)),
    },
    ...(rows.some(({ best }) => best?.predicted.stepTimeRangeSeconds)
      ? [
          {
            title: "FROM – TO",
            align: "right" as const,
            value: ({ best }: Point) =>
              best?.predicted.stepTimeRangeSeconds
                ? formatSecondsRange(best.predicted.stepTimeRangeSeconds)
                : "–",
          },
        ]
      : []),
    {
      title: UTILISATION_WORDS.mfu.toUpperCase(),
      align: "right",
      value: ({ best }) => (best === null ? "–" : formatPercent(best.predicted.mfu)),
    },
    {
      title: "PEAK MEMORY",
      align: "right",
      value: ({ best }) => (best === null ? "–" : formatBytes(best.predicted.peakMemoryBytes)),
    },
    {
      title: "BEST PLAN",
      below: true,
      value: ({ best, reason }) => (best === null ? `none: ${reason ?? ""}` : planLabel(best.plan)),
    },
  ];
}

function candidatesText(front: readonly Candidate[], colors: Colors): string {
  const columns: Column<Candidate>[] = [
    {
      title: "STEP TIME",
      align: "right",
      value: ({ predicted }) => formatSeconds(predicted.stepTimeSeconds),
    },
    {
      title: "PEAK MEMORY",
      align: "right",
      value: ({ predicted }) => formatBytes(predicted.peakMemoryBytes),
    },
    { title: "TOKENS/GPU/S", align: "right", value: ({ predicted }) => perGpu(predicted) },
    { title: "PLAN", below: true, value: ({ plan }) => planLabel(plan) },
  ];
  return table(columns, front, colors);
}

/** Rows of a front that people read; CSV and JSON have all. */
const MOST_OF_FRONT = 20;

export function frontText(front: readonly Candidate[], colors: Colors): string {
  if (front.length === 0) return "no plan is feasible";
  const shown = frontSample(front, MOST_OF_FRONT);
  const text = candidatesText(shown, colors);
  return shown.length === front.length
    ? text
    : `${text}\n\n${formatInteger(shown.length)} of the ${formatCounted(front.length, "Pareto-optimal plan")}, a step of memory apart; all of them: --csv or --json`;
}

/** "32768 tokens (32k)": as a job writes it, and as people say it. */
function tokensText(tokens: number): string {
  if (tokens < 1024) return formatCounted(tokens, "token");
  const [value, unit] = tokens >= 2 ** 20 ? [tokens / 2 ** 20, "M"] : [tokens / 1024, "k"];
  return `${formatCounted(tokens, "token")} (${Number(value.toFixed(value < 10 ? 2 : 1))}${unit})`;
}

interface LargestSequenceView {
  /** What plans may use of a GPU, and what is kept free beside it. */
  readonly limitBytes: number;
  readonly keptBytes: number;
  /** What keeps it free. */
  readonly keptBy: string;
  /** The batch of the job itself. */
  readonly jobBatchTokens: number;
  readonly colors: Colors;
}

/** Says that the batch is not the job's. */
const batchText = (tokens: number, jobTokens: number): string =>
  `its step is ${tokensText(tokens)}, not the job's ${tokensText(jobTokens)}: --sequences says how many sequences a step has`;

export function largestSequenceText(
  { sequenceLengthTokens, globalBatchTokens, best, next }: LargestSequence,
  { jobBatchTokens, limitBytes, keptBytes, keptBy, colors }: LargestSequenceView,
): string {
  if (best === null && next.leastSequences !== undefined)
    return `${next.reason}\n→ give --sequences ${next.leastSequences}, the fewest that can be divided, or leave more of the plan free`;
  if (best === null) return `not even ${tokensText(next.sequenceLengthTokens)} fit: ${next.reason}`;
  return [
    `longest sequence: ${colors.bold(tokensText(sequenceLengthTokens))}, ` +
      `${planLabel(best.plan)}: ${figures(best.predicted)}`,
    ...(globalBatchTokens === jobBatchTokens ? [] : [batchText(globalBatchTokens, jobBatchTokens)]),
    `at ${tokensText(next.sequenceLengthTokens)}: ${next.reason}`,
    `its plan leaves ${formatBytes(limitBytes - best.predicted.peakMemoryBytes)} of the ${formatBytes(limitBytes)} free: ${keptBytes > 0 ? `${keptBy} keeps another ${formatBytes(keptBytes)} free` : "no headroom is kept; --headroom 5% (or a size) keeps some of each GPU free"}`,
  ].join("\n");
}

export interface ClustersView {
  readonly considered: readonly ClusterChoice[];
  readonly cheapest: ClusterChoice | null;
  /** Numbers of nodes that were looked at, also those without a plan. */
  readonly asked: readonly number[];
  readonly deadlineSeconds: number;
}

export function clustersText(
  { considered, cheapest, asked, deadlineSeconds }: ClustersView,
  colors: Colors,
): string {
  const columns: Column<ClusterChoice>[] = [
    { title: "NODES", align: "right", value: ({ nodes }) => formatInteger(nodes) },
    { title: "GPUS", align: "right", value: ({ gpus }) => formatInteger(gpus) },
    { title: "TIME", align: "right", value: ({ seconds }) => formatSpan(1000 * seconds) },
    { title: "GPU HOURS", align: "right", value: ({ gpuHours }) => formatInteger(gpuHours) },
    ...(considered.some(({ cost }) => cost !== null)
      ? [
          {
            title: "COST",
            align: "right" as const,
            value: ({ cost }: ClusterChoice) => formatInteger(cost ?? 0),
          },
        ]
      : []),
    {
      title: "IN TIME",
      value: (choice) => {
        if (choice === cheapest) return colors.green("cheapest");
        return choice.meetsDeadline ? "yes" : "no";
      },
    },
    { title: "BEST PLAN", below: true, value: ({ best }) => planLabel(best.plan) },
  ];
  const rows = considered.length === 0 ? "" : `${table(columns, considered, colors)}\n\n`;
  return `${rows}${cheapest === null ? unmetText(asked, considered, deadlineSeconds) : `cheapest in time: ${formatCounted(cheapest.nodes, "node")}, ${formatCounted(Math.round(cheapest.gpuHours), "GPU hour")}${cheapest.cost === null ? "" : `, which cost ${formatInteger(cheapest.cost)}`}`}`;
}

const cell = (value: string | number): string =>
  typeof value === "number" || !/[",\n]/.test(value) ? String(value) : `"${value.replaceAll('"', '""')}"`;

/** Rows as CSV (RFC 4180), one line each, with their names first. */
export function csvText(rows: readonly Readonly<Record<string, string | number>>[]): string {
  const names = Object.keys(rows[0] ?? {});
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name] ?? "")).join(","))].join(
    "\n",
  );
}

export const candidateRow = (candidate: Candidate | null): Record<string, string | number> => ({
  stepTimeSeconds: candidate?.predicted.stepTimeSeconds ?? "",
  tokensPerGpuPerSecond: candidate?.predicted.tokensPerGpuPerSecond ?? "",
  mfu: candidate?.predicted.mfu ?? "",
  peakMemoryBytes: candidate?.predicted.peakMemoryBytes ?? "",
  plan: candidate === null ? "" : planLabel(candidate.plan),
});
