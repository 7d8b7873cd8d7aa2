import * as Plot from "@observablehq/plot";
import { formatBytes, planLabel } from "@internevo/domain";
import type { MlpShape, MlpTraceResult } from "@internevo/simulator";
import type { CachingMemory } from "./caching-memory.ts";
import { COLORS, renderChart } from "./charts.ts";
import type { Longest, MeasuredLongest } from "./longest.ts";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";
import { SYSTEMS } from "./systems.ts";

export interface PlannedRow extends CachingMemory {
  readonly model: string;
  readonly sequenceLengthTokens: number;
  readonly plan: string;
  /** The arena of the fullest stage. */
  readonly plannedBytes: number;
}

interface LongestOf<Row> {
  readonly model: string;
  readonly ranks: number;
  readonly limitBytes: number;
  readonly longest: readonly Row[];
}

export interface MemoryResult {
  readonly benchmark: "memory";
  readonly circumstances: Circumstances;
  readonly rows: readonly PlannedRow[];
  readonly mlp: {
    readonly shape: MlpShape;
    readonly separate: MlpTraceResult;
    readonly consolidated: MlpTraceResult;
  };
  readonly paper: LongestOf<Longest>;
  readonly small: LongestOf<MeasuredLongest> & { readonly unitTokens: number };
}

const GIB = 2 ** 30;
const COLOR_OF = { internevo: COLORS.blue, megatron: COLORS.orange, ulysses: COLORS.green } as const;
const nameOf = (id: Longest["system"]): string => SYSTEMS.find((system) => system.id === id)?.name ?? id;
const thousands = (tokens: number): string => (tokens % 1024 === 0 ? `${tokens / 1024}K` : String(tokens));
const grouped = (tokens: number): string => tokens.toLocaleString("en");
const overLive = (bytes: number, { liveBytes }: PlannedRow): string =>
  `${bytes >= liveBytes ? "+" : ""}${((bytes / liveBytes - 1) * 100).toFixed(1)}%`;

function overheadChart({ rows }: MemoryResult): string {
  const points = rows.flatMap((row) => [
    {
      model: row.model,
      length: thousands(row.sequenceLengthTokens),
      kind: "planned",
      bytes: row.plannedBytes - row.liveBytes,
    },
    {
      model: row.model,
      length: thousands(row.sequenceLengthTokens),
      kind: "caching",
      bytes: row.reservedBytes - row.liveBytes,
    },
  ]);
  type Point = (typeof points)[number];
  return renderChart({
    title: "Memory beyond what is in use at once",
    subtitle:
      "GiB of a rank: planned before the first step, and taken by a caching best-fit allocator for the same requests",
    legend: [
      { label: "planned", color: COLORS.blue },
      { label: "caching allocator (simulated)", color: COLORS.vermilion },
    ],
    plot: {
      width: 900,
      height: 320,
      marginLeft: 60,
      marginBottom: 50,
      marginTop: 35,
      fx: { label: null, padding: 0.1 },
      x: {
        label: "sequence length, tokens",
        type: "point",
        domain: [...new Set(points.map(({ length }) => length))],
        labelArrow: "none",
      },
      y: { label: "GiB", grid: true, labelArrow: "none", zero: true },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.ruleY([0], { stroke: "black" }),
        Plot.line(points, {
          fx: "model",
          x: "length",
          y: ({ bytes }: Point) => bytes / GIB,
          z: "kind",
          stroke: ({ kind }: Point) => (kind === "planned" ? COLORS.blue : COLORS.vermilion),
          strokeWidth: 2,
        }),
        Plot.dot(points, {
          fx: "model",
          x: "length",
          y: ({ bytes }: Point) => bytes / GIB,
          r: 4,
          fill: ({ kind }: Point) => (kind === "planned" ? COLORS.blue : COLORS.vermilion),
        }),
      ],
    },
  });
}

