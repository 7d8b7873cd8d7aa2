import type { ClusterChoice, SweepAxis, SweepRow } from "@internevo/advisor";
import {
  formatBytes,
  formatCounted,
  formatRate,
  formatSeconds,
  formatTokens as tokens,
  planLabel,
  plannedMemoryBytes,
  type Candidate,
  type JobSpec,
} from "@internevo/domain";
import { axisValue } from "./advice-view.ts";
import { chartSvg, spansDecade, type ChartPoint } from "./chart.ts";

const AXIS_WORDS: Readonly<Record<SweepAxis, string>> = {
  sequence: "sequence length, tokens",
  nodes: "nodes",
  batch: "tokens of a step",
  memory: "memory of a GPU",
  "intra-node-bandwidth": "bandwidth inside a node, of the measured",
  "inter-node-bandwidth": "bandwidth between nodes, of the measured",
  "compute-speed": "speed of computation, of the measured",
};

const grouped = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

const GIB = 2 ** 30;
const gibibytes = (value: number): string => `${value} GiB`;

const about = ({ plan, predicted }: Candidate): string =>
  `${planLabel(plan)}\n${formatSeconds(predicted.stepTimeSeconds)} a step, ${formatRate(predicted.tokensPerGpuPerSecond)} tokens/GPU/s, ${formatBytes(predicted.peakMemoryBytes)}`;
const model = (job: JobSpec): string =>
  `${job.model.name}, ${job.cluster.nodes} × ${job.cluster.gpusPerNode} GPUs`;

/** What a sweep leaves as it is in the job. */
function heldText(
  { sequenceLengthTokens, globalBatchTokens, cluster: { nodes, gpusPerNode } }: JobSpec,
  axis: SweepAxis,
): string {
  const held = [
    ...(axis === "sequence" ? [] : [`${tokens(sequenceLengthTokens)} tokens a sequence`]),
    ...(axis === "batch" ? [] : [`${tokens(globalBatchTokens)} tokens a step`]),
    axis === "nodes" ? `${gpusPerNode} GPUs a node` : `${nodes} × ${gpusPerNode} GPUs`,
  ];
  return `predicted; ${held.join(", ")}`;
}

/** The best plan along an axis: its rate, and its memory. */
export function sweepChart(job: JobSpec, axis: SweepAxis, rows: readonly SweepRow[]): string {
  const format = (value: number): string =>
    axis === "sequence" || axis === "batch" ? tokens(value) : axisValue(axis, value);
  const points = (of: (best: Candidate) => number): ChartPoint[] =>
    [...rows]
      .sort((a, b) => a.value - b.value)
      .map(({ value, best, reason }) => ({
        x: value,
        y: best === null ? null : of(best),
        title: `${format(value)}: ${best === null ? (reason ?? "no plan") : about(best)}`,
      }));
  return chartSvg({
    title: `${job.model.name}: the best plan by ${AXIS_WORDS[axis].replace(/,.*/, "")}`,
    subtitle: heldText(job, axis),
    xLabel: AXIS_WORDS[axis],
    formatX: format,
    xTicks: rows.map(({ value }) => value),
    logX: true,
    panels: [
      {
        label: "tokens a GPU and second",
        points: points(({ predicted }) => predicted.tokensPerGpuPerSecond),
        format: (value) => grouped.format(value),
      },
      {
        label: "peak memory of the fullest GPU",
        points: points(({ predicted }) => predicted.peakMemoryBytes / GIB),
        format: gibibytes,
        ...(axis === "memory"
          ? {}
          : { limit: { value: plannedMemoryBytes(job) / GIB, label: "what plans may use" } }),
      },
    ],
  });
}

/** Step time over memory of the Pareto-optimal plans. */
export function paretoChart(job: JobSpec, front: readonly Candidate[]): string {
  const points = [...front]
    .sort((a, b) => a.predicted.peakMemoryBytes - b.predicted.peakMemoryBytes)
    .map((candidate) => ({
      x: candidate.predicted.peakMemoryBytes / GIB,
      y: candidate.predicted.stepTimeSeconds,
      title: about(candidate),
    }));
  return chartSvg({
    title: `${job.model.name}: time against memory`,
    subtitle:
      `predicted; ${model(job)}, ${tokens(job.sequenceLengthTokens)} ` +
      "tokens a sequence; the Pareto-optimal plans",
    xLabel: "peak memory of the fullest GPU",
    formatX: gibibytes,
    logX: spansDecade(points[0]?.x ?? 1, points.at(-1)?.x ?? 1),
    panels: [
      {
        label: "time of a step, seconds",
        points,
        format: (value) => grouped.format(value),
        steps: true,
        logWhereWide: true,
      },
    ],
  });
}

/** Time and GPU hours by the size of the cluster. */
export function clustersChart(
  job: JobSpec,
  considered: readonly ClusterChoice[],
  deadlineSeconds: number,
): string {
  const points = (of: (choice: ClusterChoice) => number): ChartPoint[] =>
    considered.map((choice) => ({
      x: choice.gpus,
      y: of(choice),
      title: `${formatCounted(choice.gpus, "GPU")}: ${about(choice.best)}`,
    }));
  return chartSvg({
    title: `${job.model.name}: time and cost by cluster`,
    subtitle: `predicted; ${tokens(job.sequenceLengthTokens)} tokens a sequence`,
    xLabel: "GPUs",
    formatX: String,
    xTicks: considered.map(({ gpus }) => gpus),
    logX: true,
    panels: [
      {
        label: "time of the training, hours",
        points: points(({ seconds }) => seconds / 3600),
        format: (value) => grouped.format(value),
        limit: { value: deadlineSeconds / 3600, label: "deadline" },
      },
      {
        label: "GPU hours",
        points: points(({ gpuHours }) => gpuHours),
        format: (value) => grouped.format(value),
      },
    ],
  });
}
