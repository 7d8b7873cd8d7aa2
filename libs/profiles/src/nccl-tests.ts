import {
  MAXIMUM_BYTES,
  printable,
  type Collective,
  type CollectiveCurve,
  type Placement,
  type ProblemError,
} from "@internevo/domain";
import { importFault, LEAST_SECONDS, MOST_SECONDS, PLAIN_NUMBER, type ImportedCurves } from "./imported.ts";

/**
 * Programs of nccl-tests whose size is the full tensor of our curves: the gathered size, the input of a
 * reduce-scatter, all that a rank sends.
 */
const PROGRAMS: Readonly<Record<string, Collective>> = {
  all_reduce: "all-reduce",
  all_gather: "all-gather",
  reduce_scatter: "reduce-scatter",
  alltoall: "all-to-all",
  broadcast: "broadcast",
  sendrecv: "point-to-point",
};
export const NCCL_TEST_PROGRAMS: readonly string[] = Object.keys(PROGRAMS).map((name) => `${name}_perf`);

type Point = CollectiveCurve["points"][number];
interface Device {
  readonly rank: number | null;
  readonly group: number;
  readonly host: string;
}
interface Row {
  readonly place: string;
  /** As the file has them. */
  readonly sizeText: string;
  readonly timeText: string;
  /** The larger count of out-of-place and in-place; 0 where the data was not checked. */
  readonly wrong: number;
}
const MEND = "mend the cluster, and measure again";

/** The largest of counts of wrong values, some of which may be no numbers. */
const mostWrong = (counts: readonly unknown[]): number =>
  Math.max(
    0,
    ...counts.map((count) => {
      const number = typeof count === "object" ? Number.NaN : Number(count);
      return Number.isNaN(number) ? 0 : number;
    }),
  );

/** What a run says of its data in the end. Before 2.11 it is all that tells, as rows have no counts. */
const assertDataRight = (right: boolean, file: string, place: string, said: unknown): void => {
  if (!right) throw importFault(file, place, said, "says that data arrived wrong", MEND);
};

const numberOf = (text: string): number => (PLAIN_NUMBER.test(text) ? Number(text) : Number.NaN);

export interface NcclTestsOptions {
  readonly file: string;
  /** The program, where the output does not name it (before nccl-tests 2.17 it does not). */
  readonly program?: string;
}

function operationOf(named: string | undefined, { file, program }: NcclTestsOptions): Collective {
  const text = program ?? named;
  if (text === undefined)
    throw importFault(
      file,
      "program",
      null,
      "is not named in the output",
      `say which program wrote it: --op ${NCCL_TEST_PROGRAMS.join("|")}`,
    );
  const name = text.replace(/^.*\//, "").replace(/_perf$/, "");
  const op = Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
  if (op === undefined)
    throw importFault(
      file,
      "program",
      text.slice(0, 200),
      "measures nothing that plans use",
      `give the output of ${NCCL_TEST_PROGRAMS.join(", ")}`,
    );
  return op;
}

/** How the ranks of one group lie on hosts; all groups have to be alike. */
function groupOf(devices: readonly Device[], file: string): { groupSize: number; placement: Placement } {
  if (devices.length === 0)
    throw importFault(
      file,
      "devices",
      null,
      "are not listed",
      'keep the head of the output, from "# Using devices" on: it says how many ranks there are, and on which hosts',
    );
  const ranks = new Set<number>();
  for (const { rank } of devices) {
    if (rank === null) continue;
    if (ranks.has(rank))
      throw importFault(
        file,
        "devices",
        rank,
        `list rank ${rank} twice: the file holds more than one run`,
        "give one file a run",
      );
    ranks.add(rank);
  }
  const shapes = [...Map.groupBy(devices, ({ group }) => group).values()].map((members) => {
    const hosts = new Set(members.map(({ host }) => host)).size;
    const spread = hosts === members.length ? "inter-node" : "mixed";
    const placement: Placement = hosts === 1 ? "intra-node" : spread;
    return { groupSize: members.length, placement };
  });
  const first = shapes[0] as { groupSize: number; placement: Placement };
  const other = shapes.find(
    ({ groupSize, placement }) => groupSize !== first.groupSize || placement !== first.placement,
  );
  if (other)
    throw importFault(
      file,
      "devices",
      `${first.groupSize} ${first.placement} and ${other.groupSize} ${other.placement}`,
      "are in groups that are not alike",
      "measure groups of one size and placement at a time",
    );
  if (first.groupSize < 2)
    throw importFault(
      file,
      "devices",
      first.groupSize,
      "is a group of one rank, which communicates with nobody",
      "measure at least two ranks",
    );
  return first;
}

function curveOf(
  op: Collective,
  devices: readonly Device[],
  rows: readonly Row[],
  file: string,
): CollectiveCurve {
  const { groupSize, placement } = groupOf(devices, file);
  const points = new Map<number, Point>();
  for (const { place, sizeText, timeText, wrong } of rows) {
    const [bytes, microseconds] = [numberOf(sizeText), numberOf(timeText)];
    if (!Number.isSafeInteger(bytes) || bytes > MAXIMUM_BYTES)
      throw importFault(
        file,
        `${place}, size`,
        sizeText,
        "is no whole number of bytes",
        "give the output as it was written, measured under LC_ALL=C",
      );
    if (wrong > 0)
      throw importFault(
        file,
        place,
        wrong,
        "counts wrong values: the data that arrived was not what was sent",
        MEND,
      );
    if (bytes === 0) continue;
    if (!(microseconds / 1e6 >= LEAST_SECONDS && microseconds / 1e6 <= MOST_SECONDS))
      throw importFault(
        file,
        `${place}, time`,
        timeText,
        "is no time in microseconds",
        "measure again with more iterations (-n), under LC_ALL=C",
      );
    // A size that was run again: the run that was disturbed less.
    const before = points.get(bytes);
    if (!before || microseconds / 1e6 < before.medianSeconds)
      points.set(bytes, { bytes, medianSeconds: microseconds / 1e6 });
  }
  if (points.size === 0)
    throw importFault(
      file,
      "results",
      rows.length,
      "hold no size above 0",
      "give the whole output of a run that ended",
    );
  // sendrecv passes data around a ring: each rank sends to one and receives from one, which is a message
  // between two.
  return {
    op,
    groupSize: op === "point-to-point" ? 2 : groupSize,
    placement,
    points: [...points.values()].sort((a, b) => a.bytes - b.bytes),
  };
}

const notesOf = (file: string, where: string): string[] => [
  `${file}: nccl-tests gives the mean over its iterations and over ranks, taken as the median here; ${where} times`,
];

type Unknown = Readonly<Record<string, unknown>>;
const recordOf = (value: unknown): Unknown =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Unknown) : {};

