import type { QueueSettings } from "@internevo/domain";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";
import type { SimulationOptions, SimulationResult, WaitingHours } from "./queue-simulation.ts";

export interface FairShareResult {
  readonly options: SimulationOptions;
  readonly settings: QueueSettings;
  readonly orders: readonly SimulationResult[];
  readonly otherSettings: readonly { readonly settings: QueueSettings; readonly result: SimulationResult }[];
  readonly circumstances: Circumstances;
}

const hours = (value: number): string => `${value.toFixed(1)} h`;
const percent = (value: number): string => `${(100 * value).toFixed(1)}%`;
const waits = ({ jobs, p50, p90, p99, most }: WaitingHours): string[] => [
  String(jobs),
  hours(p50),
  hours(p90),
  hours(p99),
  hours(most),
];

const summaryRows = (orders: readonly SimulationResult[]): string[][] =>
  (
    [
      ["utilisation in these days", ({ utilisation }) => percent(utilisation)],
      ["fairness, Jain's index", ({ fairness }) => fairness.toFixed(3)],
      ["weeks of projects that it counts", ({ backloggedWeeks }) => String(backloggedWeeks)],
      ["mean wait, tenth of projects that ask for most", (each) => hours(each.meanWaitHours.largeProjects)],
      ["mean wait, the other projects", (each) => hours(each.meanWaitHours.smallProjects)],
      ["longest wait", ({ waitingHours }) => hours(waitingHours.most)],
      ["longest wait of jobs of a whole cluster", (each) => hours(each.waitingHoursOfWidest.most)],
      ["jobs that never started", ({ neverStarted }) => String(neverStarted)],
      ["jobs that passed one beyond the patience", ({ passedOverdue }) => String(passedOverdue)],
    ] as [string, (result: SimulationResult) => string][]
  ).map(([name, of]) => [name, ...orders.map(of)]);

function bodyOf({ options, settings, orders, otherSettings, circumstances }: FairShareResult): string {
  const { jobs, projects, clusters, hostsOfACluster, gpusOfAHost, days, load, seed } = options;
  return [
    `This page says what fair share does to waiting times: ${jobs} jobs of ${projects} projects on ${clusters} clusters of ${hostsOfACluster} hosts with ${gpusOfAHost} GPUs, in ${days} days. Jobs ask for ${percent(load)} of the GPU time that there is. Their draw has seed ${seed}. Half-life ${settings.halfLifeHours} hours, patience ${settings.patienceHours} hours.`,
    "- *fair-share*: the product's order. *submission*: first come, first served, whatever priority and project.\n- *Fairness*: Jain's index of GPU time over weight, among the projects whose jobs waited for nearly all of a week; the mean of the weeks. 1 is equal; one of n that has everything is 1/n.\n- A job *passes one beyond the patience* when it begins though another has waited for longer than the patience, and for longer than itself, for one of its hosts.",
    table(["", ...orders.map(({ order }) => order)], summaryRows(orders)),
    "## Waiting times",
    table(
      ["order", "priority", "jobs", "p50", "p90", "p99", "longest"],
      orders.flatMap(({ order, waitingHours, waitingHoursByPriority }) => [
        ...Object.entries(waitingHoursByPriority).map(([priority, of]) => [order, priority, ...waits(of)]),
        [order, "all", ...waits(waitingHours)],
      ]),
    ),
    "## Other half-lives and patiences",
    table(
      ["half-life", "patience", "fairness", "p50", "p99", "longest", "jobs that passed one beyond it"],
      [{ settings, result: orders[0] as SimulationResult }, ...otherSettings].map((each) => [
        hours(each.settings.halfLifeHours),
        hours(each.settings.patienceHours),
        each.result.fairness.toFixed(3),
        hours(each.result.waitingHours.p50),
        hours(each.result.waitingHours.p99),
        hours(each.result.waitingHours.most),
        String(each.result.passedOverdue),
      ]),
    ),
    circumstancesText(circumstances),
  ].join("\n\n");
}

/** Writes the figures of the page `fair-share.md` in a folder. */
export const writeFairSharePage = (directory: string, result: FairShareResult): Promise<void> =>
  writePage({
    directory,
    name: "fair-share",
    title: "Fair share of the queue, simulated",
    body: bodyOf(result),
    images: {},
  });
