import { stripVTControlCharacters } from "node:util";
import { ApiProblemError } from "@internevo/client";
import { printable, printableJson, ProblemError, shortened, type ProblemDetail } from "@internevo/domain";
import Table from "cli-table3";
import picocolors from "picocolors";
import { inCommands } from "./remedies.ts";

/**
 * Colours, and the columns of a terminal that what is written in them has to fit; elsewhere there is no such
 * bound.
 */
export type Colors = ReturnType<typeof picocolors.createColors> & { readonly width?: number };

/** Where the program speaks: data to stdout, everything else to stderr. */
export interface Output {
  readonly json: boolean;
  /** Colours of stdout; plain when it is no terminal, or NO_COLOR is set. */
  readonly colors: Colors;
  readonly isTerminal: boolean;
  /** One line of data. */
  data(line: string): void;
  /** A document: one JSON value. */
  document(value: unknown): void;
  /** One line for the person. */
  note(line: string): void;
  /** Rewrites the last line of a terminal; nothing elsewhere. Empty text clears it. */
  status(line: string): void;
}

export interface OutputStreams {
  readonly stdout: NodeJS.WritableStream & { isTTY?: boolean; columns?: number };
  readonly stderr: NodeJS.WritableStream & { isTTY?: boolean; columns?: number };
  readonly env: NodeJS.ProcessEnv;
}

const noColor = (env: NodeJS.ProcessEnv): boolean => (env["NO_COLOR"] ?? "") !== "" || env["TERM"] === "dumb";

