import type { Collective, CollectiveCurve, Placement } from "@internevo/domain";
import { importFault, type ImportedCurves } from "./imported.ts";

/** Programs of nccl-tests whose size is the full tensor of our curves: the gathered size, the input of a reduce-scatter, all that a rank sends. */
const PROGRAMS: Readonly<Record<string, Collective>> = {
  all_reduce: "all-reduce", all_gather: "all-gather", reduce_scatter: "reduce-scatter", alltoall: "all-to-all", broadcast: "broadcast", sendrecv: "point-to-point",
};
export const NCCL_TEST_PROGRAMS: readonly string[] = Object.keys(PROGRAMS).map((name) => `${name}_perf`);

type Point = CollectiveCurve["points"][number];
interface Device {
  readonly group: number;
  readonly host: string;
}
interface Row {
  readonly place: string;
  readonly bytes: number;
  readonly microseconds: number;
  readonly wrong: number;
}

export interface NcclTestsOptions {
  readonly file: string;
  /** The program, where the output does not name it (before nccl-tests 2.17 it does not). */
  readonly program?: string;
}

function operationOf(named: string | undefined, { file, program }: NcclTestsOptions): Collective {
  const text = program ?? named;
  if (text === undefined) throw importFault(file, "program", null, "is not named in the output", `say which program wrote it: --op ${NCCL_TEST_PROGRAMS.join("|")}`);
  const op = PROGRAMS[text.replace(/^.*\//, "").replace(/_perf$/, "")];
  if (op === undefined) throw importFault(file, "program", text, "measures nothing that plans use", `give the output of ${NCCL_TEST_PROGRAMS.join(", ")}`);
  return op;
}

/** How the ranks of one group lie on hosts; all groups have to be alike. */
function groupOf(devices: readonly Device[], file: string): { groupSize: number; placement: Placement } {
  if (devices.length === 0) throw importFault(file, "devices", null, "are not listed", "keep the head of the output, from \"# Using devices\" on: it says how many ranks there are, and on which hosts");
  const shapes = [...Map.groupBy(devices, ({ group }) => group).values()].map((members) => {
    const hosts = new Set(members.map(({ host }) => host)).size;
    const placement: Placement = hosts === 1 ? "intra-node" : hosts === members.length ? "inter-node" : "mixed";
    return { groupSize: members.length, placement };
  });
  const first = shapes[0] as { groupSize: number; placement: Placement };
  const other = shapes.find(({ groupSize, placement }) => groupSize !== first.groupSize || placement !== first.placement);
  if (other) throw importFault(file, "devices", `${first.groupSize} ${first.placement} and ${other.groupSize} ${other.placement}`, "are in groups that are not alike", "measure groups of one size and placement at a time");
  if (first.groupSize < 2) throw importFault(file, "devices", first.groupSize, "is a group of one rank, which communicates with nobody", "measure at least two ranks");
  return first;
}

function curveOf(op: Collective, devices: readonly Device[], rows: readonly Row[], file: string): CollectiveCurve {
  const { groupSize, placement } = groupOf(devices, file);
  const points = new Map<number, Point>();
  for (const { place, bytes, microseconds, wrong } of rows) {
    if (bytes === 0) continue;
    if (wrong > 0) throw importFault(file, place, wrong, "counts wrong values: the data that arrived was not what was sent", "mend the cluster, and measure again");
    if (!(microseconds > 0) || !Number.isFinite(microseconds)) throw importFault(file, `${place}, time`, microseconds, "is no time", "measure again with more iterations (-n)");
    // A size that was run again: the run that was disturbed less.
    const before = points.get(bytes);
    if (!before || microseconds / 1e6 < before.medianSeconds) points.set(bytes, { bytes, medianSeconds: microseconds / 1e6 });
  }
  if (points.size === 0) throw importFault(file, "results", rows.length, "hold no size above 0", "give the whole output of a run that ended");
  // sendrecv passes data around a ring: each rank sends to one and receives from one, which is a message between two.
  return { op, groupSize: op === "point-to-point" ? 2 : groupSize, placement, points: [...points.values()].sort((a, b) => a.bytes - b.bytes) };
}

const notesOf = (file: string, where: string): string[] => [`${file}: nccl-tests gives the mean over its iterations and over ranks, taken as the median here; ${where} times`];

interface JsonReport {
  readonly args?: readonly unknown[];
  readonly nccl_version?: unknown;
  readonly config?: { readonly devices?: readonly { readonly group?: unknown; readonly hostname?: unknown }[] };
  readonly results?: readonly Record<string, unknown>[];
}

/** What `-J FILE` of nccl-tests writes. */
function parseJson(report: JsonReport, options: NcclTestsOptions): ImportedCurves {
  const { file } = options;
  const [command] = report.args ?? [];
  const op = operationOf(typeof command === "string" ? command : undefined, options);
  const devices = (report.config?.devices ?? []).map(({ group, hostname }) => ({ group: Number(group), host: String(hostname) }));
  let inPlace = false;
  const rows = (report.results ?? []).map((result, index): Row => {
    const body = (result["out_of_place"] ?? result["in_place"] ?? {}) as Record<string, unknown>;
    inPlace ||= result["out_of_place"] === null || result["out_of_place"] === undefined;
    if (body["cpu_time"] !== undefined) throw importFault(file, `results.${index}`, "cpu_time", "is the time of the processor, not of the collective", "measure without -C");
    const wrong = Number(body["nwrong"] ?? 0);
    return { place: `results.${index}`, bytes: Number(result["size"]), microseconds: Number(body["time"]), wrong: Number.isNaN(wrong) ? 0 : wrong };
  });
  return { curves: [curveOf(op, devices, rows, file)], versions: typeof report.nccl_version === "number" ? { nccl: String(report.nccl_version) } : {}, notes: notesOf(file, inPlace ? "in-place" : "out-of-place") };
}

const DEVICE_LINE = /^#\s+Rank\s+\d+(?:\s+Group\s+(\d+))?\s+Pid\s+\d+\s+on\s+(\S+)\s+device/;

/**
 * One curve from the output of an nccl-tests program: its table, or its JSON report (`-J`). Sizes agree with those of profiles; times are means
 * in microseconds. Option names and formats: nccl-tests 2.10 to 2.17.
 * @throws ProblemError `profile-invalid` naming file, line and remedy.
 */
export function parseNcclTests(text: string, options: NcclTestsOptions): ImportedCurves {
  const { file } = options;
  if (text.trimStart().startsWith("{")) {
    let report: unknown;
    try {
      report = JSON.parse(text);
    } catch (error) {
      throw importFault(file, "JSON", text.slice(0, 40), `is broken: ${(error as Error).message}`, "give the whole report; a run that was killed leaves none");
    }
    return parseJson(report as JsonReport, options);
  }
  let named: string | undefined;
  let columns: string[] | undefined;
  const versions: Record<string, string> = {};
  const devices: Device[] = [];
  const rows: Row[] = [];
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const place = `line ${index + 1}`;
    const device = DEVICE_LINE.exec(line);
    if (device) devices.push({ group: Number(device[1] ?? 0), host: device[2] as string });
    named = /^# Collective test starting: (\S+)/.exec(line)?.[1] ?? named;
    const library = /nccl-library=(\d+)/.exec(line)?.[1] ?? /NCCL version (\S+)/.exec(line)?.[1];
    if (library !== undefined) versions["nccl"] = library;
    if (/^#\s+size\s+count\s/.test(line)) columns = line.replace(/^#\s*/, "").trim().split(/\s+/);
    if (!/^\s*\d+\s/.test(line)) continue;
    if (columns === undefined) throw importFault(file, place, line.trim(), "comes before the head of the table", "keep the head of the output: it names the columns");
    const fields = line.trim().split(/\s+/);
    const time = columns.indexOf("time");
    if (time < 0) throw importFault(file, "columns", columns.join(" "), "hold no time of the collective", "measure without -C");
    // Out-of-place and in-place have a time each: the first is out-of-place.
    const wrong = columns.findIndex((column) => column === "#wrong" || column === "error");
    if (fields.length <= time) throw importFault(file, place, line.trim(), "is cut off", "give the whole output");
    const wrongValues = Number(fields[wrong]);
    rows.push({ place, bytes: Number(fields[0]), microseconds: Number(fields[time]), wrong: columns[wrong] === "#wrong" && Number.isFinite(wrongValues) ? wrongValues : 0 });
  }
  if (columns === undefined) throw importFault(file, "table", text.slice(0, 40).trim(), "is not there: this is no output of nccl-tests", `give what ${NCCL_TEST_PROGRAMS.join(", ")} prints, or its report of -J`);
  return { curves: [curveOf(operationOf(named, options), devices, rows, file)], versions, notes: notesOf(file, "out-of-place") };
}
