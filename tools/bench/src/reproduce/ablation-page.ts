import * as Plot from "@observablehq/plot";
import { planLabel, quantile } from "@internevo/domain";
import { COLORS, renderChart } from "../charts.ts";
import { table } from "../report.ts";
import type { Ablations, BaselineRatios } from "./ablations.ts";
import { USABLE_BYTES } from "./judgements.ts";
import { SYSTEM_NAMES } from "./paper.ts";
import { groupsOfTen, type RankedPlan } from "./ranking.ts";

const percent = (value: number): string => `${(value * 100).toFixed(1)}%`;
const times = (value: number): string => `${value.toFixed(2)}×`;
const gibibytes = (bytes: number): string => (bytes / 2 ** 30).toFixed(1);
const short = (model: string): string => model.replace("llama-", "").toUpperCase();
const labelOf = (plan: Parameters<typeof planLabel>[0]): string =>
  `\`${planLabel(plan).replace(/ ov.*$/, "")}\``;

interface Bar {
  readonly panel: string;
  readonly label: string;
  readonly series: string;
  readonly value: number;
}

/** Upright bars beside one another, a panel each. */
function barsChart(
  title: string,
  subtitle: string,
  bars: readonly Bar[],
  colors: Readonly<Record<string, string>>,
  y: Plot.ScaleOptions,
  rule?: number,
): string {
  const series = Object.keys(colors);
  const labels = [...new Set(bars.map(({ label }) => label))];
  const place = ({ label, series: own }: Bar): string => `${label} ${series.indexOf(own)}`;
  return renderChart({
    title,
    subtitle,
    legend: series.map((label) => ({ label, color: colors[label] as string })),
    plot: {
      width: 1000,
      height: 330,
      marginLeft: 60,
      marginBottom: 45,
      fx: { label: null, domain: [...new Set(bars.map(({ panel }) => panel))], padding: 0.08 },
      x: {
        type: "band",
        label: null,
        domain: labels.flatMap((label) =>
          [...series.keys(), series.length].map((index) => `${label} ${index}`),
        ),
        padding: 0.05,
        ticks: labels.map((label) => `${label} ${Math.floor((series.length - 1) / 2)}`),
        tickFormat: (text: string) => text.replace(/ \d+$/, ""),
        tickSize: 0,
      },
      y: { grid: true, labelArrow: "none", ...y },
      marks: [
        Plot.frame({ stroke: "#ccc" }),
        Plot.barY(bars, {
          fx: "panel",
          x: place,
          y: "value",
          fill: ({ series: own }: Bar) => colors[own] ?? COLORS.grey,
        }),
        Plot.ruleY([0]),
        ...(rule === undefined ? [] : [Plot.ruleY([rule], { stroke: "black", strokeDasharray: "4 3" })]),
      ],
    },
  });
}

/** Median, least and most of a group by a model; undefined where it timed none of them. */
function spreadOf(plans: readonly RankedPlan[], of: (plan: RankedPlan) => number | null) {
  const values = plans.flatMap((plan) => of(plan) ?? []);
  if (values.length === 0) return undefined;
  return { median: quantile(values, 0.5), least: Math.min(...values), most: Math.max(...values) };
}

const MODELS_OF_TIME = [
  ["formula", "formula, which ranks", COLORS.blue],
  ["simulated", "event simulation", COLORS.sky],
  ["published", "published planner", COLORS.orange],
] as const;

