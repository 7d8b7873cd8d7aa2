import * as Plot from "@observablehq/plot";
import { COLORS, renderChart } from "./charts.ts";
import type { Row } from "./compare-systems.ts";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";
import { SYSTEMS } from "./systems.ts";

export interface SystemsResult {
  readonly benchmark: "systems";
  readonly testbed: string;
  readonly globalBatchTokens: number;
  readonly memoryPerRank: string;
  readonly device: string;
  readonly circumstances: Circumstances;
  readonly rows: readonly Row[];
}

const COLOR_OF = { internevo: COLORS.blue, megatron: COLORS.orange, ulysses: COLORS.green } as const;

function speedChart({ rows, testbed }: SystemsResult): string {
  const bars = rows.flatMap((row) =>
    row.systems.map(({ system, winner }) => ({
      model: row.model,
      length: String(row.sequenceLengthTokens),
      system,
      speed: winner?.tokensPerSecond ?? 0,
      none: winner === null,
    })),
  );
  return renderChart({
    title: "Measured speed of the best plan of each system",
    subtitle: `tokens a second, median of interleaved runs; ${testbed}`,
    legend: SYSTEMS.map(({ id, name }) => ({ label: name, color: COLOR_OF[id] })),
    plot: {
      width: 900,
      height: 340,
      marginLeft: 70,
      marginBottom: 60,
      marginTop: 30,
      fx: {
        label: null,
        padding: 0.08,
        domain: [...new Set(bars.map(({ model, length }) => `${model}\n${length}`))],
        axis: null,
      },
      x: { axis: null, domain: SYSTEMS.map(({ id }) => id), padding: 0.05 },
      y: { label: "tokens/s", grid: true, tickFormat: "s", labelArrow: "none" },
      marks: [
        Plot.barY(bars, {
          fx: ({ model, length }: (typeof bars)[number]) => `${model}\n${length}`,
          x: "system",
          y: "speed",
          fill: ({ system }: (typeof bars)[number]) => COLOR_OF[system],
        }),
        Plot.text(
          bars.filter(({ none }) => none),
          {
            fx: ({ model, length }: (typeof bars)[number]) => `${model}\n${length}`,
            x: "system",
            y: 0,
            text: () => "×",
            dy: -8,
          },
        ),
        Plot.text([...new Map(bars.map((bar) => [`${bar.model}\n${bar.length}`, bar])).values()], {
          fx: ({ model, length }: (typeof bars)[number]) => `${model}\n${length}`,
          frameAnchor: "bottom",
          dy: 28,
          lineHeight: 1.2,
          text: ({ model, length }: (typeof bars)[number]) => `${length}\n${model}`,
          fontSize: 11,
        }),
        Plot.ruleY([0]),
      ],
    },
  });
}

function ratioChart({ rows }: SystemsResult): string {
  const points = rows.flatMap((row) =>
    (
      [
        ["megatron", row.overMegatron],
        ["ulysses", row.overUlysses],
      ] as const
    ).flatMap(([against, ratio]) =>
      ratio === null ? [] : [{ model: row.model, length: String(row.sequenceLengthTokens), against, ratio }],
    ),
  );
  return renderChart({
    title: "How much faster InternEvo's plan is",
    subtitle:
      "measured tokens a second over those of the other system's best plan; the line is equal speed; logarithmic",
    legend: [
      { label: "against Megatron-style", color: COLOR_OF.megatron },
      { label: "against DeepSpeed-Ulysses-style", color: COLOR_OF.ulysses },
    ],
    plot: {
      width: 900,
      height: 300,
      marginLeft: 70,
      marginBottom: 45,
      fx: { label: null, padding: 0.12 },
      x: {
        label: "sequence length, tokens",
        type: "point",
        domain: [...new Set(points.map(({ length }) => length))],
        labelArrow: "none",
      },
      y: {
        label: "ratio",
        type: "log",
        grid: true,
        domain: [
          Math.min(0.8, ...points.map(({ ratio }) => ratio)),
          Math.max(2, ...points.map(({ ratio }) => ratio * 1.1)),
        ],
        ticks: [0.5, 1, 1.5, 2, 3, 4, 5, 7, 10],
        tickFormat: (value: number) => `${value}×`,
        labelArrow: "none",
      },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.ruleY([1], { stroke: "black" }),
        Plot.line(points, {
          fx: "model",
          x: "length",
          y: "ratio",
          z: "against",
          stroke: ({ against }: (typeof points)[number]) => COLOR_OF[against],
          strokeWidth: 2,
        }),
        Plot.dot(points, {
          fx: "model",
          x: "length",
          y: "ratio",
          r: 4,
          fill: ({ against }: (typeof points)[number]) => COLOR_OF[against],
        }),
      ],
    },
  });
}

const ratioText = (ratio: number | null): string =>
  ratio === null ? "nothing fits" : `${ratio.toFixed(2)}×`;

/** The page of the comparison, with its pictures. */
export async function writeSystemsPage(directory: string, result: SystemsResult): Promise<void> {
  const ratios = (pick: (row: Row) => number | null) => result.rows.flatMap((row) => pick(row) ?? []);
  const line = (name: string, pick: (row: Row) => number | null): string => {
    const list = ratios(pick);
    return `Against ${name} plans it is ${Math.min(...list).toFixed(2)}× to ${Math.max(...list).toFixed(2)}×, in ${list.length} of ${result.rows.length} rows where such a plan fits.`;
  };
  const rows = result.rows.map((row) => {
    const [ours, megatron, ulysses] = row.systems.map(({ winner }) => winner);
    const cell = (winner: typeof ours): string =>
      winner ? `\`${winner.label}\` ${(winner.medianStepSeconds * 1e3).toFixed(0)} ms` : "–";
    return [
      row.model,
      row.sequenceLengthTokens,
      cell(ours),
      ours ? `${ours.rank}` : "–",
      cell(megatron),
      cell(ulysses),
      ratioText(row.overMegatron),
      ratioText(row.overUlysses),
    ];
  });
  const body = [
    [
      "This page compares InternEvo's fastest plan with the fastest plans of two other kinds, all on InternEvo's own trainer. The figure is the ratio of measured tokens a second.",
      line("Megatron-style", (row) => row.overMegatron),
      line("DeepSpeed-Ulysses-style", (row) => row.overUlysses),
    ].join(" "),
    "Each cell has the fastest plan of a system, and its median step time. *Predicted place* is the place of InternEvo's plan among its predictions. *Over Megatron* and *over Ulysses* are InternEvo's speed over theirs.",
    "![Measured speed](images/systems-speed.svg)",
    "![Ratios](images/systems-ratio.svg)",
    table(
      [
        "model",
        "tokens",
        "InternEvo's plan, step",
        "predicted place",
        "Megatron-style, step",
        "DeepSpeed-Ulysses-style, step",
        "over Megatron",
        "over Ulysses",
      ],
      rows,
    ),
    circumstancesText(result.circumstances),
    `The testbed has ${result.testbed}. A step has ${result.globalBatchTokens} tokens, in fp32, with ${result.memoryPerRank} a rank.`,
  ].join("\n\n");
  await writePage({
    directory,
    name: "systems",
    title: "Against Megatron-style and DeepSpeed-Ulysses-style plans",
    body,
    images: { "systems-speed.svg": speedChart(result), "systems-ratio.svg": ratioChart(result) },
  });
}
