import * as Plot from "@observablehq/plot";
import type { Profile } from "@internevo/domain";
import { COLORS, renderChart } from "../charts.ts";
import { choiceOf, exposedAndWhole, type Case, type RowResult } from "./evaluate.ts";
import type { ScalabilityResult } from "./longest.ts";
import { LENGTHS_K, MODELS, paperJob, SYSTEM_IDS, SYSTEM_NAMES, type SystemId } from "./paper.ts";

const COLOR_OF: Readonly<Record<SystemId, string>> = {
  internevo: COLORS.blue,
  megatron: COLORS.orange,
  ulysses: COLORS.green,
};
const legend = SYSTEM_IDS.map((system) => ({ label: SYSTEM_NAMES[system], color: COLOR_OF[system] }));
const short = (model: string): string => model.replace("llama-", "").toUpperCase();
const length = (lengthK: number): string => String(lengthK);
const LENGTHS = LENGTHS_K.map(length);

interface Point {
  readonly model: string;
  readonly length: string;
  readonly system: SystemId;
  readonly value: number;
}

type Measure = (prediction: NonNullable<RowResult["predicted"]>) => number;

const pointsOf = (cases: readonly Case[], measure: Measure): Point[] =>
  cases.flatMap((row) =>
    SYSTEM_IDS.flatMap((system) => {
      const choice = choiceOf(row, system);
      return choice === null
        ? []
        : [
            {
              model: short(row.model),
              length: length(row.lengthK),
              system,
              value: measure(choice.predicted),
            },
          ];
    }),
  );

const rowPoints = (rows: readonly RowResult[], measure: Measure): Point[] =>
  rows.flatMap((row) =>
    row.predicted === null
      ? []
      : [
          {
            model: short(row.model),
            length: length(row.lengthK),
            system: row.system,
            value: measure(row.predicted),
          },
        ],
  );

const fillOf = ({ system }: Point): string => COLOR_OF[system];

/** Lines over the length, a panel a model; rings are the rows of the paper's tables. */
function linesChart(
  title: string,
  subtitle: string,
  cases: readonly Case[],
  rows: readonly RowResult[],
  measure: Measure,
  y: Plot.ScaleOptions,
): string {
  const points = pointsOf(cases, measure);
  const common = { fx: "model", x: "length", y: "value" } as const;
  return renderChart({
    title,
    subtitle,
    legend,
    plot: {
      width: 1000,
      height: 360,
      marginLeft: 60,
      marginBottom: 45,
      fx: { label: null, domain: MODELS.map(short), padding: 0.08 },
      x: {
        label: "sequence length, thousands (1024) of tokens",
        type: "point",
        domain: LENGTHS,
        labelArrow: "none",
      },
      y: { grid: true, labelArrow: "none", inset: 6, ...y },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        // Broad, because another system's line may lie upon it.
        Plot.line(
          points.filter(({ system }) => system === "internevo"),
          { ...common, stroke: COLOR_OF.internevo, strokeWidth: 5 },
        ),
        Plot.line(
          points.filter(({ system }) => system !== "internevo"),
          { ...common, z: "system", stroke: fillOf, strokeWidth: 2 },
        ),
        Plot.dot(points, { ...common, r: 3, fill: fillOf }),
        Plot.dot(rowPoints(rows, measure), { ...common, r: 5, stroke: fillOf, strokeWidth: 1.5 }),
      ],
    },
  });
}

export const speedChart = (cases: readonly Case[], rows: readonly RowResult[]): string =>
  linesChart(
    "Predicted speed of the best plan of each system",
    "tokens per GPU and second, logarithmic, 128 GPUs, 4M tokens a step; rings: the plans of the paper's tables",
    cases,
    rows,
    (p) => p.tokensPerGpuPerSecond,
    { type: "log", label: "tokens/GPU/s", tickFormat: "~s" },
  );

