import * as Plot from "@observablehq/plot";
import { DEFAULT_MOST_OTHERS_PERCENT } from "@internevo/domain";
import {
  measuredOf,
  statisticsOf,
  steadied,
  timeErrorOf,
  undisturbed,
  type Compared,
} from "./accuracy-statistics.ts";
import { COLORS, renderChart } from "./charts.ts";
import type { AccuracyRow } from "./measure-accuracy.ts";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";

export interface AccuracyResult {
  readonly benchmark: "accuracy";
  readonly device: string;
  readonly settings: {
    readonly plans: number;
    readonly repeat: number;
    readonly steps: number;
    readonly seed: number;
  };
  readonly circumstances: Circumstances;
  /** What profiling took, by place. */
  readonly profiles: readonly { readonly place: string; readonly notes: readonly string[] }[];
  readonly overall: Overall;
  /** Without the runs that something disturbed; null where every run was, absent where it is not known. */
  readonly undisturbed?: Undisturbed | null;
  readonly rows: readonly AccuracyRow[];
}

export interface Overall {
  readonly plans: number;
  readonly meanError: number;
  readonly worstError: number;
  readonly withinRange: number | null;
  /** Means over the rows. */
  readonly kendallTau: number | null;
  readonly kendallTauWithTies: number | null;
  /** A plan's first run as the prediction of its second; null where plans ran once. */
  readonly repetition: {
    readonly meanError: number;
    readonly worstError: number;
    readonly kendallTau: number | null;
  } | null;
  readonly bestIsCandidate: number;
  readonly mostChosenSlowerBy: number;
  readonly rows: number;
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;
const meanOrNull = (values: readonly (number | null)[]): number | null =>
  values.every((value) => value !== null) && values.length > 0 ? mean(values) : null;

export function overallOf(rows: readonly AccuracyRow[]): Overall {
  const all = rows.flatMap(({ compared }) => compared);
  const errors = all.map((one) => Math.abs(timeErrorOf(one)));
  const ranged = all.filter(({ range }) => range !== null);
  const repeated = rows.flatMap(({ statistics: { plans, repetition } }) =>
    repetition === null ? [] : [{ plans, ...repetition }],
  );
  return {
    plans: all.length,
    meanError: mean(errors),
    worstError: Math.max(...errors),
    withinRange:
      ranged.length === 0
        ? null
        : mean(
            ranged.map((one) =>
              one.range && measuredOf(one) >= one.range.low && measuredOf(one) <= one.range.high ? 1 : 0,
            ),
          ),
    kendallTau: meanOrNull(rows.map(({ statistics }) => statistics.kendallTau)),
    kendallTauWithTies: meanOrNull(
      rows.map(({ statistics }) => statistics.kendallTauWithTies).filter((tau) => tau !== null),
    ),
    repetition:
      repeated.length === 0
        ? null
        : {
            meanError:
              repeated.reduce((sum, row) => sum + row.plans * row.mean, 0) /
              repeated.reduce((sum, { plans }) => sum + plans, 0),
            worstError: Math.max(...repeated.map(({ worst }) => worst)),
            kendallTau: meanOrNull(repeated.map(({ kendallTau }) => kendallTau)),
          },
    bestIsCandidate: rows.filter(({ statistics }) => statistics.best.candidate).length,
    mostChosenSlowerBy: Math.max(...rows.map(({ statistics }) => statistics.chosenSlowerBy)),
    rows: rows.length,
  };
}

/**
 * The same with the machine's changing speed taken out of the runs; null where a job's runs do not allow it.
 */
export function steadyOverallOf(rows: readonly AccuracyRow[]): Overall | null {
  const steady = rows.flatMap((row) => {
    const compared = steadied(row.compared);
    return compared === null ? [] : [{ ...row, compared, statistics: statisticsOf(compared) }];
  });
  return steady.length < rows.length ? null : overallOf(steady);
}

export interface Undisturbed {
  readonly overall: Overall;
  /** Runs that something disturbed, of so many. */
  readonly disturbedRuns: number;
  readonly runs: number;
}

/** The figures without the runs that something disturbed; null where it is not known, or every run was. */
export function undisturbedOf(rows: readonly AccuracyRow[]): Undisturbed | null {
  const all = rows.flatMap(({ compared }) => compared.flatMap(({ disturbed }) => disturbed ?? []));
  const quiet = rows.flatMap((row) => {
    const compared = undisturbed(row.compared);
    return compared === null ? [] : [{ ...row, compared, statistics: statisticsOf(compared) }];
  });
  return all.length === 0 || quiet.length === 0
    ? null
    : { overall: overallOf(quiet), disturbedRuns: all.filter((each) => each).length, runs: all.length };
}

/** How a plan's ranks share the work, by its label. */
export function kindOf({ plan }: Pick<Compared, "plan">): string {
  const value = (name: string): number => Number(new RegExp(`\\b${name}(\\d+)`).exec(plan)?.[1] ?? 1);
  if (value("pp") > 1) return "pipeline";
  if (value("tp") > 1) return "tensor";
  if (value("cp") > 1) return "ring";
  if (value("sp") > 1) return "heads (Ulysses)";
  return value("ps") > 1 ? "data, parameters sharded" : "data";
}

const PALETTE = [
  COLORS.blue,
  COLORS.orange,
  COLORS.green,
  COLORS.vermilion,
  COLORS.purple,
  COLORS.sky,
  COLORS.grey,
];

function scatter({ rows }: AccuracyResult): string {
  const kinds = [...new Set(rows.flatMap(({ compared }) => compared.map(kindOf)))].sort();
  const color = (kind: string): string => PALETTE[kinds.indexOf(kind) % PALETTE.length] as string;
  const points = rows.flatMap((row) =>
    row.compared.map((one) => ({
      x: 1e3 * measuredOf(one),
      y: 1e3 * one.predictedSeconds,
      low: 1e3 * (one.range?.low ?? one.predictedSeconds),
      high: 1e3 * (one.range?.high ?? one.predictedSeconds),
      kind: kindOf(one),
      place: row.place,
    })),
  );
  const ends = [
    Math.min(...points.flatMap(({ x, y }) => [x, y])) * 0.9,
    Math.max(...points.flatMap(({ x, y }) => [x, y])) * 1.1,
  ] as const;
  const line = (factor: number) => ends.map((x) => ({ x, y: factor * x }));
  const places = [...new Set(points.map(({ place }) => place))];
  return renderChart({
    title: "Predicted and measured step times",
    subtitle:
      "milliseconds; each point a plan with its predicted range, on the line where they are equal; dashed: 15% off",
    legend: kinds.map((kind) => ({ label: kind, color: color(kind) })),
    plot: {
      width: 300 * places.length + 80,
      height: 380,
      marginLeft: 60,
      marginBottom: 45,
      marginTop: 30,
      fx: { label: null, domain: places },
      x: {
        type: "log",
        label: "measured",
        labelArrow: "none",
        domain: [...ends],
        ticks: 4,
        tickFormat: "~s",
      },
      y: {
        type: "log",
        label: "predicted",
        labelArrow: "none",
        domain: [...ends],
        grid: true,
        ticks: 6,
        tickFormat: "~s",
      },
      marks: [
        Plot.line(line(1), { x: "x", y: "y", stroke: "#555" }),
        ...[0.85, 1.15].map((factor) =>
          Plot.line(line(factor), { x: "x", y: "y", stroke: "#999", strokeDasharray: "4,4", clip: true }),
        ),
        Plot.ruleX(points, {
          fx: "place",
          x: "x",
          y1: "low",
          y2: "high",
          stroke: ({ kind }: (typeof points)[number]) => color(kind),
          strokeOpacity: 0.35,
        }),
        Plot.dot(points, {
          fx: "place",
          x: "x",
          y: "y",
          r: 2.5,
          fill: ({ kind }: (typeof points)[number]) => color(kind),
        }),
      ],
    },
  });
}

function errorChart({ rows }: AccuracyResult): string {
  const points = rows.flatMap((row) =>
    row.compared.map((one) => ({
      row: `${row.place}: ${row.job}`,
      error: 100 * timeErrorOf(one),
      candidate: one.candidate,
    })),
  );
  const names = [...new Set(points.map(({ row }) => row))];
  return renderChart({
    title: "Errors of the predicted step times",
    subtitle: "per cent; below zero: predicted too fast; each stroke a plan",
    legend: [
      { label: "a candidate for trials", color: COLORS.blue },
      { label: "another plan", color: COLORS.orange },
    ],
    plot: {
      width: 860,
      height: 60 + 26 * names.length,
      marginLeft: 250,
      marginBottom: 40,
      marginTop: 10,
      x: { label: "error (%)", labelArrow: "none", grid: true },
      y: { label: null, domain: names },
      marks: [
        Plot.ruleX([0]),
        ...[-15, 15].map((at) => Plot.ruleX([at], { stroke: "#999", strokeDasharray: "4,4" })),
        Plot.tickX(points, {
          x: "error",
          y: "row",
          stroke: ({ candidate }: (typeof points)[number]) => (candidate ? COLORS.blue : COLORS.orange),
          strokeWidth: 2,
          strokeOpacity: 0.8,
        }),
      ],
    },
  });
}

const percent = (value: number | null, digits = 1): string =>
  value === null ? "–" : `${(100 * value).toFixed(digits)}%`;
const signed = (value: number): string => `${value < 0 ? "" : "+"}${(100 * value).toFixed(1)}%`;
const tau = (value: number | null): string => (value === null ? "–" : value.toFixed(2));

function kindsTable(rows: readonly AccuracyRow[]): string {
  const places = [...new Set(rows.map(({ place }) => place))];
  const cells = places.flatMap((place) => {
    const all = rows.filter((row) => row.place === place).flatMap(({ compared }) => compared);
    return [...new Set(all.map(kindOf))].sort().map((kind) => {
      const errors = all.filter((one) => kindOf(one) === kind).map(timeErrorOf);
      return [
        place,
        kind,
        errors.length,
        signed(mean(errors)),
        percent(mean(errors.map(Math.abs))),
        percent(Math.max(...errors.map(Math.abs))),
      ];
    });
  });
  return table(["place", "ranks share", "plans", "mean of errors", "mean size of errors", "worst"], cells);
}

type Quiet = ReturnType<typeof undisturbedOf>;
type Steady = ReturnType<typeof steadyOverallOf>;

/** All jobs together, beside what the machine itself repeats. */
function overallTable({ overall }: AccuracyResult, quiet: Quiet, steady: Steady): string {
  const figures = (
    name: string,
    text: (overall: Overall) => string,
    repetition: string,
    aim: string,
  ): string[] => [
    name,
    text(overall),
    ...(quiet === null ? [] : [text(quiet.overall)]),
    ...(steady === null ? [] : [text(steady)]),
    repetition,
    aim,
  ];
  return table(
    [
      "",
      "prediction",
      ...(quiet === null ? [] : ["without disturbed runs"]),
      ...(steady === null ? [] : ["the machine's speed taken out"]),
      "a plan's first run, as prediction of its second",
      "aim",
    ],
    [
      figures(
        "mean size of a step time's error",
        ({ meanError }) => percent(meanError),
        percent(overall.repetition?.meanError ?? null),
        "≤ 5%",
      ),
      figures(
        "worst error",
        ({ worstError }) => percent(worstError),
        percent(overall.repetition?.worstError ?? null),
        "≤ 15%",
      ),
      figures(
        "Kendall's τ, mean over jobs",
        ({ kendallTau }) => tau(kendallTau),
        tau(overall.repetition?.kendallTau ?? null),
        "≥ 0.9",
      ),
      figures("the same, with ties", ({ kendallTauWithTies }) => tau(kendallTauWithTies), "", "≥ 0.9"),
      figures(
        "measured times within the predicted range",
        ({ withinRange }) => percent(withinRange, 0),
        "",
        "",
      ),
      figures(
        "jobs whose fastest plan is among the ten",
        ({ bestIsCandidate, rows: jobs }) => `${bestIsCandidate} of ${jobs}`,
        "",
        "all",
      ),
      figures(
        "what trials choose, slower than the best, at most",
        ({ mostChosenSlowerBy }) => percent(mostChosenSlowerBy),
        "",
        "≤ 1%",
      ),
    ],
  );
}

/** One row a job. */
function summaryTable(rows: readonly AccuracyRow[]): string {
  const summary = rows.map(({ place, job, runnable, statistics: s }) => [
    place,
    job,
    `${s.plans} of ${runnable}`,
    percent(s.timeError.mean),
    signed(s.timeError.signed),
    percent(s.timeError.worst),
    tau(s.kendallTau),
    tau(s.kendallTauWithTies),
    percent(s.predictedTies, 0),
    percent(s.noise),
    percent(s.spread, 0),
    percent(s.withinRange, 0),
    s.best.predictedRank,
    percent(s.firstSlowerBy),
    percent(s.chosenSlowerBy),
  ]);
  return table(
    [
      "place",
      "job",
      "plans",
      "mean size of errors",
      "mean of errors",
      "worst",
      "τ",
      "τ with ties",
      "predicted ties",
      "noise",
      "fastest to slowest",
      "within range",
      "best is predicted",
      "predicted first slower by",
      "chosen slower by",
    ],
    summary,
  );
}

/** Jobs of packed documents: the prediction that counts them, beside that of one document a sequence. */
function packedSection(rows: readonly AccuracyRow[]): string[] {
  const packed = rows.flatMap((row) => (row.documents ? [{ ...row, documents: row.documents }] : []));
  if (packed.length === 0) return [];
  const mean = (errors: readonly number[]): number =>
    errors.reduce((sum, one) => sum + one, 0) / errors.length;
  return [
    "## Packed documents",
    "*Attention's work* is what documents leave of it. Errors are means of (predicted − measured) / measured, with their sign. *As one document* is the prediction that does not count documents.",
    table(
      ["place", "job", "documents of a sequence", "attention's work", "plans", "counted", "as one document"],
      packed.map(({ place, job, documents, compared }) => [
        place,
        job,
        documents.meanDocuments.toFixed(1),
        percent(documents.rings[0]?.work ?? 1),
        compared.length,
        signed(mean(compared.map(timeErrorOf))),
        signed(mean(compared.map((one) => (one.oneDocumentSeconds ?? NaN) / measuredOf(one) - 1))),
      ]),
    ),
  ];
}

/** The plans whose predictions are off the most. */
function worstTable(rows: readonly AccuracyRow[]): string {
  const worst = rows
    .flatMap((row) => row.compared.map((one) => ({ row, one })))
    .sort((a, b) => Math.abs(timeErrorOf(b.one)) - Math.abs(timeErrorOf(a.one)))
    .slice(0, 12);
  return table(
    ["place", "job", "plan", "predicted place", "predicted ms", "measured ms", "error"],
    worst.map(({ row, one }) => [
      row.place,
      row.job,
      `\`${one.plan}\``,
      one.rank,
      (1e3 * one.predictedSeconds).toFixed(1),
      (1e3 * measuredOf(one)).toFixed(1),
      signed(timeErrorOf(one)),
    ]),
  );
}

/** What the columns of the table of all jobs together are. */
function overallLegend(quiet: Quiet, steady: Steady): string {
  return [
    "- *Prediction* compares a plan's predicted time with the median of its runs.",
    ...(quiet === null
      ? []
      : [
          `- *Without disturbed runs* leaves out ${quiet.disturbedRuns} of ${quiet.runs} runs. Other processes and machines took more than ${DEFAULT_MOST_OTHERS_PERCENT} % of a host's processor time during these. ${quiet.overall.plans} plans of ${quiet.overall.rows} jobs have a run left.`,
        ]),
    ...(steady === null
      ? []
      : [
          "- *The machine's speed taken out* divides each run's time by those of the runs of other plans just before and after it. Those times count as shares of their own plan's median. Plans run in turns and in random order, so changes with the time of day meet all plans alike. The other tables and the pictures show times as measured.",
        ]),
    "- *A plan's first run, as prediction of its second* says how much the machine itself moves from one run of a plan to the next.",
    "- *Kendall's τ* compares the predicted order of a job's plans with the measured one. 1 is the same order, 0 is unrelated.",
    "- *With ties*, plans whose predicted ranges touch count as equal. Measured times that differ by less than the noise count as equal too.",
  ].join("\n");
}

const SUMMARY_LEGEND = [
  "- *Plans*: how many of the job's families of plans were measured.",
  "- *Noise*: how far the runs of a plan lie apart, as the median over the plans.",
  "- *Fastest to slowest*: how much slower the slowest measured plan is than the fastest.",
  "- *Within range*: measured times within the predicted range.",
  "- *Best is predicted*: the predicted place of the plan that was measured fastest.",
  "- *Predicted first slower by*, *chosen slower by*: how much slower these plans are than the fastest. The chosen plan is the candidate whose run was fastest, as in trials. Candidates that the first run does not tell apart run a second time.",
].join("\n");

/** How plans were chosen and run, and what profiling took. */
function methodText({ rows, overall, settings, profiles }: AccuracyResult): string {
  const steps = [...new Set(rows.map((row) => row.steps))].join(" or ");
  return [
    `The ${overall.plans} plans belong to ${rows.length} jobs. A job's plans are the fastest of every family that can run. All of them run where the table says so. Elsewhere the ten run that would be tried, and others drawn with seed ${settings.seed}. Each plan runs ${settings.repeat} times, in random order. A run has one step of warm-up and ${steps} measured steps. A plan's time is the median of its runs.`,
    "Profiling took:",
    profiles.map(({ place, notes }) => `- ${place}: ${notes.join(", ")}`).join("\n"),
  ].join("\n\n");
}

/** The page of the comparison, with its pictures. */
export async function writeAccuracyPage(directory: string, result: AccuracyResult): Promise<void> {
  const { rows, overall } = result;
  const steady = steadyOverallOf(rows);
  const quiet = undisturbedOf(rows);
  const body = [
    `This page compares predicted step times with measured ones, on processor ranks. Over ${overall.plans} plans of ${overall.rows} jobs, the mean error is ${percent(overall.meanError)} and the worst is ${percent(overall.worstError)}. In ${overall.bestIsCandidate} of ${overall.rows} jobs, the fastest plan is among the ten that trials run.`,
    "## All jobs together",
    overallLegend(quiet, steady),
    overallTable(result, quiet, steady),
    "![Predicted and measured](images/accuracy-scatter.svg)",
    "![Errors](images/accuracy-errors.svg)",
    circumstancesText(result.circumstances),
    methodText(result),
    "## Each job",
    SUMMARY_LEGEND,
    summaryTable(rows),
    "## Each way to share the work",
    "Errors below zero mean that the plans took longer than predicted.",
    kindsTable(rows),
    ...packedSection(rows),
    "## The largest errors",
    worstTable(rows),
  ].join("\n\n");
  await writePage({
    directory,
    name: "accuracy-cpu",
    title: "Predicted against measured, on CPU",
    body,
    images: { "accuracy-scatter.svg": scatter(result), "accuracy-errors.svg": errorChart(result) },
  });
}
