import { rmSync } from "node:fs";
import { join } from "node:path";
import { Type, type Static } from "typebox";
import { readRecordFile, writeRecordFile } from "../process/record-file.ts";
import { LEFT_RECORD } from "../scheduled/record.ts";
import { SlurmSettingsSchema } from "./settings.ts";

/** One launch that has not been concluded: by it a later supervisor finds the Slurm job again. */
export const SlurmRecordSchema = Type.Object(
  {
    ...LEFT_RECORD,
    jobId: Type.Union([Type.Integer(), Type.Null()], { description: "null: sbatch has not answered" }),
    settings: SlurmSettingsSchema,
  },
  { additionalProperties: false },
);
export type SlurmRecord = Static<typeof SlurmRecordSchema>;

const FILE = "slurm.json";

export const slurmJobName = (marker: string): string => `internevo-${marker}`;

export const writeSlurmRecord = (runDirectory: string, record: SlurmRecord): void =>
  writeRecordFile(join(runDirectory, FILE), record);

/** The launch of a run directory that has not been concluded; undefined when there is none. */
export const readSlurmRecord = (runDirectory: string): SlurmRecord | undefined =>
  readRecordFile(SlurmRecordSchema, join(runDirectory, FILE));

/** The launch is concluded. Its files stay, as a log, until the next one of the same directory. */
export const removeSlurmRecord = (runDirectory: string): void =>
  rmSync(join(runDirectory, FILE), { force: true });