function mlpChart({ mlp }: MemoryResult): string {
  const lines = (
    [
      ["separate", mlp.separate],
      ["consolidated", mlp.consolidated],
    ] as const
  ).flatMap(([kind, { strandedBytesByLayer }]) =>
    strandedBytesByLayer.map((bytes, layer) => ({ kind, layer: layer + 1, bytes })),
  );
  type Point = (typeof lines)[number];
  const colorOf = ({ kind }: Point): string => (kind === "separate" ? COLORS.vermilion : COLORS.green);
  return renderChart({
    title: "The paper's example: 65B at 256K, forward pass with recomputation",
    subtitle:
      "GiB that lie free between MLP outputs and cannot be given back, after each layer; caching allocator, simulated",
    legend: [
      { label: "every output by itself", color: COLORS.vermilion },
      { label: "outputs of three layers in one block", color: COLORS.green },
      { label: "planned: none", color: COLORS.blue },
    ],
    plot: {
      width: 900,
      height: 300,
      marginLeft: 60,
      marginBottom: 45,
      x: { label: "layers done", labelArrow: "none" },
      y: { label: "GiB", grid: true, labelArrow: "none", zero: true },
      marks: [
        Plot.ruleY([0], { stroke: COLORS.blue, strokeWidth: 3 }),
        Plot.line(lines, {
          x: "layer",
          y: ({ bytes }: Point) => bytes / GIB,
          z: "kind",
          stroke: colorOf,
          strokeWidth: 2,
        }),
      ],
    },
  });
}

function longestChart(what: LongestOf<Longest>, subtitle: string): string {
  const bars = what.longest.map(({ system, sequenceLengthTokens }) => ({
    system,
    name: nameOf(system),
    tokens: sequenceLengthTokens,
  }));
  type Bar = (typeof bars)[number];
  return renderChart({
    title: `The longest sequence that fits: ${what.model}`,
    subtitle,
    plot: {
      width: 900,
      height: 190,
      marginLeft: 190,
      marginRight: 90,
      marginBottom: 45,
      x: { label: "tokens", grid: true, labelArrow: "none", tickFormat: grouped, ticks: 6 },
      y: { label: null, domain: bars.map(({ name }) => name), padding: 0.25 },
      marks: [
        Plot.barX(bars, { y: "name", x: "tokens", fill: ({ system }: Bar) => COLOR_OF[system] }),
        Plot.text(bars, {
          y: "name",
          x: "tokens",
          text: ({ tokens }: Bar) => grouped(tokens),
          textAnchor: "start",
          dx: 6,
        }),
        Plot.ruleX([0]),
      ],
    },
  });
}

const plan = (row: Longest): string => (row.plan ? `\`${planLabel(row.plan)}\`` : "–");
const least = ({ next }: Longest): string =>
  `${grouped(next.sequenceLengthTokens)}: ${next.leastBytes === null ? "no plan divides it" : `${formatBytes(next.leastBytes)} at least`}`;

const refused = ({ refused: list }: MeasuredLongest): string =>
  list.map(({ sequenceLengthTokens, code }) => `${grouped(sequenceLengthTokens)} (${code})`).join(", ") ||
  "–";

function picturesOf(result: MemoryResult, ofPaper: string, ofSmall: string) {
  const { paper, small } = result;
  return {
    "memory-overhead.svg": overheadChart(result),
    "memory-mlp.svg": mlpChart(result),
    "memory-longest-paper.svg": longestChart(paper, `by the planner's memory: ${ofPaper}`),
    "memory-longest-run.svg": longestChart(
      {
        ...small,
        longest: small.longest.map((row) => ({
          ...row,
          sequenceLengthTokens: row.ran?.sequenceLengthTokens ?? 0,
        })),
      },
      `run for real at that length, refused one step of ${small.unitTokens} further: ${ofSmall}`,
    ),
  };
}

const OVERHEAD_LEGEND = [
  "- *In use at once*: the most bytes that are in use at one moment of a step.",
  "- *Planned*: the arena of the trainer, which is all that a rank ever allocates.",
  "- *Caching*: what a caching allocator reserves for the same requests.",
  "- *Free in pieces at most*: the most that the caching allocator keeps free in pieces at one moment.",
].join("\n");

