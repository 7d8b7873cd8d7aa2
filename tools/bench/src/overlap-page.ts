import * as Plot from "@observablehq/plot";
import { COLORS, renderChart } from "./charts.ts";
import { GRANULARITIES, type GranularityId, type OverlapRow } from "./measure-overlap.ts";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";

export interface OverlapResult {
  readonly benchmark: "overlap";
  readonly testbed: string;
  readonly model: string;
  readonly microBatches: number;
  readonly circumstances: Circumstances;
  readonly rows: readonly OverlapRow[];
}

const COLOR_OF: Readonly<Record<GranularityId, string>> = {
  none: COLORS.grey,
  block: COLORS.orange,
  "intra-layer": COLORS.green,
  selective: COLORS.blue,
};
const OVERLAPPING = GRANULARITIES.filter(({ id }) => id !== "none");

const of = (row: OverlapRow, id: GranularityId) =>
  row.granularities.find((each) => each.id === id) as OverlapRow["granularities"][number];
/** Gain in tokens a second over no overlap. */
const gainOf = (row: OverlapRow, id: GranularityId): number =>
  of(row, "none").stepSeconds / of(row, id).stepSeconds - 1;
const percent = (share: number, digits = 0): string => `${(share * 100).toFixed(digits)}%`;

const legend = OVERLAPPING.map(({ id, name }) => ({ label: name, color: COLOR_OF[id] }));

function lines(
  result: OverlapResult,
  title: string,
  subtitle: string,
  label: string,
  value: (row: OverlapRow, id: GranularityId) => number,
  reference: number,
): string {
  const points = result.rows.flatMap((row) =>
    OVERLAPPING.map(({ id }) => ({
      sharding: row.sharding,
      length: String(row.sequenceLengthTokens),
      id,
      value: value(row, id) * 100,
    })),
  );
  return renderChart({
    title,
    subtitle,
    legend,
    plot: {
      width: 900,
      height: 320,
      marginLeft: 60,
      marginBottom: 45,
      marginTop: 35,
      fx: { label: null, padding: 0.1, tickFormat: (name: string) => name.replace(" (", "\n(") },
      x: {
        label: "sequence length, tokens",
        type: "point",
        domain: [...new Set(points.map(({ length }) => length))],
        labelArrow: "none",
      },
      y: { label, grid: true, labelArrow: "none", zero: true, tickFormat: (each: number) => `${each}%` },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.ruleY([reference], { stroke: "black" }),
        Plot.line(points, {
          fx: "sharding",
          x: "length",
          y: "value",
          z: "id",
          stroke: ({ id }: (typeof points)[number]) => COLOR_OF[id],
          strokeWidth: 2,
        }),
        Plot.dot(points, {
          fx: "sharding",
          x: "length",
          y: "value",
          r: 4,
          fill: ({ id }: (typeof points)[number]) => COLOR_OF[id],
        }),
      ],
    },
  });
}

const seconds = (value: number): string => `${(value * 1e3).toFixed(0)} ms`;

const picturesOf = (result: OverlapResult) => ({
  "overlap-gain.svg": lines(
    result,
    "Faster by overlap",
    `gain in tokens a second over no overlap; ${result.testbed}`,
    "gain",
    gainOf,
    0,
  ),
  "overlap-hidden.svg": lines(
    result,
    "Hidden of what could be hidden",
    "share of the communication beside which there was something to compute; the line is 90%",
    "hidden",
    (row, id) => of(row, id).hidden?.share ?? 0,
    90,
  ),
});

const COLUMNS_LEGEND = [
  "- *Gain*: how much faster a step is than without overlap, for each granularity.",
  "- *Block*: overlap by halves of a layer. *Intra-layer*: by modules, in both passes. *Selective*: by whole layers in the forward pass, by modules in the backward pass.",
  "- *On the lane*: the time that a step's collectives took beside the computing thread: of parameters and gradients, and of tensor ranks in the backward pass.",
  "- *Could be hidden*: the most of it that any order could have placed beside computation.",
  "- *Hidden*: what was on the lane and not waited for. *Share*: hidden over what could be hidden.",
  "- *Memory*: what selective overlap takes beyond no overlap.",
].join("\n");

/** The page of selective overlap, with its pictures. */
export async function writeOverlapPage(directory: string, result: OverlapResult): Promise<void> {
  const { rows } = result;
  const gains = rows.map((row) => gainOf(row, "selective"));
  const shares = rows.map((row) => of(row, "selective").hidden?.share ?? 0);
  const rounds = Math.min(...rows.flatMap((row) => row.granularities.map((each) => each.rounds.length)));
  const body = [
    `This page says how much faster steps are with overlap, and how much of the communication overlap hides. Selective overlap makes steps ${percent(Math.min(...gains), 1)} to ${percent(Math.max(...gains), 1)} faster than no overlap. It hides ${percent(Math.min(...shares))} to ${percent(Math.max(...shares))} of what could be hidden.`,
    ...(rounds < 3
      ? [
          `**${rounds === 1 ? "One round" : `${rounds} rounds`} only.** Nothing here says how far steps of one setting are apart. Gains may come from the machine's other work.`,
        ]
      : []),
    COLUMNS_LEGEND,
    "![Gain](images/overlap-gain.svg)",
    "![Hidden](images/overlap-hidden.svg)",
    table(
      [
        "sharding",
        "tokens",
        "step without",
        ...OVERLAPPING.map(({ id }) => `gain, ${id}`),
        "selective: on the lane",
        "could be hidden",
        "hidden",
        "share",
        "memory",
      ],
      rows.map((row) => {
        const { hidden, memoryBytes } = of(row, "selective");
        return [
          row.sharding,
          row.sequenceLengthTokens,
          seconds(of(row, "none").stepSeconds),
          ...OVERLAPPING.map(({ id }) => percent(gainOf(row, id), 1)),
          ...(hidden
            ? [
                seconds(hidden.laneSeconds),
                seconds(hidden.couldSeconds),
                seconds(hidden.hiddenSeconds),
                percent(hidden.share),
              ]
            : ["–", "–", "–", "–"]),
          `${memoryBytes / of(row, "none").memoryBytes - 1 >= 0 ? "+" : ""}${percent(memoryBytes / of(row, "none").memoryBytes - 1, 1)}`,
        ];
      }),
    ),
    "## What is still waited for",
    "The computing thread waited for these with selective overlap, as the mean of a step:",
    table(
      ["sharding", "tokens", "waits"],
      rows.map((row) => [
        row.sharding,
        row.sequenceLengthTokens,
        Object.entries(of(row, "selective").hidden?.waits ?? {})
          .filter(([, value]) => value > 5e-4)
          .slice(0, 5)
          .map(([key, value]) => `${key.replace("wait for ", "")} ${seconds(value)}`)
          .join("; ") || "–",
      ]),
    ),
    circumstancesText(result.circumstances),
    `The testbed has ${result.testbed}. The job is ${result.model} in fp32, with ${result.microBatches} micro-batches a step and data rank.`,
  ].join("\n\n");
  await writePage({
    directory,
    name: "overlap",
    title: "Selective overlap",
    body,
    images: picturesOf(result),
  });
}
