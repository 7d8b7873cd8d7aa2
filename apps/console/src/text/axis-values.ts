import { parseBytes } from "@internevo/domain";
import type { SweptAxis } from "@internevo/contracts";

const MOST = 64;

export type AxisValues = { readonly values: number[] } | { readonly fault: string };

function valueOf(axis: SweptAxis, part: string): number | undefined {
  const text = part.trim();
  if (text === "") return undefined;
  const binary = /^(\d+)([kKmM])$/.exec(text);
  if ((axis === "sequence" || axis === "batch") && binary) return Number(binary[1]) * (binary[2]?.toLowerCase() === "k" ? 2 ** 10 : 2 ** 20);
  const value = axis === "memory" ? parseBytes(text) : Number(text);
  return value !== undefined && Number.isFinite(value) && value > 0 ? value : undefined;
}

/** Values of a sweep as the command line takes them: "4k, 8k" (k and m of tokens are powers of two), bytes with units for memory, "a..b" doubles from a to b. */
export function axisValues(axis: SweptAxis, text: string): AxisValues {
  const values: number[] = [];
  for (const part of text.split(",")) {
    const ends = part.split("..");
    const bounds = ends.map((end) => valueOf(axis, end));
    const from = bounds[0], to = bounds.at(-1);
    if (ends.length > 2 || from === undefined || to === undefined) return { fault: `“${part.trim()}” is no value here; write for example ${EXAMPLES[axis]}` };
    if (to < from) return { fault: `${part.trim()} goes down; write the smaller value first` };
    for (let value = from; value <= to; value *= 2) {
      values.push(value);
      if (values.length > MOST) return { fault: `these are more than ${MOST} values` };
    }
  }
  return { values: [...new Set(values)].sort((a, b) => a - b) };
}

/** What is asked for at first. */
export const EXAMPLES: Readonly<Record<SweptAxis, string>> = { sequence: "4k..256k", nodes: "1..32", batch: "1m..16m", memory: "16GB, 24GB, 40GB, 80GB", "intra-node-bandwidth": "0.5, 1, 2, 4", "inter-node-bandwidth": "0.25..4" };
