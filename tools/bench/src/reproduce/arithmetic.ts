import { planLabel, type Profile } from "@internevo/domain";
import { table } from "../report.ts";
import { againstOurs, termsBetween } from "./bars.ts";
import { keptPerLayer, type RowResult } from "./evaluate.ts";
import {
  CLOSE,
  isGood,
  NOMINAL_BYTES,
  TOP,
  USABLE_BYTES,
  type Judgements,
  type Place,
} from "./judgements.ts";

/** Which arithmetic chooses the paper's plans, row by row. */

const percent = (value: number): string => `${(value * 100).toFixed(1)}%`;
const gibibytes = (bytes: number): string => (bytes / 2 ** 30).toFixed(1);
const short = (model: string): string => model.replace("llama-", "").toUpperCase();
const labelOf = (plan: RowResult["plan"]): string => `\`${planLabel(plan).replace(/ ov.*$/, "")}\``;

type Judged = RowResult & { readonly judgements: Judgements };
export const judgedRows = (rows: readonly RowResult[]): Judged[] =>
  rows.filter((row): row is Judged => row.judgements !== null);

const cells = ({ rank, behind }: Pick<Place, "rank" | "behind">): (string | number)[] =>
  rank === null || behind === null ? ["does not fit", "–"] : [rank, percent(behind)];

const placesTable = (rows: readonly Judged[]): string =>
  table(
    [
      "model",
      "length",
      "plan of the paper",
      "our rank",
      "behind",
      "text's rank",
      "behind",
      "published rank",
      "behind",
    ],
    rows.map((row) => [
      short(row.model),
      `${row.lengthK}k`,
      labelOf(row.plan),
      ...cells(row),
      ...cells(row.judgements.text),
      ...cells(row.judgements.published),
    ]),
  );

const gainsTable = (rows: readonly Judged[]): string =>
  table(
    [
      "model",
      "length",
      "our best plan",
      "gain",
      "the row's time less our best's",
      "published GiB, ours",
      "why",
    ],
    rows.map((row) => [
      short(row.model),
      `${row.lengthK}k`,
      labelOf(row.best.plan),
      row.behind === null ? "–" : percent(row.behind),
      row.predicted === null ? "–" : termsBetween(row.predicted, row.best.predicted) || "less than 1% each",
      gibibytes(row.judgements.ours.bytes),
      reasonOf(row),
    ]),
  );

function reasonOf(row: Judged): string {
  const { ours } = row.judgements;
  if (planLabel(row.best.plan) === planLabel(row.plan)) return "the same plan";
  if (ours.bytes > USABLE_BYTES) return "does not fit by the published count";
  if (!ours.isOfItsSpace) return row.best.plan.gradientSharding > 1 ? "s_gs is not in its space" : "n < s_pp";
  return againstOurs(row)?.replace(/^.*our best\. /, "") ?? "it finds our plan faster too";
}

/** "25 of 28", of each arithmetic. */
function counted(
  rows: readonly Judged[],
  placeOf: (row: Judged) => Pick<Place, "rank" | "behind">,
): string[] {
  const models = [...new Set(rows.map(({ model }) => model))];
  const good = (list: readonly Judged[]): number => list.filter((row) => isGood(placeOf(row))).length;
  return [
    ...models.map((model) => String(good(rows.filter((row) => row.model === model)))),
    String(good(rows)),
    String(rows.filter((row) => placeOf(row).rank === 1).length),
  ];
}

function countsTable(rows: readonly Judged[]): string {
  const models = [...new Set(rows.map(({ model }) => short(model)))];
  return table(
    ["arithmetic", ...models, "all", "of these the very best"],
    [
      ["ours: the executor's memory and time, 80 GB", ...counted(rows, (row) => row)],
      ["the paper's text, 80 GB", ...counted(rows, ({ judgements }) => judgements.text)],
      [
        `the published planner's memory, ${gibibytes(USABLE_BYTES)} GiB, and our time`,
        ...counted(rows, ({ judgements }) => judgements.ourTime),
      ],
      [
        `the published planner, ${gibibytes(NOMINAL_BYTES)} GiB`,
        ...counted(rows, ({ judgements }) => judgements.nominal),
      ],
      [
        `the published planner, ${gibibytes(USABLE_BYTES)} GiB`,
        ...counted(rows, ({ judgements }) => judgements.published),
      ],
    ],
  );
}

/** What "80 GB" is, and what the paper's rows need of it. */
function memoryText(rows: readonly Judged[]): string {
  const needs = rows.flatMap(({ judgements: { predicted } }) =>
    predicted === null ? [] : [predicted.peakMemoryBytes],
  );
  return [
    `Here \`80GB\` is 80·10⁹ bytes, which is ${gibibytes(80e9)} GiB.`,
    "An A100 of 80 GB has 80 GiB of memory. PyTorch reports 79.15 GiB of it, which is 85.0·10⁹ bytes.",
    "The CUDA context, NCCL and fragmentation take their part of that.",
    "The published planner's own limit is 80 GiB, more than a program gets.",
    `By its count the paper's rows need ${gibibytes(Math.min(...needs))} to ${gibibytes(Math.max(...needs))} GiB.`,
    `So about ${gibibytes(USABLE_BYTES)} GiB were probably usable, and the published rank takes that as the limit.`,
  ].join(" ");
}

/** The section of the page. */
export function arithmeticText(rows: readonly RowResult[], profile: Profile): string {
  const judged = judgedRows(rows);
  const example = judged.find(({ model, lengthK }) => model === "llama-7b" && lengthK === 32) as Judged;
  return [
    "The paper's plans come from a planner that its authors published. Its arithmetic is neither ours nor that of the paper's text ([memory](../explanation/planner/memory.md#the-published-model), [time](../explanation/planner/time.md#the-published-planner)). " +
      `The table counts, of the seven rows of each model, those that an arithmetic has among its ${TOP} best or within ${percent(CLOSE)} of its best.`,
    countsTable(judged),
    memoryText(judged),
    "Each row by each arithmetic. *Text* is the paper's memory and time. *Published* is the published planner with its vocabulary of 103,168. Ranks count families of plans.",
    placesTable(judged),
    `Our best plan is faster for the reasons of the next table. The published planner counts 39.3 bSH of a layer, where our executor keeps ${keptPerLayer(example, profile).toFixed(1)}. ` +
      "It keeps whole logits, where our executor computes the loss in pieces. That is most of the difference, as the counts with our time say. " +
      "The rest is time. There a layer loses a fifth of its gathers, where the measured curves hide less, and updated parameters are sent s_oss times. So the paper's plans shard parameters and have small s_oss. *Gain* is how much faster our best is by our prediction.",
    gainsTable(judged),
  ].join("\n\n");
}
