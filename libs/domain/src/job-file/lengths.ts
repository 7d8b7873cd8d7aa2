import type { JobSpec } from "../job.ts";
import type { ProblemDetail } from "../problem.ts";
import { parseQuantity } from "../units.ts";
import { MOST_TOKENS, type JobFile } from "./schema.ts";

export type Lengths = Pick<JobSpec, "sequenceLengthTokens" | "globalBatchTokens">;

/** Tokens as written; undefined, with a detail, where they are none. */
function readTokens(
  written: Pick<JobFile, "sequenceLengthTokens" | "globalBatchTokens">,
  field: keyof typeof MOST_TOKENS,
  details: ProblemDetail[],
): number | undefined {
  const value = written[field];
  const count = parseQuantity(value, "lengthTokens");
  if (count !== undefined && count >= 1 && count <= MOST_TOKENS[field]) return count;
  const bound = (count ?? 0) < 1 ? "is less than 1" : `is more than ${MOST_TOKENS[field]}`;
  const message = count === undefined ? "is not a number of tokens" : bound;
  details.push({
    field,
    value,
    message,
    remedy: "give tokens, or a number with k, M or G, such as 4k for 4096",
  });
  return undefined;
}

/**
 * The lengths of a sequence and of a batch; undefined, with details, where they are none or do not divide.
 */
export function resolveLengths(
  written: Pick<JobFile, "sequenceLengthTokens" | "globalBatchTokens">,
  details: ProblemDetail[],
): Lengths | undefined {
  const sequenceLengthTokens = readTokens(written, "sequenceLengthTokens", details);
  const globalBatchTokens = readTokens(written, "globalBatchTokens", details);
  if (sequenceLengthTokens === undefined || globalBatchTokens === undefined) return undefined;
  if (globalBatchTokens % sequenceLengthTokens !== 0) {
    const floor = Math.floor(globalBatchTokens / sequenceLengthTokens) * sequenceLengthTokens;
    details.push({
      field: "globalBatchTokens",
      value: written.globalBatchTokens,
      message: `is not a multiple of sequenceLengthTokens ${sequenceLengthTokens}`,
      remedy: `use ${floor > 0 ? `${floor} or ` : ""}${floor + sequenceLengthTokens}`,
    });
  }
  return { sequenceLengthTokens, globalBatchTokens };
}
