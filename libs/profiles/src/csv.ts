import { COLLECTIVES, PLACEMENTS, type Collective, type CollectiveCurve, type Placement } from "@internevo/domain";
import { csvFormat, csvParse } from "d3-dsv";
import { curveKey, importFault, type ImportedCurves } from "./imported.ts";

const REQUIRED = ["op", "groupSize", "placement", "bytes", "medianSeconds"] as const;
const OPTIONAL = ["p10Seconds", "p90Seconds", "samples"] as const;

type Point = CollectiveCurve["points"][number];

/**
 * Curves from comma-separated values with a head: op, groupSize, placement, bytes, medianSeconds, and where known p10Seconds, p90Seconds, samples;
 * one point a line, in any order. `bytes` counts the full tensor, as in profiles.
 * @throws ProblemError `profile-invalid` naming file, line and column.
 */
export function parseCurvesCsv(text: string, file: string): ImportedCurves {
  const rows = csvParse(text.replace(/^\uFEFF/, ""));
  const missing = REQUIRED.filter((column) => !rows.columns.includes(column));
  if (missing.length > 0) throw importFault(file, "line 1", rows.columns.join(","), `lacks the columns ${missing.join(", ")}`, `begin the file with ${[...REQUIRED, ...OPTIONAL].join(",")}; the last three may be left out`);
  const unknown = rows.columns.filter((column) => !([...REQUIRED, ...OPTIONAL] as string[]).includes(column));
  if (unknown.length > 0) throw importFault(file, "line 1", unknown.join(","), "is no known column", `use ${[...REQUIRED, ...OPTIONAL].join(",")}`);
  if (rows.length === 0) throw importFault(file, "line 2", "", "is missing: there is no point", "give one line a measured point");
  const curves = new Map<string, CollectiveCurve>();
  for (const [index, row] of rows.entries()) {
    const line = `line ${index + 2}`;
    const text = (column: string): string => (row[column] ?? "").trim();
    const oneOf = <T extends string>(column: string, known: readonly T[]): T => {
      const value = text(column);
      if (!(known as readonly string[]).includes(value)) throw importFault(file, `${line}, ${column}`, value, "is not known", `use one of ${known.join(", ")}`);
      return value as T;
    };
    const number = (column: string, whole: boolean): number => {
      const value = Number(text(column));
      if (text(column) === "" || !(value > 0) || !Number.isFinite(value) || (whole && !Number.isSafeInteger(value))) throw importFault(file, `${line}, ${column}`, text(column), `is no ${whole ? "whole number from 1" : "time in seconds"}`, whole ? "give a whole number" : "give a number above 0, e.g. 1.5e-5");
      return value;
    };
    const op: Collective = oneOf("op", COLLECTIVES);
    const placement: Placement = oneOf("placement", PLACEMENTS);
    const point: Point = { bytes: number("bytes", true), medianSeconds: number("medianSeconds", false) };
    for (const column of OPTIONAL) if (text(column) !== "") point[column] = number(column, column === "samples");
    const curve: CollectiveCurve = { op, groupSize: number("groupSize", true), placement, points: [point] };
    const known = curves.get(curveKey(curve));
    if (known) known.points.push(point);
    else curves.set(curveKey(curve), curve);
  }
  for (const { points } of curves.values()) points.sort((a, b) => a.bytes - b.bytes);
  return { curves: [...curves.values()], versions: {}, notes: [] };
}

/** Curves as `parseCurvesCsv` reads them. */
export function curvesCsv(curves: readonly CollectiveCurve[]): string {
  const rows = curves.flatMap(({ op, groupSize, placement, points }) => points.map((point) => ({ op, groupSize, placement, ...point })));
  return `${csvFormat(rows, [...REQUIRED, ...OPTIONAL])}\n`;
}