export const mfuChart = (cases: readonly Case[], rows: readonly RowResult[]): string =>
  linesChart(
    "Predicted utilisation of the best plan of each system",
    "MFU with attention counted whole, as the paper counts; rings: the plans of the paper's tables",
    cases,
    rows,
    (p) => p.mfuFullAttention * 100,
    { label: "MFU, %", domain: [0, 100] },
  );

export const peakChart = (cases: readonly Case[], rows: readonly RowResult[]): string =>
  linesChart(
    "Predicted peak memory",
    "GB of the fullest GPU, of 80; rings: the plans of the paper's tables",
    cases,
    rows,
    (p) => p.peakMemoryBytes / 1e9,
    { label: "GB", domain: [0, 85] },
  );

/**
 * How much faster InternEvo's best plan is, and how much faster its row of the paper's tables is than the
 * others' rows.
 */
export function ratioChart(cases: readonly Case[], rows: readonly RowResult[]): string {
  const points = cases.flatMap((row) =>
    (["megatron", "ulysses"] as const).flatMap((system) =>
      row[system] === null
        ? []
        : [
            {
              model: short(row.model),
              length: length(row.lengthK),
              system,
              value: row[system].predicted.stepTimeSeconds / row.paper.predicted.stepTimeSeconds,
            },
          ],
    ),
  );
  const rings = rows.flatMap((row) => {
    const ours = rows.find(
      ({ model, lengthK, system }) =>
        system === "internevo" && model === row.model && lengthK === row.lengthK,
    );
    return row.system === "internevo" || row.predicted === null || !ours?.predicted
      ? []
      : [
          {
            model: short(row.model),
            length: length(row.lengthK),
            system: row.system,
            value: ours.predicted.tokensPerGpuPerSecond / row.predicted.tokensPerGpuPerSecond,
          },
        ];
  });
  const common = { fx: "model", x: "length", y: "value" } as const;
  return renderChart({
    title: "How much faster InternEvo is",
    subtitle:
      "predicted tokens a second over the other system's; rings: the rows " +
      "of the paper's tables among themselves; the line is equal speed",
    legend: legend.slice(1).map(({ label, color }) => ({ label: `against ${label}`, color })),
    plot: {
      width: 1000,
      height: 320,
      marginLeft: 60,
      marginBottom: 45,
      fx: { label: null, domain: MODELS.map(short), padding: 0.08 },
      x: {
        label: "sequence length, thousands (1024) of tokens",
        type: "point",
        domain: LENGTHS,
        labelArrow: "none",
      },
      y: {
        grid: true,
        inset: 8,
        label: "ratio",
        labelArrow: "none",
        tickFormat: (value: number) => `${value.toFixed(2)}×`,
      },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.ruleY([1], { stroke: "black" }),
        Plot.line(points, { ...common, z: "system", stroke: fillOf, strokeWidth: 2 }),
        Plot.dot(points, { ...common, r: 3, fill: fillOf }),
        Plot.dot(rings, { ...common, r: 5, stroke: fillOf, strokeWidth: 1.5 }),
      ],
    },
  });
}

/** Named parts of memory: model states, what a micro-batch keeps, and the rest. */
export const MEMORY_PARTS = [
  { name: "parameters", lines: ["parameters"], color: COLORS.blue },
  { name: "gradients", lines: ["gradients"], color: COLORS.sky },
  { name: "optimizer states", lines: ["optimizerStates"], color: COLORS.purple },
  { name: "activations", lines: ["activations"], color: COLORS.orange },
  { name: "workspace, buffers, runtime", lines: null, color: COLORS.grey },
] as const;

export function memoryParts(memory: Readonly<Record<string, number>>): { part: string; bytes: number }[] {
  const named = new Set<string>(MEMORY_PARTS.flatMap(({ lines }) => lines ?? []));
  return MEMORY_PARTS.map(({ name, lines }) => ({
    part: name,
    bytes: Object.entries(memory).reduce(
      (sum, [line, bytes]) =>
        sum + ((lines === null ? !named.has(line) : (lines as readonly string[]).includes(line)) ? bytes : 0),
      0,
    ),
  }));
}

