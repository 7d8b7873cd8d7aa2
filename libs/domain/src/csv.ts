type Value = string | number | boolean | null | undefined;

/** A field that begins as a formula would be computed by a spreadsheet; a quote before it makes it text. */
const harmless = (text: string): string =>
  /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;

function cell(value: Value): string {
  const text = typeof value === "string" ? harmless(value) : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV (RFC 4180), with the names of their fields first. */
export function csvText(rows: readonly Readonly<Record<string, Value>>[]): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return [names.join(","), ...rows.map((row) => names.map((name) => cell(row[name])).join(","))]
    .map((line) => `${line}\r\n`)
    .join("");
}
