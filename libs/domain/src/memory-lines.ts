import type { MemoryLines } from "./planning.ts";
import { fieldWords, lowered, TIME_WORDS } from "./words.ts";

/**
 * Eight colours after Okabe and Ito, which stay apart for people who see fewer colours. The dark ones are
 * lighter, so that they stand out from a dark page. Where a chart has more than eight series, the same
 * colours come again in another pattern.
 */
export const SERIES_COLOURS = {
  light: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#882255", "#56b4e9", "#d55e00", "#999933"],
  dark: ["#3d9bd9", "#f0b030", "#2bc097", "#de94be", "#b0487f", "#8ccbf2", "#f07f35", "#bdbb55"],
} as const;

/** What patterns are drawn with, over the colour. */
export const SERIES_INK = { light: "rgb(255 255 255 / 62%)", dark: "rgb(15 19 23 / 62%)" } as const;

export const SERIES_PATTERNS = ["plain", "stripes", "bars", "dots"] as const;
export type SeriesPattern = (typeof SERIES_PATTERNS)[number];

/** How a series looks wherever it is drawn. `colour` is its place in {@link SERIES_COLOURS}. */
export interface SeriesLook {
  readonly colour: number;
  readonly pattern: SeriesPattern;
}

/** The look of the series at a place of a list; lists longer than all looks begin anew. */
export const seriesLook = (index: number): SeriesLook => ({
  colour: index % SERIES_COLOURS.light.length,
  pattern:
    SERIES_PATTERNS[Math.floor(index / SERIES_COLOURS.light.length) % SERIES_PATTERNS.length] ?? "plain",
});

interface MemoryLine extends SeriesLook {
  readonly name: string;
}

const [BLUE, ORANGE, GREEN, PINK, WINE, SKY, VERMILION, OLIVE] = [0, 1, 2, 3, 4, 5, 6, 7];

/**
 * The lines of a rank's memory: the names that people read, and one look each, the same in every chart and
 * picture. A buffer that serves a line has that line's colour, striped: gathered parameters are parameters.
 */
export const MEMORY_LINES: Readonly<Record<string, MemoryLine>> = {
  parameters: { name: "Parameters", colour: BLUE, pattern: "plain" },
  gradients: { name: "Gradients", colour: SKY, pattern: "plain" },
  optimizerStates: { name: "Optimizer states", colour: ORANGE, pattern: "plain" },
  activations: { name: "Activations", colour: GREEN, pattern: "plain" },
  layerWorkspace: { name: "Layer workspace", colour: VERMILION, pattern: "plain" },
  attentionWorkspace: { name: "Attention workspace", colour: OLIVE, pattern: "plain" },
  logits: { name: "Logits", colour: PINK, pattern: "plain" },
  runtime: { name: "Runtime", colour: WINE, pattern: "plain" },
  gatherPool: { name: "Gathered parameters", colour: BLUE, pattern: "stripes" },
  reduceStaging: { name: "Gradient reduction buffers", colour: SKY, pattern: "stripes" },
  checkpointStaging: { name: "Checkpoint staging", colour: ORANGE, pattern: "stripes" },
  allToAllStaging: { name: "All-to-all buffers", colour: GREEN, pattern: "stripes" },
  offloadStaging: { name: "Buffers to the host", colour: GREEN, pattern: "dots" },
  recomputedLayer: { name: "Recomputed layer", colour: GREEN, pattern: "bars" },
  tensorParallelStaging: { name: "Tensor parallel buffers", colour: VERMILION, pattern: "stripes" },
  contextStaging: { name: "Ring buffers", colour: OLIVE, pattern: "stripes" },
  pipelineBuffers: { name: "Pipeline buffers", colour: PINK, pattern: "stripes" },
  communicators: { name: "Communicator buffers", colour: WINE, pattern: "bars" },
  ropeTables: { name: "RoPE tables", colour: WINE, pattern: "stripes" },
  dataBuffers: { name: "Input tokens", colour: PINK, pattern: "dots" },
};

/** A line that is not in the table: it is told apart by its name. */
const OTHER: SeriesLook = { colour: WINE, pattern: "dots" };

/** "Optimizer states" */
export const memoryLineName = (line: string): string => MEMORY_LINES[line]?.name ?? fieldWords(line);

/** How a line looks in every chart. */
export const memoryLineLook = (line: string): SeriesLook => MEMORY_LINES[line] ?? OTHER;

/** A cause of time or a line of memory: "Optimizer states". */
export const termName = (name: string): string =>
  TIME_WORDS[name as keyof typeof TIME_WORDS] ?? memoryLineName(name);

/** A cause of time or a line of memory, as in a sentence: "optimizer states". */
export const termWords = (name: string): string => lowered(termName(name));

/** Names of the lines of several memory plans, the largest first; lines without a byte are left out. */
export function linesBySize(plans: readonly MemoryLines[]): string[] {
  const largest = new Map<string, number>();
  for (const plan of plans)
    for (const [line, bytes] of Object.entries(plan))
      largest.set(line, Math.max(bytes, largest.get(line) ?? 0));
  return [...largest]
    .filter(([, bytes]) => bytes > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([line]) => line);
}
