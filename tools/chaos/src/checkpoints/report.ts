import type { RunResult } from "./kinds.ts";
import { KINDS } from "./draw.ts";

export interface Report {
  readonly chaos: "checkpoints";
  readonly seed: number;
  readonly runs: number;
  readonly seconds: number;
  readonly results: readonly RunResult[];
}

interface Row {
  readonly kind: string;
  readonly runs: number;
  readonly bitwise: number;
  readonly otherPlan: number;
  readonly kills: number;
  readonly refusals: number;
  readonly wrong: number;
  readonly longestEndSeconds: number | null;
  readonly largestDifference: number | null;
}

const largest = (values: readonly (number | null)[]): number | null =>
  values.reduce((most, value) => (value === null ? most : Math.max(most ?? 0, value)), null);

function rowOf(kind: string, results: readonly RunResult[]): Row {
  const good = results.filter(({ violations }) => violations.length === 0);
  return {
    kind,
    runs: results.length,
    bitwise: good.filter(({ ended }) => ended === "bitwise equal").length,
    otherPlan: good.filter(({ ended }) => ended !== "bitwise equal").length,
    kills: results.reduce((sum, { kills }) => sum + kills, 0),
    refusals: results.reduce((sum, { refusals }) => sum + refusals, 0),
    wrong: results.length - good.length,
    longestEndSeconds: largest(results.map(({ longestEndSeconds }) => longestEndSeconds)),
    largestDifference: largest(results.map(({ largestDifference }) => largestDifference)),
  };
}

/** A Markdown table: a row a kind, and all of them. */
export function tableOf(results: readonly RunResult[]): string {
  const rows = [
    ...KINDS.flatMap((kind) => {
      const some = results.filter(({ scenario }) => scenario.kind === kind);
      return some.length === 0 ? [] : [rowOf(kind, some)];
    }),
    rowOf("all", results),
  ];
  const lines = rows.map(
    ({ kind, runs, bitwise, otherPlan, kills, refusals, wrong, longestEndSeconds, largestDifference }) =>
      `| ${kind} | ${runs} | ${bitwise} | ${otherPlan} | ${largestDifference === null ? "–" : largestDifference.toExponential(1)} | ${kills} | ${refusals} | ${longestEndSeconds === null ? "–" : longestEndSeconds.toFixed(1)} | ${wrong} |`,
  );
  return [
    "| kind | runs | bitwise equal | equal under another plan | largest relative difference of a loss " +
      "there | ranks killed | refusals on the way | longest from a kill to the end, s | broken promises |",
    "|---|---|---|---|---|---|---|---|---|",
    ...lines,
  ].join("\n");
}