export interface Bars {
  readonly label: string;
  readonly part: string;
  readonly value: number;
}

/** Stacked bars that lie. */
export function stackChart(
  title: string,
  subtitle: string,
  bars: readonly Bars[],
  parts: readonly { readonly name: string; readonly color: string }[],
  unit: string,
  limit?: number,
): string {
  const labels = [...new Set(bars.map(({ label }) => label))];
  const colors = new Map(parts.map(({ name, color }) => [name, color]));
  return renderChart({
    title,
    subtitle,
    legend: parts.map(({ name, color }) => ({ label: name, color })),
    plot: {
      width: 900,
      height: 60 + 44 * labels.length,
      marginLeft: 290,
      marginBottom: 42,
      x: { label: unit, grid: true, labelArrow: "none" },
      y: { label: null, domain: labels },
      marks: [
        Plot.barX(bars, {
          y: "label",
          x: "value",
          fill: ({ part }: Bars) => colors.get(part) ?? COLORS.grey,
          insetTop: 3,
          insetBottom: 3,
          order: parts.map(({ name }) => name),
          z: "part",
        }),
        Plot.ruleX([0]),
        ...(limit === undefined ? [] : [Plot.ruleX([limit], { stroke: "black", strokeDasharray: "4 3" })]),
      ],
    },
  });
}

const COMMUNICATION_PARTS = [
  {
    name: "of activations",
    color: COLORS.orange,
    seconds: ["sequenceCommunicationSeconds", "pipelineCommunicationSeconds"],
  },
  { name: "of parameters", color: COLORS.blue, seconds: ["parameterCommunicationSeconds"] },
  { name: "of gradients", color: COLORS.sky, seconds: ["gradientCommunicationSeconds"] },
] as const;

/** The paper's figure of memory and communication (7B, 32k): its three rows. */
export function memoryAndCommunication(
  rows: readonly RowResult[],
  profile: Profile,
): { memory: string; communication: string } {
  const three = rows.filter(({ model, lengthK }) => model === "llama-7b" && lengthK === 32);
  const memory = three.flatMap((row) =>
    memoryParts(row.predicted?.memory ?? {}).map(({ part, bytes }) => ({
      label: SYSTEM_NAMES[row.system],
      part,
      value: bytes / 1e9,
    })),
  );
  const communication = three.flatMap((row) => {
    const job = paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens });
    const { exposed, whole } = exposedAndWhole(job, row.plan, profile);
    return (
      [
        ["all of it", whole],
        ["what is not hidden", exposed],
      ] as const
    ).flatMap(([what, { time }]) =>
      COMMUNICATION_PARTS.map(({ name, seconds }) => ({
        label: `${SYSTEM_NAMES[row.system]}, ${what}`,
        part: name,
        value: seconds.reduce((sum, each) => sum + time[each], 0),
      })),
    );
  });
  return {
    memory: stackChart(
      "Memory of the paper's plans, 7B at 32k",
      "predicted GB of the fullest GPU; dashed: 80 GB",
      memory,
      MEMORY_PARTS,
      "GB",
      80,
    ),
    communication: stackChart(
      "Communication of the paper's plans, 7B at 32k",
      "predicted seconds of a step of 4M tokens, if nothing were hidden, and with the paper's overlap",
      communication,
      COMMUNICATION_PARTS,
      "seconds",
    ),
  };
}

