import { Type, type Static } from "typebox";
import { readIfThere, readRecordFile } from "../process/record-file.ts";

const EndSchema = Type.Object(
  { jobId: Type.Integer(), exitCode: Type.Union([Type.Integer(), Type.Null()]), told: Type.String() },
  { additionalProperties: false },
);
/**
 * What the batch script left of how the ranks ended. `told`: USR1, TERM, REQUEUED, NODES, MODULE, or nothing.
 */
export type JobEnd = Static<typeof EndSchema>;

/** Undefined while the file is not there. */
export const readEnd = (path: string): JobEnd | undefined => readRecordFile(EndSchema, path);

/** The Slurm job that has claimed a submission's directory; undefined while none has. */
export function readClaim(path: string): number | undefined {
  // Without its newline it has not been written to its end.
  const [, id] = /^([1-9]\d*)\n/.exec(readIfThere(path) ?? "") ?? [];
  return id === undefined ? undefined : Number(id);
}

/** The node of every rank, in the order of ranks; empty while none was placed. */
export const readHosts = (path: string): string[] =>
  (readIfThere(path) ?? "").split("\n").filter((line) => line !== "");
