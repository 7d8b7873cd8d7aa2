import { readFileSync } from "node:fs";
import { Type, type Static } from "typebox";
import { validate } from "@internevo/domain";

const EndSchema = Type.Object(
  { jobId: Type.Integer(), exitCode: Type.Union([Type.Integer(), Type.Null()]), told: Type.String() },
  { additionalProperties: false },
);
/**
 * What the batch script left of how the ranks ended. `told`: USR1, TERM, REQUEUED, NODES, MODULE, or nothing.
 */
export type JobEnd = Static<typeof EndSchema>;

/** Undefined while the file is not there. */
export function readEnd(path: string): JobEnd | undefined {
  try {
    return validate(EndSchema, JSON.parse(readFileSync(path, "utf8")), "internal", path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The Slurm job that has claimed a submission's directory; undefined while none has. */
export function readClaim(path: string): number | undefined {
  try {
    // Without its newline it has not been written to its end.
    const [, id] = /^([1-9]\d*)\n/.exec(readFileSync(path, "utf8")) ?? [];
    return id === undefined ? undefined : Number(id);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The node of every rank, in the order of ranks; empty while none was placed. */
export function readHosts(path: string): string[] {
  try {
    return readFileSync(path, "utf8")
      .split("\n")
      .filter((line) => line !== "");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