/** The paper's example of many small requests. */
function exampleText({ shape, separate, consolidated }: MemoryResult["mlp"]): string {
  return [
    `In the paper's example, ${shape.layers} layers ask three times for ${formatBytes(separate.requestBytes)} and keep ${formatBytes(separate.survivorBytes)} each.`,
    `In the end ${formatBytes(Math.max(...separate.strandedBytesByLayer))} lie free in pieces.`,
    `Three outputs in one block leave ${formatBytes(consolidated.strandedBytesByLayer.at(-1) ?? 0)}.`,
    "Planned memory leaves nothing, because outputs have places of their own.",
  ].join(" ");
}

/** The page of memory, with its pictures. */
export async function writeMemoryPage(directory: string, result: MemoryResult): Promise<void> {
  const { rows, mlp, paper, small } = result;
  const shares = (pick: (row: PlannedRow) => number): string => {
    const list = rows.map((row) => (pick(row) / row.liveBytes - 1) * 100);
    return `${Math.min(...list).toFixed(1)}% to ${Math.max(...list).toFixed(1)}%`;
  };
  const ofPaper = `${paper.ranks} GPUs of ${formatBytes(paper.limitBytes)}, bf16`;
  const ofSmall = `${small.ranks} ranks of ${formatBytes(small.limitBytes)}, fp32`;
  const planned = shares((row) => row.plannedBytes);
  const caching = shares((row) => row.reservedBytes);
  const body = [
    `This page compares planned memory with a caching allocator. It also says which sequences fit. Beyond what is in use at once, planned memory takes ${planned}. The caching allocator takes ${caching} for the same requests in the same order.`,
    "## Planned against a caching allocator",
    OVERHEAD_LEGEND,
    "![Overhead](images/memory-overhead.svg)",
    table(
      [
        "model",
        "tokens",
        "plan",
        "in use at once",
        "planned",
        "caching",
        "planned over use",
        "caching over use",
        "free in pieces at most",
      ],
      rows.map((row) => [
        row.model,
        thousands(row.sequenceLengthTokens),
        `\`${row.plan}\``,
        formatBytes(row.liveBytes),
        formatBytes(row.plannedBytes),
        formatBytes(row.reservedBytes),
        overLive(row.plannedBytes, row),
        overLive(row.reservedBytes, row),
        formatBytes(row.strandedBytes),
      ]),
    ),
    exampleText(mlp),
    "![The paper's example](images/memory-mlp.svg)",
    "## The longest sequence that fits",
    `By the planner, for ${paper.model} on ${ofPaper}, with ${paper.ranks} sequences a step. *Further* is the next longer sequence, and the least that it needs:`,
    "![Longest on 128 GPUs](images/memory-longest-paper.svg)",
    table(
      ["system", "tokens", "plan", "needs", "further"],
      paper.longest.map((row) => [
        nameOf(row.system),
        grouped(row.sequenceLengthTokens),
        plan(row),
        row.peakMemoryBytes === null ? "–" : formatBytes(row.peakMemoryBytes),
        least(row),
      ]),
    ),
    `Run for real, for ${small.model} on ${ofSmall}, with ${small.ranks} sequences a step and lengths in steps of ${small.unitTokens}. For each system, the least demanding plan ran first, beyond the longest planned length. Then the plan at that length ran, and shorter ones until one succeeded.`,
    "![Longest, run](images/memory-longest-run.svg)",
    table(
      ["system", "planned", "plan", "predicted", "refused by the trainer", "ran", "measured", "a step"],
      small.longest.map((row) => [
        nameOf(row.system),
        grouped(row.sequenceLengthTokens),
        plan(row),
        row.peakMemoryBytes === null ? "–" : formatBytes(row.peakMemoryBytes),
        refused(row),
        row.ran ? grouped(row.ran.sequenceLengthTokens) : "–",
        row.ran ? formatBytes(row.ran.peakMemoryBytes) : "–",
        row.ran ? `${row.ran.stepSeconds.toFixed(1)} s` : "–",
      ]),
    ),
    circumstancesText(result.circumstances),
  ].join("\n\n");
  await writePage({
    directory,
    name: "memory",
    title: "Memory",
    body,
    images: picturesOf(result, ofPaper, ofSmall),
  });
}