function rankingPart({ rankings }: Ablations) {
  const cells = (plans: readonly RankedPlan[]): string[] =>
    MODELS_OF_TIME.map(([name]) => {
      const spread = spreadOf(plans, (plan) => plan[name]);
      return spread
        ? `${spread.median.toFixed(1)} (${spread.least.toFixed(1)} – ${spread.most.toFixed(1)})`
        : "–";
    });
  const rows = rankings.flatMap(({ model, lengthK, plans }) =>
    groupsOfTen(plans).map((group) => [`${short(model)} ${lengthK}k`, group.name, ...cells(group.plans)]),
  );
  const bars = rankings.flatMap(({ model, lengthK, plans }) =>
    groupsOfTen(plans).flatMap((group) =>
      MODELS_OF_TIME.flatMap(([name, series]): Bar[] => {
        const spread = spreadOf(group.plans, (plan) => plan[name]);
        const best = spreadOf(plans, (plan) => plan[name])?.most ?? 1;
        const panel = `${short(model)} ${lengthK}k`;
        return spread ? [{ panel, label: group.name, series, value: (100 * spread.median) / best }] : [];
      }),
    ),
  );
  const taus = rankings.map(
    ({ model, lengthK, tau }) =>
      `${short(model)} ${lengthK}k: ${tau.simulated?.toFixed(2) ?? "none"} with the event simulation, ${tau.published?.toFixed(2) ?? "none"} with the published planner`,
  );
  const text = [
    "## Ranking quality, 65B",
    "The paper runs its first 50 plans and shows their speed in groups of ten. Here no plan ran: the table has tokens per GPU and second as three models predict them. Plans are the best of the first 50 families of the paper's dimensions. The *formula* ranks them. The *event simulation* plays the same measurements out, so it tests the formula's sums, and not the measurements. The *published planner* has times of its own, which makes it the independent one. Cells are the median, the least and the most of a group. Of long pipelines, the simulation plays four rounds of micro-batches and adds the rest at its steady pace.",
    "![Ranking](images/reproduce-ranking.svg)",
    table(["case", "plans", ...MODELS_OF_TIME.map(([, series]) => series)], rows),
    `Kendall's τ of the formula's order is, for ${taus.join("; for ")}.`,
    "[The same with plans that ran](ranking-cpu.md), of small models on processor ranks.",
  ];
  const picture = barsChart(
    "The first 50 plans in groups of ten, 65B, predicted",
    "median speed of a group in % of the fastest of the 50 by the same model",
    bars,
    Object.fromEntries(MODELS_OF_TIME.map(([, series, color]) => [series, color])),
    { label: "%", domain: [0, 100] },
  );
  return { text, picture };
}

function overlapPart({ overlap }: Ablations) {
  const gain = ({ hidden, alone }: Ablations["overlap"][number]): number =>
    hidden.tokensPerGpuPerSecond / alone.tokensPerGpuPerSecond - 1;
  const gains = overlap.map(gain);
  const text = [
    "### The paper's own plans",
    `The same for the plans of the paper's table. Overlap is worth ${percent(Math.min(...gains))} to ${percent(Math.max(...gains))}, where the paper measured 0.9% to 75.2%. The paper ran out of memory at 8k without overlap. Our plan of memory does not: without overlap it needs no more. No kernel launches are predicted, and every collective takes its measured time, with or without overlap.`,
    "![Overlap of the paper's plans](images/reproduce-overlap.svg)",
    table(
      ["length", "plan of the paper", "TGS with overlap", "without", "gain", "GB with", "GB without"],
      overlap.map((one) => [
        `${one.row.lengthK}k`,
        labelOf(one.row.plan),
        one.hidden.tokensPerGpuPerSecond.toFixed(0),
        one.alone.tokensPerGpuPerSecond.toFixed(0),
        percent(gain(one)),
        (one.hidden.peakMemoryBytes / 1e9).toFixed(1),
        (one.alone.peakMemoryBytes / 1e9).toFixed(1),
      ]),
    ),
  ];
  const bars = overlap.flatMap(({ row, hidden, alone }): Bar[] =>
    (
      [
        ["with overlap", hidden],
        ["without", alone],
      ] as const
    ).map(([series, { tokensPerGpuPerSecond: value }]) => ({
      panel: "13B",
      label: `${row.lengthK}k`,
      series,
      value,
    })),
  );
  const picture = barsChart(
    "Overlap on the paper's own plans, 13B, predicted",
    "tokens per GPU and second",
    bars,
    { "with overlap": COLORS.blue, without: COLORS.grey },
    { label: "tokens/GPU/s" },
  );
  return { text, picture };
}

