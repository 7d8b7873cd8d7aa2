import { parseQuantity, readMemory } from "@internevo/domain";
import type { SweptAxis } from "@internevo/contracts";

const MOST = 64;

export type AxisValues = { readonly values: number[] } | { readonly fault: string };

function valueOf(
  axis: SweptAxis,
  part: string,
): number | { readonly message: string; readonly remedy: string } | undefined {
  const text = part.trim();
  if (text === "") return undefined;
  if (axis === "memory") {
    const memory = readMemory(text);
    return "bytes" in memory ? memory.bytes : memory;
  }
  const value = axis === "sequence" || axis === "batch" ? parseQuantity(text, "lengthTokens") : Number(text);
  return value !== undefined && Number.isFinite(value) && value > 0 ? value : undefined;
}

/**
 * Values of a sweep as the command line takes them, with units as job files have them: "4k, 8k"; "a..b"
 * doubles from a to b.
 */
export function axisValues(axis: SweptAxis, text: string): AxisValues {
  const values: number[] = [];
  for (const part of text.split(",")) {
    const ends = part.split("..");
    const bounds = ends.map((end) => valueOf(axis, end));
    const refused = bounds.find((bound) => typeof bound === "object");
    if (refused !== undefined) return { fault: `“${part.trim()}” ${refused.message}; ${refused.remedy}` };
    const from = bounds[0],
      to = bounds.at(-1);
    if (ends.length > 2 || typeof from !== "number" || typeof to !== "number")
      return { fault: `“${part.trim()}” is no value here; write for example ${EXAMPLES[axis]}` };
    if (to < from) return { fault: `${part.trim()} goes down; write the smaller value first` };
    for (let value = from; value <= to; value *= 2) {
      values.push(value);
      if (values.length > MOST) return { fault: `these are more than ${MOST} values` };
    }
  }
  return { values: [...new Set(values)].sort((a, b) => a - b) };
}

/** Values of which each is one, for whoever wrote none, and where nothing is known of the job. */
export const EXAMPLES: Readonly<Record<SweptAxis, string>> = {
  sequence: "4k..256k",
  nodes: "1..32",
  batch: "1M..16M",
  memory: "16GB, 24GB, 40GB, 80GB",
  "intra-node-bandwidth": "0.5, 1, 2, 4",
  "inter-node-bandwidth": "0.25..4",
  "compute-speed": "0.5, 1, 2, 4",
};

/** What is known of a job before it is asked about. */
export interface JobSizes {
  readonly sequenceLengthTokens: number | undefined;
  readonly globalBatchTokens: number | undefined;
  readonly nodes: number | undefined;
  readonly memoryPerGpuBytes: number | undefined;
}

const BINARY = [
  ["M", 2 ** 20],
  ["k", 2 ** 10],
  ["", 1],
] as const;
const BYTES = [
  ["GB", 1e9],
  ["GiB", 2 ** 30],
  ["MB", 1e6],
  ["MiB", 2 ** 20],
  ["", 1],
] as const;

/**
 * A range that doubles from a value halved up to `halvings` times to one doubled up to `doublings` times, as
 * far as it may.
 */
function around(
  value: number,
  [halvings, doublings]: readonly [number, number],
  may: (value: number) => boolean,
  units: readonly (readonly [string, number])[],
): string {
  let [from, to] = [value, value];
  for (let index = 0; index < halvings && Number.isInteger(from / 2) && may(from / 2); index += 1) from /= 2;
  for (let index = 0; index < doublings && may(to * 2); index += 1) to *= 2;
  const [unit, size] = units.find(([, each]) => from % each === 0) ?? ["", 1];
  return from === to ? `${from / size}${unit}` : `${from / size}${unit}..${to / size}${unit}`;
}

/** What is asked for at first: values on both sides of the job's own, of which a plan can be made. */
export function firstValues(
  axis: SweptAxis,
  { sequenceLengthTokens: length, globalBatchTokens: batch, nodes, memoryPerGpuBytes: memory }: JobSizes,
): string {
  if (axis === "sequence" && length !== undefined)
    return around(length, [2, 4], (value) => batch === undefined || batch % value === 0, BINARY);
  if (axis === "batch" && batch !== undefined)
    return around(batch, [2, 2], (value) => length === undefined || value % length === 0, BINARY);
  if (axis === "nodes" && nodes !== undefined) return around(nodes, [2, 2], () => true, [["", 1]]);
  if (axis === "memory" && memory !== undefined) return around(memory, [1, 2], () => true, BYTES);
  return EXAMPLES[axis];
}

/** Why a sweep's values are there before anybody wrote some. */
export function whyFirstValues(axis: SweptAxis, sizes: JobSizes): string {
  const { sequenceLengthTokens, globalBatchTokens, nodes, memoryPerGpuBytes } = sizes;
  const known: Partial<Record<SweptAxis, readonly [unknown, string]>> = {
    sequence: [sequenceLengthTokens, "the job’s own length, halved and doubled while it divides the batch"],
    batch: [globalBatchTokens, "the job’s own batch, halved and doubled while sequences divide it"],
    nodes: [nodes, "the job’s own nodes, halved and doubled"],
    memory: [memoryPerGpuBytes, "the job’s own memory, halved and doubled"],
  };
  const [size, why] = known[axis] ?? [null, "less and more than what was measured, which is 1"];
  return `Filled in for you: ${size === undefined ? "an example, for the job says none" : why}.`;
}
