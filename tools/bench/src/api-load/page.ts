import { formatInteger } from "@internevo/domain";
import { circumstancesText, table, writePage, type Circumstances } from "../report.ts";
import { QUESTIONS, type FollowResult, type LoadResult, type Quantiles } from "./messages.ts";

export interface MemoryLook {
  readonly seconds: number;
  readonly bytes: Readonly<Record<string, number>>;
}

/** Requests at one rate for a while. */
export interface Phase {
  readonly requestsPerSecond: number;
  readonly seconds: number;
  readonly from: string;
  readonly to: string;
  readonly load: LoadResult;
  /** By process, with its descendants. */
  readonly processorSeconds: Readonly<Record<string, number>>;
  readonly memory: readonly MemoryLook[];
}

export interface ApiResult {
  readonly options: {
    readonly jobs: number;
    readonly steps: number;
    readonly followers: number;
    readonly seconds: number;
    readonly seed: number;
    readonly rates: readonly number[];
  };
  readonly phases: readonly Phase[];
  readonly followed: FollowResult;
  /** Steps of the job in the last phase, for every follower. */
  readonly expectedEvents: number;
  readonly stepSeconds: {
    readonly aloneBefore: Quantiles;
    readonly underLoad: Quantiles;
    readonly aloneAfter: Quantiles;
  };
  readonly circumstances: Circumstances;
}

const ms = (value: number): string => `${value.toFixed(value < 100 ? 1 : 0)} ms`;
const mib = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(0)} MiB`;
const quantiles = ({ p50, p99, most }: Quantiles): string[] => [ms(p50), ms(p99), ms(most)];
const percent = (value: number): string => `${(100 * value).toFixed(1)}%`;

const taken = (phase: Phase, name: string): number => phase.processorSeconds[name] ?? 0;
const aRequest = (phase: Phase, name: string): string =>
  ms((1000 * taken(phase, name)) / phase.load.milliseconds.count);

const rateRows = (phases: readonly Phase[]): string[][] =>
  phases.map((phase) => [
    String(phase.requestsPerSecond),
    `${phase.seconds.toFixed(0)} s`,
    ...quantiles(phase.load.milliseconds),
    ms(phase.load.sentLateMilliseconds.p99),
    String(Object.values(phase.load.refused).reduce((sum, count) => sum + count, 0)),
    aRequest(phase, "api"),
    aRequest(phase, "postgres"),
  ]);

/** The look nearest to a moment. */
const lookAt = (looks: readonly MemoryLook[], seconds: number): MemoryLook =>
  looks.reduce((best, each) =>
    Math.abs(each.seconds - seconds) < Math.abs(best.seconds - seconds) ? each : best,
  );

function memoryRows({ memory, seconds }: Phase): string[][] {
  const moments = [0, 60, seconds / 2, seconds].map((moment) => lookAt(memory, moment));
  const [, minute, , end] = moments as [MemoryLook, MemoryLook, MemoryLook, MemoryLook];
  return Object.keys(end.bytes).map((name) => [
    name,
    ...moments.map(({ bytes }) => mib(bytes[name] ?? 0)),
    mib((end.bytes[name] ?? 0) - (minute.bytes[name] ?? 0)),
  ]);
}

function bodyOf({
  options,
  phases,
  followed,
  expectedEvents,
  stepSeconds,
  circumstances,
}: ApiResult): string {
  const last = phases.at(-1) as Phase;
  const { aloneBefore, underLoad, aloneAfter } = stepSeconds;
  const alone = (aloneBefore.p50 + aloneAfter.p50) / 2;
  const names = Object.keys(last.processorSeconds);
  return [
    `This page says how the API answers while a job trains: ${formatInteger(options.followers)} event streams follow that job, and ${formatInteger(options.jobs)} jobs and ${formatInteger(options.steps)} steps are stored. Requests come at a given rate, whether or not earlier ones were answered. Their draw has seed ${options.seed}. Load, followers, services, database and one rank share the cores.`,
    "A request that was not answered with 200 until five seconds after the end counts as *not answered*. Times count from the moment at which a request was due. *Sent late* is the part of that which the generator itself took, 99th percentile. Processor time of a request is that of the service over the number of answers, its work for followers included.",
    table(
      [
        "requests a second",
        "for",
        "p50",
        "p99",
        "longest",
        "sent late",
        "not answered",
        "API, processor",
        "Postgres, processor",
      ],
      rateRows(phases),
    ),
    `## By question, at ${last.requestsPerSecond} requests a second`,
    table(
      ["question", "answers", "p50", "p99", "longest"],
      QUESTIONS.map(({ name }) => {
        const of = last.load.ofQuestions[name] as Quantiles;
        return [name, String(of.count), ...quantiles(of)];
      }),
    ),
    "## By minute",
    table(
      ["minute", "p50", "p99", "longest"],
      last.load.ofMinutes.map((of, minute) => [String(minute + 1), ...quantiles(of)]),
    ),
    "## Memory",
    "Each process's share, with that of its descendants. *Growth* is from the end of the first minute to the last.",
    table(["process", "begin", "1 minute", "half", "end", "growth"], memoryRows(last)),
    "## Processor time",
    table(
      ["process", "of one core"],
      names.map((name) => [name, percent(taken(last, name) / last.seconds)]),
    ),
    "## Followers",
    [
      `- ${followed.open} streams were open, ${followed.lost} were lost.`,
      `- ${formatInteger(followed.events)} events arrived; the job's ${underLoad.count} steps make ${formatInteger(expectedEvents)} for all of them. ${followed.outOfOrder} were out of order or double, among the followers that read what they get.`,
      `- From the instant of an event to its arrival: p50 ${ms(followed.delayMilliseconds.p50)}, p99 ${ms(followed.delayMilliseconds.p99)}, longest ${ms(followed.delayMilliseconds.most)}. Steps are stored together, a few times a second.`,
    ].join("\n"),
    "## What the job lost",
    table(
      ["the job's steps", "count", "p50", "p99"],
      (
        [
          ["alone, before", aloneBefore],
          [`beside ${last.requestsPerSecond} requests a second`, underLoad],
          ["alone, after", aloneAfter],
        ] as const
      ).map(([name, of]) => [name, String(of.count), ms(1000 * of.p50), ms(1000 * of.p99)]),
    ),
    `The median step took ${(underLoad.p50 / alone).toFixed(2)} of the time that it takes alone.`,
    circumstancesText(circumstances),
  ].join("\n\n");
}

/** Writes the figures of the page `api-load.md` in a folder. */
export const writeApiPage = (directory: string, result: ApiResult): Promise<void> =>
  writePage({ directory, name: "api-load", title: "The API under load", body: bodyOf(result), images: {} });
