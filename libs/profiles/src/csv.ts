import {
  COLLECTIVES,
  MAXIMUM_BYTES,
  MAXIMUM_RANKS,
  PLACEMENTS,
  type Collective,
  type CollectiveCurve,
  type Placement,
  type ProblemError,
} from "@internevo/domain";
import { csvFormat, csvParseRows } from "d3-dsv";
import {
  curveKey,
  importFault,
  LEAST_SECONDS,
  MOST_SECONDS,
  PLAIN_NUMBER,
  type ImportedCurves,
} from "./imported.ts";

const REQUIRED = ["op", "groupSize", "placement", "bytes", "medianSeconds"] as const;
const OPTIONAL = ["p10Seconds", "p90Seconds", "samples"] as const;

const MOST_SAMPLES = 1e12;

type Point = CollectiveCurve["points"][number];

/** The columns that the head names. @throws ProblemError `profile-invalid`. */
function columnsOf(head: readonly string[] | undefined, file: string): readonly string[] {
  const columns = head ?? [];
  const wanted = [...REQUIRED, ...OPTIONAL].join(",");
  const missing = REQUIRED.filter((column) => !columns.includes(column));
  if (missing.length > 0)
    throw importFault(
      file,
      "line 1",
      columns.join(",").slice(0, 200),
      `lacks the columns ${missing.join(", ")}`,
      `begin the file with ${wanted}; the last three may be left out`,
    );
  const unknown = columns.filter((column) => !([...REQUIRED, ...OPTIONAL] as string[]).includes(column));
  if (unknown.length > 0)
    throw importFault(file, "line 1", unknown.join(",").slice(0, 200), "is no known column", `use ${wanted}`);
  const twice = columns.find((column, index) => columns.indexOf(column) !== index);
  if (twice !== undefined)
    throw importFault(file, "line 1", twice, `names ${twice} twice`, "give each column once");
  return columns;
}

/** One line of the file, by the names of its columns. */
class CsvLine {
  readonly #file: string;
  readonly #line: string;
  readonly #columns: readonly string[];
  readonly #values: readonly string[];

  constructor(file: string, line: string, columns: readonly string[], values: readonly string[]) {
    this.#file = file;
    this.#line = line;
    this.#columns = columns;
    this.#values = values;
    if (values.length !== columns.length)
      throw importFault(
        file,
        line,
        values.join(",").slice(0, 200),
        `has ${values.length} values for ${columns.length} columns`,
        "give one value a column; a comma parts values, and stands in no number",
      );
  }

  /** Its point, in a curve of its own. */
  curve(): CollectiveCurve {
    const op: Collective = this.#oneOf("op", COLLECTIVES);
    const placement: Placement = this.#oneOf("placement", PLACEMENTS);
    const point: Point = {
      bytes: this.#whole("bytes", 1, MAXIMUM_BYTES),
      medianSeconds: this.#seconds("medianSeconds"),
    };
    for (const column of OPTIONAL)
      if (this.#text(column) !== "")
        point[column] = column === "samples" ? this.#whole(column, 1, MOST_SAMPLES) : this.#seconds(column);
    return { op, groupSize: this.#whole("groupSize", 2, MAXIMUM_RANKS), placement, points: [point] };
  }

  fault(column: string, value: string | number, what: string, remedy: string): ProblemError {
    return importFault(this.#file, `${this.#line}, ${column}`, value, what, remedy);
  }

  #text(column: string): string {
    return this.#values[this.#columns.indexOf(column)] ?? "";
  }

  #oneOf<T extends string>(column: string, known: readonly T[]): T {
    const value = this.#text(column);
    if (!(known as readonly string[]).includes(value))
      throw this.fault(column, value, "is not known", `use one of ${known.join(", ")}`);
    return value as T;
  }

  #number(column: string, isPossible: (value: number) => boolean, what: string, remedy: string): number {
    const text = this.#text(column);
    const value = PLAIN_NUMBER.test(text) ? Number(text) : Number.NaN;
    if (!isPossible(value)) throw this.fault(column, text, `is no ${what}`, remedy);
    return value;
  }

  #whole(column: string, least: number, most: number): number {
    return this.#number(
      column,
      (value) => Number.isSafeInteger(value) && value >= least && value <= most,
      `whole number from ${least} to ${most}`,
      "give a whole number, without unit",
    );
  }

  #seconds(column: string): number {
    return this.#number(
      column,
      (value) => value >= LEAST_SECONDS && value <= MOST_SECONDS,
      "time in seconds",
      "give a number above 0, e.g. 1.5e-5",
    );
  }
}

/**
 * Curves from comma-separated values with a head: op, groupSize, placement, bytes, medianSeconds, and where
 * known p10Seconds, p90Seconds, samples; one point a line, in any order. `bytes` counts the full tensor, as
 * in profiles.
 * @throws ProblemError `profile-invalid` naming file, line and column.
 */
export function parseCurvesCsv(text: string, file: string): ImportedCurves {
  const table = csvParseRows(text.replace(/^\uFEFF/, ""))
    .map((values, index) => ({ values: values.map((value) => value.trim()), line: index + 1 }))
    .filter(({ values }) => values.some((value) => value !== ""));
  const [head, ...rows] = table;
  const columns = columnsOf(head?.values, file);
  if (rows.length === 0)
    throw importFault(file, "line 2", "", "is missing: there is no point", "give one line a measured point");
  const curves = new Map<string, CollectiveCurve>();
  const seen = new Map<string, string>();
  for (const { values, line: at } of rows) {
    const line = new CsvLine(file, `line ${at}`, columns, values);
    const curve = line.curve();
    const [point] = curve.points as [Point];
    const key = `${curveKey(curve)} ${point.bytes}`;
    const before = seen.get(key);
    if (before !== undefined)
      throw line.fault(
        "bytes",
        point.bytes,
        `is there twice: ${before} has this size of the same curve`,
        "give each size once",
      );
    seen.set(key, `line ${at}`);
    const known = curves.get(curveKey(curve));
    if (known) known.points.push(point);
    else curves.set(curveKey(curve), curve);
  }
  for (const { points } of curves.values()) points.sort((a, b) => a.bytes - b.bytes);
  return { curves: [...curves.values()], versions: {}, notes: [] };
}

/** Curves as `parseCurvesCsv` reads them. */
export function curvesCsv(curves: readonly CollectiveCurve[]): string {
  const rows = curves.flatMap(({ op, groupSize, placement, points }) =>
    points.map((point) => ({ op, groupSize, placement, ...point })),
  );
  return `${csvFormat(rows, [...REQUIRED, ...OPTIONAL])}\n`;
}
