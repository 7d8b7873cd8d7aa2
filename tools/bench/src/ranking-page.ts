import * as Plot from "@observablehq/plot";
import { quantile } from "@internevo/domain";
import { measuredOf, tauOf, type Compared } from "./accuracy-statistics.ts";
import { COLORS, renderChart } from "./charts.ts";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";
import { groupsOfTen, RANKED } from "./reproduce/ranking.ts";

/** A job whose first plans, by prediction, were all trained. */
export interface RankedJob {
  readonly job: string;
  /** Families of plans that can run. */
  readonly runnable: number;
  readonly ranks: number;
  readonly globalBatchTokens: number;
  /** In the order of the predictions. */
  readonly plans: readonly Compared[];
}

export interface RankingResult {
  readonly benchmark: "ranking";
  readonly device: string;
  readonly settings: { readonly repeat: number; readonly steps: number; readonly seed: number };
  readonly circumstances: Circumstances;
  /** What profiling took. */
  readonly notes: readonly string[];
  readonly jobs: readonly RankedJob[];
}

/** Tokens of a rank a second. */
const speedOf = ({ globalBatchTokens, ranks }: RankedJob, seconds: number): number =>
  globalBatchTokens / ranks / seconds;

const PREDICTED = (plan: Compared): number => plan.predictedSeconds;

interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

function spreadOf(job: RankedJob, plans: readonly Compared[], seconds: (plan: Compared) => number): Spread {
  const speeds = plans.map((plan) => speedOf(job, seconds(plan)));
  return { median: quantile(speeds, 0.5), least: Math.min(...speeds), most: Math.max(...speeds) };
}

/** Kendall's τ of the predicted order and the measured one; null where one of them has none. */
const orderOf = (plans: readonly Compared[]): number | null =>
  tauOf(
    plans,
    (a, b) => a.predictedSeconds - b.predictedSeconds,
    (a, b) => measuredOf(a) - measuredOf(b),
  ).tau;

/** The place of the fastest measured plan in the order of the predictions, from 1. */
const placeOfFastest = (plans: readonly Compared[]): number =>
  plans.reduce((best, plan) => (measuredOf(plan) < measuredOf(best) ? plan : best)).rank;

const shown = ({ median, least, most }: Spread): string =>
  `${median.toFixed(0)} (${least.toFixed(0)} – ${most.toFixed(0)})`;

function groupsTable(jobs: readonly RankedJob[]): string {
  return table(
    ["job", "plans", "predicted", "measured"],
    jobs.flatMap((job) =>
      groupsOfTen(job.plans).map(({ name, plans }) => [
        job.job,
        name,
        shown(spreadOf(job, plans, PREDICTED)),
        shown(spreadOf(job, plans, measuredOf)),
      ]),
    ),
  );
}

function orderTable(jobs: readonly RankedJob[]): string {
  return table(
    ["job", "plans", "of families", "τ", "fastest is predicted", "groups in order"],
    jobs.map((job) => {
      const medians = groupsOfTen(job.plans).map(({ plans }) => spreadOf(job, plans, measuredOf).median);
      const steps = medians.slice(1).filter((speed, index) => speed <= (medians[index] as number)).length;
      return [
        job.job,
        job.plans.length,
        job.runnable,
        orderOf(job.plans)?.toFixed(2) ?? "–",
        placeOfFastest(job.plans),
        `${steps} of ${medians.length - 1}`,
      ];
    }),
  );
}

function picture(jobs: readonly RankedJob[]): string {
  const fastest = (job: RankedJob): number => Math.min(...job.plans.map(measuredOf));
  const percent = (job: RankedJob, seconds: number): number => (100 * fastest(job)) / seconds;
  const dots = jobs.flatMap((job) =>
    job.plans.map((plan) => ({
      job: job.job,
      rank: plan.rank,
      measured: percent(job, measuredOf(plan)),
      predicted: percent(job, plan.predictedSeconds),
    })),
  );
  const medians = jobs.flatMap((job) =>
    groupsOfTen(job.plans).map(({ plans }) => ({
      job: job.job,
      from: (plans[0] as Compared).rank - 0.4,
      to: (plans.at(-1) as Compared).rank + 0.4,
      value: quantile(
        plans.map((plan) => percent(job, measuredOf(plan))),
        0.5,
      ),
    })),
  );
  return renderChart({
    title: "The first 50 plans, trained on CPU ranks",
    subtitle:
      "speed in % of the fastest measured plan, in the order of the predictions; lines are medians of ten",
    legend: [
      { label: "measured", color: COLORS.blue },
      { label: "predicted", color: COLORS.orange },
    ],
    plot: {
      height: 340,
      fx: { label: null, domain: jobs.map(({ job }) => job) },
      x: { label: "place by prediction", grid: false },
      y: { label: "%", domain: [0, 110], grid: true },
      marks: [
        Plot.ruleY([0]),
        Plot.dot(dots, { fx: "job", x: "rank", y: "predicted", r: 2, fill: COLORS.orange }),
        Plot.dot(dots, { fx: "job", x: "rank", y: "measured", r: 3, fill: COLORS.blue }),
        Plot.ruleY(medians, {
          fx: "job",
          x1: "from",
          x2: "to",
          y: "value",
          stroke: COLORS.blue,
          strokeWidth: 2,
        }),
      ],
    },
  });
}

/** The page of the ranking's quality, with its picture. */
export async function writeRankingPage(directory: string, result: RankingResult): Promise<void> {
  const { jobs, settings, notes } = result;
  const body = [
    `The paper trains its first ${RANKED.plans} plans and shows their speed in groups of ten. This page does so on processor ranks: every one of the first ${RANKED.plans} plans of each job was trained. Speeds are tokens of a rank a second.`,
    "## Groups of ten",
    "Plans stand in the order of their predictions. Cells are the median, the least and the most of a group.",
    "![Ranking](images/ranking-cpu.svg)",
    groupsTable(jobs),
    "## The order",
    [
      "- *Of families*: how many families of plans the job has that can run. A plan is the fastest of its family.",
      "- *τ*: Kendall's τ of the predicted order and the measured one. 1 is the same order, 0 is unrelated.",
      "- *Fastest is predicted*: the predicted place of the plan that was measured fastest.",
      "- *Groups in order*: how many groups are not faster, in the median, than the group before.",
    ].join("\n"),
    orderTable(jobs),
    circumstancesText(result.circumstances),
    `Each plan ran ${settings.repeat} times, in random order with seed ${settings.seed}. A run has one step of warm-up and ${settings.steps} measured steps. A plan's time is the median of its runs.`,
    "Profiling took:",
    `- this machine: ${notes.join(", ")}`,
  ].join("\n\n");
  await writePage({
    directory,
    name: "ranking-cpu",
    title: "Ranking quality, on CPU",
    body,
    images: { "ranking-cpu.svg": picture(jobs) },
  });
}