/** Measured bandwidth of every collective: bytes of the tensor over the median time. */
export function bandwidthChart(profile: Profile): string {
  const sizes = [...new Set(profile.collectives.map(({ groupSize }) => groupSize))].sort((a, b) => a - b);
  const palette = [
    COLORS.sky,
    COLORS.blue,
    COLORS.green,
    COLORS.orange,
    COLORS.vermilion,
    COLORS.purple,
    COLORS.grey,
  ];
  const colorOf = (size: number): string => palette[sizes.indexOf(size)] ?? COLORS.grey;
  const points = profile.collectives.flatMap(({ op, groupSize, points: list }) =>
    list.map(({ bytes, medianSeconds }) => ({ op, groupSize, bytes, value: bytes / medianSeconds / 1e9 })),
  );
  type Measured = (typeof points)[number];
  return renderChart({
    title: "Measured bandwidth of collectives",
    subtitle:
      "GB of the tensor a second against its size, logarithmic, on the A800 cluster; up to 8 GPUs on one node",
    legend: sizes.map((size) => ({ label: `${size} GPUs`, color: colorOf(size) })),
    plot: {
      width: 1000,
      height: 330,
      marginLeft: 60,
      marginBottom: 45,
      fx: { label: null, padding: 0.08 },
      x: {
        type: "log",
        base: 2,
        label: "bytes",
        tickFormat: (value: number) => {
          if (value >= 2 ** 30) return `${value / 2 ** 30}G`;
          return value >= 2 ** 20 ? `${value / 2 ** 20}M` : `${value / 2 ** 10}K`;
        },
        ticks: [2 ** 20, 2 ** 24, 2 ** 28],
        labelArrow: "none",
      },
      y: { type: "log", grid: true, label: "GB/s", tickFormat: "~s", labelArrow: "none" },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.line(points, {
          fx: "op",
          x: "bytes",
          y: "value",
          z: "groupSize",
          stroke: ({ groupSize }: Measured) => colorOf(groupSize),
          strokeWidth: 2,
          sort: "bytes",
        }),
      ],
    },
  });
}

const WHO: Readonly<Record<ScalabilityResult["longest"][number]["who"], string>> = {
  ...SYSTEM_NAMES,
  internevo: "InternEvo, the paper's dimensions",
  "internevo-complete": "InternEvo with rings",
};
export const whoText = (who: keyof typeof WHO): string => WHO[who];

export function longestChart(results: readonly ScalabilityResult[]): string {
  const bars = results.flatMap(({ model, nodes, longest }) =>
    longest.map(({ who, sequenceLengthTokens }) => ({
      model: `${short(model)} on ${nodes * 8} GPUs`,
      who: WHO[who],
      value: sequenceLengthTokens / 1024 / 1024,
      color: who === "internevo-complete" ? COLORS.sky : COLOR_OF[who],
    })),
  );
  type Item = (typeof bars)[number];
  const marks = results.map(({ model, nodes, lengthK }) => ({
    model: `${short(model)} on ${nodes * 8} GPUs`,
    value: lengthK / 1024,
  }));
  return renderChart({
    title: "Largest sequence length that fits, predicted",
    subtitle: "million tokens (2^20), one sequence for each data-parallel rank; dashed: the paper's largest",
    plot: {
      width: 900,
      height: 60 + 140 * results.length,
      marginLeft: 270,
      marginRight: 120,
      marginBottom: 42,
      fy: {
        label: null,
        padding: 0.15,
        domain: results.map(({ model, nodes }) => `${short(model)} on ${nodes * 8} GPUs`),
      },
      x: { label: "million tokens", grid: true, labelArrow: "none" },
      y: { label: null, domain: [WHO["internevo-complete"], WHO.internevo, WHO.megatron, WHO.ulysses] },
      marks: [
        Plot.barX(bars, {
          fy: "model",
          y: "who",
          x: "value",
          fill: ({ color }: Item) => color,
          insetTop: 2,
          insetBottom: 2,
        }),
        Plot.text(bars, {
          fy: "model",
          y: "who",
          x: "value",
          text: ({ value }: Item) => (value === 0 ? "none" : value.toFixed(2)),
          textAnchor: "start",
          dx: 5,
        }),
        Plot.ruleX(marks, { fy: "model", x: "value", stroke: "black", strokeDasharray: "4 3" }),
        Plot.ruleX([0]),
      ],
    },
  });
}