function listOf(value: unknown, field: string, file: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value))
    throw importFault(file, field, value, "are no list", "give the report as nccl-tests wrote it");
  return value as readonly unknown[];
}

/** A number of a report as text, so that it is held against the same bounds as one of a table. */
const numberText = (value: unknown): string =>
  typeof value === "number" ? String(value) : (JSON.stringify(value) ?? "nothing").slice(0, 40);

/** What `-J FILE` of nccl-tests writes. */
function parseJson(report: Unknown, options: NcclTestsOptions): ImportedCurves {
  const { file } = options;
  const command = Array.isArray(report["args"]) ? (report["args"][0] as unknown) : undefined;
  const op = operationOf(typeof command === "string" ? command : undefined, options);
  const devices = listOf(recordOf(report["config"])["devices"], "devices", file).map(
    (each, index): Device => {
      const { rank, group = 0, hostname } = recordOf(each);
      if (typeof hostname !== "string" || hostname === "" || !Number.isSafeInteger(group))
        throw importFault(
          file,
          `devices.${index}`,
          each,
          "says no group and host",
          "give the report as nccl-tests wrote it",
        );
      return {
        rank: Number.isSafeInteger(rank) ? (rank as number) : null,
        group: group as number,
        host: hostname,
      };
    },
  );
  const { count, okay } = recordOf(report["out_of_bounds"]);
  assertDataRight(mostWrong([count]) === 0 && okay !== false, file, "out_of_bounds", count);
  let inPlace = false;
  const rows = listOf(report["results"], "results", file).map((each, index): Row => {
    const result = recordOf(each);
    const body = recordOf(result["out_of_place"] ?? result["in_place"]);
    inPlace ||= result["out_of_place"] === null || result["out_of_place"] === undefined;
    if (body["cpu_time"] !== undefined)
      throw importFault(
        file,
        `results.${index}`,
        "cpu_time",
        "is the time of the processor, not of the collective",
        "measure without -C",
      );
    return {
      place: `results.${index}`,
      sizeText: numberText(result["size"]),
      timeText: numberText(body["time"]),
      wrong: mostWrong([body, recordOf(result["in_place"])].map(({ nwrong }) => nwrong)),
    };
  });
  return {
    curves: [curveOf(op, devices, rows, file)],
    versions: typeof report["nccl_version"] === "number" ? { nccl: String(report["nccl_version"]) } : {},
    notes: notesOf(file, inPlace ? "in-place" : "out-of-place"),
  };
}

/** A table has 13 columns. */
const MOST_COLUMNS = 64;
/**
 * What a row of a table begins with, whatever signs a locale puts into numbers. Other lines are a launcher's,
 * or NCCL's log.
 */
