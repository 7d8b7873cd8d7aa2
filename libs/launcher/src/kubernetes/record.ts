import { rmSync } from "node:fs";
import { join } from "node:path";
import { Type, type Static } from "typebox";
import { readRecordFile, writeRecordFile } from "../process/record-file.ts";
import { LEFT_RECORD } from "../scheduled/record.ts";
import { KubernetesSettingsSchema } from "./settings.ts";

/** One launch that has not been concluded: by it a later supervisor finds the JobSet again. */
export const KubernetesRecordSchema = Type.Object(
  {
    ...LEFT_RECORD,
    uid: Type.Union([Type.String(), Type.Null()], {
      description: "of the JobSet; null: the API server has not answered",
    }),
    settings: KubernetesSettingsSchema,
  },
  { additionalProperties: false },
);
export type KubernetesRecord = Static<typeof KubernetesRecordSchema>;

const FILE = "kubernetes.json";

export const writeKubernetesRecord = (runDirectory: string, record: KubernetesRecord): void =>
  writeRecordFile(join(runDirectory, FILE), record);

/** The launch of a run directory that has not been concluded; undefined when there is none. */
export const readKubernetesRecord = (runDirectory: string): KubernetesRecord | undefined =>
  readRecordFile(KubernetesRecordSchema, join(runDirectory, FILE));

/** The launch is concluded. Its files stay, as a log, until the next one of the same directory. */
export const removeKubernetesRecord = (runDirectory: string): void =>
  rmSync(join(runDirectory, FILE), { force: true });