/** Line ends, tabs, and the colours that this program writes: none of them hides or moves anything. */
const OWN = /(\n|\t|\u001b\[(?:[0-4]|7|9|2[1-9]|[349]\d|10[0-7])m)/;
const OWN_PLAIN = /(\n|\t)/;

/**
 * Lines for a terminal or a file. Whatever else is in them that a terminal obeys came from elsewhere, and is
 * written as JSON would escape it.
 */
const harmless = (text: string, hasColors: boolean): string =>
  text
    .split(hasColors ? OWN : OWN_PLAIN)
    .map((part, index) => (index % 2 === 1 ? part : printable(part)))
    .join("");

export function createOutput(streams: OutputStreams, json: boolean): Output {
  const width = streams.stdout.isTTY === true ? streams.stdout.columns : undefined;
  const colors: Colors = {
    ...picocolors.createColors(streams.stdout.isTTY === true && !noColor(streams.env) && !json),
    ...(width === undefined ? {} : { width }),
  };
  const isTerminal = streams.stderr.isTTY === true && streams.env["TERM"] !== "dumb";
  let statusShown = false;
  const clear = (): void => {
    if (statusShown) streams.stderr.write("\r\u001b[2K");
    statusShown = false;
  };
  return {
    json,
    colors,
    isTerminal,
    data(line) {
      clear();
      streams.stdout.write(`${harmless(line, colors.isColorSupported)}\n`);
    },
    document(value) {
      clear();
      streams.stdout.write(`${harmless(JSON.stringify(value, null, 2), false)}\n`);
    },
    note(line) {
      clear();
      streams.stderr.write(`${harmless(line, colors.isColorSupported)}\n`);
    },
    status(line) {
      if (!isTerminal) return;
      clear();
      if (line === "") return;
      streams.stderr.write(printable(line).slice(0, (streams.stderr.columns ?? 80) - 1));
      statusShown = true;
    },
  };
}

export interface Column<T> {
  readonly title: string;
  readonly align?: "left" | "right";
  readonly value: (row: T) => string;
  /** On a terminal that is too narrow it has a line of its own below its row. */
  readonly below?: boolean;
  /**
   * Longer values, which have no colours, lose their middle; on a terminal that is too narrow, more of it.
   * JSON has the whole.
   */
  readonly most?: number;
  /**
   * On a terminal that is still too narrow it is left out, the column with the greatest number first; JSON
   * and wider terminals have it.
   */
  readonly spare?: number;
}

const visibleLength = (line: string): number => stripVTControlCharacters(line).length;

/** What a shortened value keeps at least, in characters. */
const LEAST_OF_VALUE = 12;

/** The columns with their long values shortened, and by so many characters more where there is no room. */
const bounded = <T>(columns: readonly Column<T>[], less = 0): Column<T>[] =>
  columns.map((column) => {
    const { most, value } = column;
    return most === undefined
      ? column
      : { ...column, value: (row: T) => shortened(value(row), Math.max(LEAST_OF_VALUE, most - less)) };
  });

/**
 * A table without frames, so that a shell can cut it as well; on a narrow terminal, what is longest has lines
 * of its own, and what can be spared is left out.
 */
export function table<T>(all: readonly Column<T>[], rows: readonly T[], colors: Colors): string {
  const { width } = colors;
  const columns = bounded(all);
  const fits = (text: string): boolean =>
    width === undefined || text.split("\n").every((line) => visibleLength(line) <= width);
  const apart = columns.filter(({ below }) => below === true);
  let text = tableText(columns, rows, colors);
  if (fits(text)) return text;
  let beside = columns.filter(({ below }) => below !== true);
  text = tableText(beside, rows, colors);
  for (const { spare } of columns
    .filter((one) => one.spare !== undefined)
    .sort((a, b) => (b.spare as number) - (a.spare as number))) {
    if (fits(text)) break;
    beside = beside.filter((one) => one.spare !== spare);
    text = tableText(beside, rows, colors);
  }
  // What cannot be spared is shortened further, as far as it takes.
  const most = Math.max(0, ...beside.map((column) => column.most ?? 0));
  for (let less = 4; !fits(text) && most - less >= LEAST_OF_VALUE; less += 4)
    text = tableText(bounded(beside, less), rows, colors);
  const [head = "", ...lines] = text.split("\n");
  if (apart.length === 0) return text;
  return [
    head,
    ...apart.map(({ title }) => `    ${colors.bold(title)}`),
    ...lines.flatMap((line, index) => [line, ...apart.map(({ value }) => `    ${value(rows[index] as T)}`)]),
  ].join("\n");
}

function tableText<T>(columns: readonly Column<T>[], rows: readonly T[], colors: Colors): string {
  const none = {
    top: "",
    "top-mid": "",
    "top-left": "",
    "top-right": "",
    bottom: "",
    "bottom-mid": "",
    "bottom-left": "",
    "bottom-right": "",
    left: "",
    "left-mid": "",
    mid: "",
    "mid-mid": "",
    right: "",
    "right-mid": "",
    middle: "  ",
  };
  const built = new Table({
    head: columns.map((column) => colors.bold(column.title)),
    colAligns: columns.map((column) => column.align ?? "left"),
    chars: none,
    style: { head: [], border: [], "padding-left": 0, "padding-right": 0 },
  });
  for (const row of rows) built.push(columns.map((column) => column.value(row)));
  return built
    .toString()
    .split("\n")
    .map((line) => line.trimEnd())
    .join("\n");
}

const shown = (value: unknown): string => {
  const text = typeof value === "number" ? String(value) : printableJson(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
};

function detailLines(detail: ProblemDetail): string {
  // That nothing was given the message says.
  const isAbsent = detail.value === undefined || (detail.value === null && detail.message === "is missing");
  const value = "value" in detail && !isAbsent ? ` (is ${shown(detail.value)})` : "";
  const remedy = `    → ${printable(detail.remedy)}`;
  if (detail.excerpt === undefined)
    return `  ${printable(detail.field)}${value}: ${printable(detail.message)}\n${remedy}`;
  const excerpt = detail.excerpt.split("\n").map((line) => `      ${printable(line)}`);
  return [`  ${printable(detail.field)} ${printable(detail.message)}:`, ...excerpt, remedy].join("\n");
}

function detailsOf(error: unknown): readonly ProblemDetail[] {
  if (error instanceof ProblemError) return error.details;
  return error instanceof ApiProblemError ? (error.problem.errors ?? []).map(inCommands) : [];
}

/** What a person, or with --json a program, reads about an error. Goes to stderr. */
export function describeError(error: unknown, json: boolean): string {
  const code = error instanceof ProblemError || error instanceof ApiProblemError ? error.code : undefined;
  const details = detailsOf(error);
  const message = error instanceof Error ? error.message : String(error);
  const traceId = error instanceof ApiProblemError ? error.problem.traceId : undefined;
  if (json)
    return printableJson({
      error: {
        code: code ?? "failed",
        message,
        ...(details.length > 0 ? { errors: details } : {}),
        ...(traceId === undefined ? {} : { traceId }),
      },
    });
  // A problem repeats what it was given, which may be anything; other errors are the program's own, in lines.
  const said = code === undefined ? message.split("\n").map(printable).join("\n") : printable(message);
  return [
    `internevo: ${said}`,
    ...details.map(detailLines),
    ...(code === "internal" && traceId !== undefined ? [`  trace ${traceId}`] : []),
  ].join("\n");
}

/**
 * What an answer rests on, said beside it: one note as it is, more of them as their number, until they are
 * asked for.
 */
export function showNotes(notes: readonly string[], output: Output, all: boolean): void {
  if (all || notes.length <= 1) for (const note of notes) output.note(`note: ${note}`);
  else output.note(`${notes.length} notes on what these figures rest on: read them with --notes`);
}

export const NOTES_OPTION = [
  "--notes",
  "say what the figures rest on: what the profile lacks, and what stands for it",
] as const;