/** Lengths at which the paper ran out of memory without memory management. */
const PAPER_OUT_OF_MEMORY_K: readonly number[] = [8, 16, 32];

function managementPart({ management }: Ablations) {
  const lengths = (list: readonly number[]): string =>
    list.length === 0 ? "none" : list.map((k) => `${k}k`).join(", ");
  const failed = management.filter((one) => one.unmanaged.outOfMemory).map(({ row }) => row.lengthK);
  const kept = management.filter(({ managed }) => !managed.outOfMemory).length;
  const usable = `${gibibytes(USABLE_BYTES)} GiB`;
  const text = [
    "## Memory management, 13B",
    `The paper measures speed with and without its memory management, and ran out of memory without it at ${lengths(PAPER_OUT_OF_MEMORY_K)}. Here a caching allocator with PyTorch's rules is simulated. It gets what a framework asks for in two steps of the paper's plans, tensor by tensor, in the shapes that the published planner counts. *Managed* has a pinned buffer of two gathered layers, gradients in one block, and MLP outputs of three layers in one block. The device gives ${usable}, the same as the published rank above takes.`,
    `With management ${kept} of ${management.length} plans run. Without it these run out of memory: ${lengths(failed)}. The sizes are our reading of the paper and of the published planner, and no framework ran. Speed is not predicted: only what the device is asked for.`,
    "![Memory management](images/reproduce-management.svg)",
    "*Taken* is what the allocator takes from an endless device, *in use* the most that is in use at once, *in pieces* the most that lies free in pieces after a pass.",
    table(
      [
        "length",
        "plan of the paper",
        "managed: in use",
        "taken",
        "not managed: in use",
        "taken",
        "in pieces",
        `not managed, ${usable}`,
        "the paper",
      ],
      management.map(({ row, managedEndless: a, unmanagedEndless: b, unmanaged }) => [
        `${row.lengthK}k`,
        labelOf(row.plan),
        gibibytes(a.liveBytes),
        gibibytes(a.reservedBytes),
        gibibytes(b.liveBytes),
        gibibytes(b.reservedBytes),
        gibibytes(b.strandedBytes),
        unmanaged.outOfMemory ? "out of memory" : "fits",
        PAPER_OUT_OF_MEMORY_K.includes(row.lengthK) ? "out of memory" : "fits",
      ]),
    ),
  ];
  const bars = management.flatMap(({ row, managedEndless, unmanagedEndless }): Bar[] =>
    (
      [
        ["managed", managedEndless],
        ["not managed", unmanagedEndless],
      ] as const
    ).map(([series, { reservedBytes }]) => ({
      panel: "13B",
      label: `${row.lengthK}k`,
      series,
      value: reservedBytes / 2 ** 30,
    })),
  );
  const picture = barsChart(
    "Memory management, the paper's 13B plans, simulated",
    `GiB that a caching allocator takes from a device without end; dashed: ${usable}`,
    bars,
    { managed: COLORS.blue, "not managed": COLORS.vermilion },
    { label: "GiB" },
    USABLE_BYTES / 2 ** 30,
  );
  return { text, picture };
}

const most = (list: readonly BaselineRatios[], of: (one: BaselineRatios) => number | null): BaselineRatios =>
  list.reduce((best, one) => ((of(one) ?? 0) > (of(best) ?? 0) ? one : best));

/** How many times as fast as the others the paper measured InternEvo at most. */
const PAPER_MOST = { megatron: 2.29, ulysses: 4.8 } as const;

