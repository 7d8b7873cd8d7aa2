type Value = string | number | boolean | null | undefined;

/** A field that begins as a formula would be computed by a spreadsheet; a quote before it makes it text. */
const harmless = (text: string): string =>
  /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;

function cell(value: Value): string {
  const text = typeof value === "string" ? harmless(value) : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

type CsvRow = Readonly<Record<string, Value>>;

/** Rows of those fields as CSV (RFC 4180), without their names. */
export const csvRows = (rows: readonly CsvRow[], names: readonly string[]): string =>
  rows.map((row) => `${names.map((name) => cell(row[name])).join(",")}\r\n`).join("");

/** The first line of such rows. */
export const csvHead = (names: readonly string[]): string => `${names.join(",")}\r\n`;

/** Rows as CSV (RFC 4180), with the names of their fields first. */
export function csvText(rows: readonly CsvRow[]): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return csvHead(names) + csvRows(rows, names);
}
