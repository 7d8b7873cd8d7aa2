import type { Comparison } from "@internevo/contracts";
import {
  comparedValue,
  formatInteger,
  JOB_STATE_WORDS,
  lowered,
  planFieldName,
  planFieldValue,
  RUN_FIGURES,
} from "@internevo/domain";
import { table, type Colors, type Column } from "./output.ts";
import { shortIds } from "./resolve.ts";

const NONE = "–";
const MOST_OF_VALUE = 40;
/** Rows of a table of losses. */
const LOSS_ROWS = 10;

/** One row of figures or fields, with a value for each job. */
interface ComparedRow {
  readonly name: string;
  readonly values: readonly string[];
}

function rowsText(
  title: string,
  rows: readonly ComparedRow[],
  jobs: readonly string[],
  colors: Colors,
): string {
  const columns: Column<ComparedRow>[] = [
    { title, value: ({ name }) => name },
    ...jobs.map((job, index): Column<ComparedRow> => ({
      title: job,
      align: "right",
      most: MOST_OF_VALUE,
      value: ({ values }) => values[index] ?? NONE,
    })),
  ];
  return table(columns, rows, colors);
}

/** Losses of all jobs at some steps: of each the mean that ends there, or before. */
function lossRows({ losses }: Comparison): ComparedRow[] {
  const steps = [...new Set(losses.flatMap(({ training }) => training.map(({ step }) => step)))].sort(
    (a, b) => a - b,
  );
  const chosen = Array.from({ length: Math.min(LOSS_ROWS, steps.length) }, (_, index) =>
    Math.ceil(((index + 1) * steps.length) / Math.min(LOSS_ROWS, steps.length)),
  ).map((count) => steps[count - 1] ?? 0);
  return chosen.map((step) => ({
    name: formatInteger(step),
    values: losses.map(({ training }) => {
      const last = training.at(-1)?.step ?? 0;
      const point = step > last ? undefined : training.findLast((each) => each.step <= step);
      return point === undefined ? NONE : point.loss.toFixed(4);
    }),
  }));
}

const asTheyAre = (fields: Comparison["file"]): ComparedRow[] =>
  fields.map(({ field, values }) => ({ name: field, values: values.map(comparedValue) }));

/** What differs between jobs, a table for each of its kinds; what is alike is left out. */
export function comparisonText(comparison: Comparison, colors: Colors): string {
  const { jobs, file, plan, cluster, profile, figures } = comparison;
  const short = shortIds(jobs.map(({ id }) => id));
  const ids = jobs.map(({ id }) => short(id));
  const heads = table<Comparison["jobs"][number]>(
    [
      { title: "ID", value: ({ id }) => short(id) },
      { title: "NAME", most: MOST_OF_VALUE, value: ({ name }) => name },
      { title: "STATE", value: ({ state }) => lowered(JOB_STATE_WORDS[state]) },
      { title: "PLAN", below: true, value: (job) => job.plan ?? NONE },
    ],
    jobs,
    colors,
  );
  const sections: [title: string, rows: ComparedRow[]][] = [
    ["JOB FILE", asTheyAre(file)],
    [
      "PLAN",
      plan.map(({ field, values }) => ({
        name: planFieldName(field),
        values: values.map((value) => (value === null ? NONE : planFieldValue(field, value))),
      })),
    ],
    ["CLUSTER", asTheyAre(cluster)],
    ["PROFILE", asTheyAre(profile)],
    [
      "FIGURES",
      figures.map(({ figure, values }) => ({
        name: RUN_FIGURES[figure].name,
        values: values.map((value) => (value === null ? NONE : RUN_FIGURES[figure].format(value))),
      })),
    ],
    ["LOSS AFTER STEP", lossRows(comparison)],
  ];
  const alike = sections.slice(0, 4).filter(([, rows]) => rows.length === 0);
  return [
    heads,
    ...sections
      .filter(([, rows]) => rows.length > 0)
      .map(([title, rows]) => rowsText(title, rows, ids, colors)),
    ...(alike.length === 0 ? [] : [`alike: ${alike.map(([title]) => title.toLowerCase()).join(", ")}`]),
  ].join("\n\n");
}