function baselinePart({ baselines, longest }: Ablations) {
  const systems = ["megatron", "ulysses"] as const;
  const said = systems.map((system) => {
    const own = baselines.filter((one) => one.system === system);
    const [alone, hidden, best] = [
      most(own, (one) => one.alone),
      most(own, (one) => one.hidden),
      most(own, (one) => one.best),
    ];
    const paper = times(PAPER_MOST[system]);
    return `Against ${SYSTEM_NAMES[system]} the paper measured up to ${paper}. The rows without overlap give up to ${times(alone.alone)} (${short(alone.model)} ${alone.lengthK}k), with overlap ${times(hidden.hidden)}, and the best plans ${times(best.best ?? 1)}.`;
  });
  const reached = baselines.some(({ system, alone }) => alone >= PAPER_MOST[system]);
  const text = [
    "## Baselines as they were run, and at their best",
    "*Without overlap*: InternEvo's row of the tables with its overlap, over the other system's row with none, with that row's own micro-batches. *With overlap*: both rows overlap alike. *At their best*: the best plans of both systems, by one search. *GiB* is the other row by the published count, which has whole logits.",
    `${said.join(" ")} ${reached ? "So overlap accounts for at least one of the two figures." : "So neither figure is reproduced. The measured times of kernels and collectives leave no room for them, even if nothing of the other systems' communication were hidden. What is left must lie in how the other systems were run, which the paper does not say."} The predictions assume our kernels for all of them.`,
    "![Baselines](images/reproduce-baselines.svg)",
    table(
      ["model", "length", "system", "without overlap", "with overlap", "at their best", "GiB"],
      baselines.map(({ model, lengthK, system, alone, hidden, best, publishedBytes }) => [
        short(model),
        `${lengthK}k`,
        SYSTEM_NAMES[system],
        times(alone),
        times(hidden),
        best === null ? "–" : times(best),
        publishedBytes === null ? "–" : gibibytes(publishedBytes),
      ]),
    ),
    "At the largest lengths the paper's table gives MFU. 80% over 35% for 7B is its 2.29×. The other rows are further apart:",
    table(
      ["model", "length", "system", "without overlap", "with overlap", "the paper measured"],
      longest.map(({ result, system, alone, hidden, measured }) => [
        short(result.model),
        `${result.lengthK}k`,
        SYSTEM_NAMES[system],
        times(alone),
        times(hidden),
        measured === null ? "time-out" : times(measured),
      ]),
    ),
  ];
  const bars = baselines.map(({ model, lengthK, system, alone }) => ({
    panel: short(model),
    label: `${lengthK}`,
    series: SYSTEM_NAMES[system],
    value: alone,
  }));
  const picture = barsChart(
    "InternEvo's rows over the others' rows without overlap, predicted",
    "ratio of tokens per GPU and second against the length, thousands (1024) of tokens; dashed: as fast",
    bars,
    { [SYSTEM_NAMES.megatron]: COLORS.orange, [SYSTEM_NAMES.ulysses]: COLORS.green },
    { label: "ratio" },
    1,
  );
  return { text, picture };
}

export interface AblationSections {
  readonly ranking: readonly string[];
  readonly overlap: readonly string[];
  readonly management: readonly string[];
  readonly baselines: readonly string[];
  readonly images: Readonly<Record<string, string>>;
}

/** Sections of the page, and its pictures. */
export function ablationSections(ablations: Ablations): AblationSections {
  const [ranking, overlap, management, baselines] = [
    rankingPart(ablations),
    overlapPart(ablations),
    managementPart(ablations),
    baselinePart(ablations),
  ];
  return {
    ranking: ranking.text,
    overlap: overlap.text,
    management: management.text,
    baselines: baselines.text,
    images: {
      "reproduce-ranking.svg": ranking.picture,
      "reproduce-overlap.svg": overlap.picture,
      "reproduce-management.svg": management.picture,
      "reproduce-baselines.svg": baselines.picture,
    },
  };
}