const SIZE_LIKE = /^[-+]?\d[\d.,'_]*$/;

const DEVICE_LINE = /^#\s+Rank\s+(\d+)(?:\s+Group\s+(\d+))?\s+Pid\s+\d+\s+on\s+(\S+)\s+device/;

const VERDICT = /# Out of bounds values\s*:(.*)$/;

/** The table that an nccl-tests program prints, read line by line. */
class PrintedTable {
  readonly devices: Device[] = [];
  readonly rows: Row[] = [];
  readonly versions: Record<string, string> = {};
  named: string | undefined;
  columns: string[] | undefined;
  readonly #file: string;

  constructor(file: string) {
    this.#file = file;
  }

  read(line: string, place: string): void {
    const device = DEVICE_LINE.exec(line);
    if (device)
      this.devices.push({
        rank: Number(device[1]),
        group: Number(device[2] ?? 0),
        host: device[3] as string,
      });
    this.named = /^# Collective test starting: (\S+)/.exec(line)?.[1] ?? this.named;
    const library = /nccl-library=(\d+)/.exec(line)?.[1] ?? /NCCL version (\S+)/.exec(line)?.[1];
    if (library !== undefined) this.versions["nccl"] = printable(library).slice(0, 100);
    if (/^#\s+size\s+count\s/.test(line)) this.columns = line.replace(/^#\s*/, "").trim().split(/\s+/);
    const verdict = VERDICT.exec(line)?.[1]?.trim().slice(0, 40) ?? "";
    assertDataRight(!/^\+?0*[1-9]|FAILED/.test(verdict), this.#file, place, verdict);
    const row = this.#rowOf(line, place);
    if (row) this.rows.push(row);
  }

  /** @throws ProblemError `profile-invalid` for a row that cannot be read. @returns undefined for other lines. */
  #rowOf(line: string, place: string): Row | undefined {
    const { columns } = this;
    const fields = line.trim().split(/\s+/, MOST_COLUMNS);
    const [sizeText = ""] = fields;
    if (!SIZE_LIKE.test(sizeText)) return undefined;
    const isWhole = /^\d+$/.test(sizeText);
    const fault = (what: string, remedy: string): ProblemError =>
      importFault(this.#file, place, line.trim().slice(0, 200), what, remedy);
    if (columns === undefined) {
      if (!isWhole) return undefined;
      throw fault("comes before the head of the table", "keep the head of the output: it names the columns");
    }
    const time = columns.indexOf("time");
    if (time < 0)
      throw importFault(
        this.#file,
        "columns",
        columns.join(" "),
        "hold no time of the collective",
        "measure without -C",
      );
    // A row's second number is its count: without one it is a line of something else that begins with digits,
    // such as a date or an address.
    if (!isWhole && (fields.length < columns.length || !SIZE_LIKE.test(fields[1] ?? ""))) return undefined;
    if (fields.length < columns.length) throw fault("is cut off", "give the whole output");
    // Out-of-place and in-place have a time each: the first is out-of-place.
    return {
      place,
      sizeText,
      timeText: fields[time] as string,
      wrong: mostWrong(fields.filter((_, at) => columns[at] === "#wrong")),
    };
  }
}

/** @throws ProblemError `profile-invalid` for a report that is no JSON. */
function reportOf(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw importFault(
      file,
      "JSON",
      text.slice(0, 40),
      `is broken: ${(error as Error).message}`,
      "give the whole report; a run that was killed leaves none",
    );
  }
}

/**
 * One curve from the output of an nccl-tests program: its table, or its JSON report (`-J`). Sizes agree with
 * those of profiles; times are means in microseconds. Option names and formats: nccl-tests 2.10 to 2.17.
 * @throws ProblemError `profile-invalid` naming file, line and remedy.
 */
export function parseNcclTests(text: string, options: NcclTestsOptions): ImportedCurves {
  const { file } = options;
  if (text.trimStart().startsWith("{")) return parseJson(recordOf(reportOf(text, file)), options);
  const table = new PrintedTable(file);
  for (const [index, line] of text.split(/\r?\n/).entries()) table.read(line, `line ${index + 1}`);
  if (table.columns === undefined)
    throw importFault(
      file,
      "table",
      text.slice(0, 40).trim(),
      "is not there: this is no output of nccl-tests",
      `give what ${NCCL_TEST_PROGRAMS.join(", ")} prints, or its report of -J`,
    );
  return {
    curves: [curveOf(operationOf(table.named, options), table.devices, table.rows, file)],
    versions: table.versions,
    notes: notesOf(file, "out-of-place"),
  };
}
