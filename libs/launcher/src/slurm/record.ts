import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SlurmSettingsSchema, validate } from "@internevo/domain";
import { Type, type Static } from "typebox";

/** One launch that has not been concluded: by it a later supervisor finds the Slurm job again. */
export const SlurmRecordSchema = Type.Object(
  {
    marker: Type.String({ minLength: 1, description: "a part of the Slurm job's name" }),
    label: Type.String({ description: "what is launched, in the caller's words" }),
    digest: Type.String({ description: "of program, configuration and size: equal digests, equal work" }),
    directory: Type.String({ description: "of this submission" }),
    jobId: Type.Union([Type.Integer(), Type.Null()], { description: "null: sbatch has not answered" }),
    submittedAt: Type.String(),
    runningSince: Type.Union([Type.String(), Type.Null()]),
    cancelled: Type.Boolean({ description: "somebody of ours has cancelled it" }),
    seenBytes: Type.Integer({ description: "of the events, told to a consumer" }),
    settings: SlurmSettingsSchema,
  },
  { additionalProperties: false },
);
export type SlurmRecord = Static<typeof SlurmRecordSchema>;

const FILE = "slurm.json";

export const slurmJobName = (marker: string): string => `internevo-${marker}`;

/** Writes the record so that a reader sees all of it or nothing. */
export function writeSlurmRecord(runDirectory: string, record: SlurmRecord): void {
  mkdirSync(runDirectory, { recursive: true });
  const path = join(runDirectory, FILE);
  writeFileSync(`${path}.tmp`, JSON.stringify(record, null, 2));
  renameSync(`${path}.tmp`, path);
}

/** The launch of a run directory that has not been concluded; undefined when there is none. */
export function readSlurmRecord(runDirectory: string): SlurmRecord | undefined {
  let text: string;
  try {
    text = readFileSync(join(runDirectory, FILE), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  return validate(SlurmRecordSchema, JSON.parse(text), "internal", join(runDirectory, FILE));
}

/** The launch is concluded. Its files stay, as a log, until the next one of the same directory. */
export const removeSlurmRecord = (runDirectory: string): void => rmSync(join(runDirectory, FILE), { force: true });
