import { Type, type Static } from "typebox";
import { RemovalSchema } from "./retention.ts";

/** What a job leaves, by kind. */
export const ARTIFACT_KINDS = ["job", "metrics", "log", "timeline", "checkpoint", "export"] as const;
export type ArtifactKind = (typeof ARTIFACT_KINDS)[number];

export const ArtifactSchema = Type.Object({
  name: Type.String({ description: "of the file that is downloaded; a folder is a tar archive" }),
  kind: Type.Enum(ARTIFACT_KINDS),
  bytes: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
    description: "of what is downloaded; null: it is written from the database when it is asked for",
  }),
  modifiedAt: Type.Union([Type.String(), Type.Null()], {
    description: "of a folder its newest file; null: it is written when it is asked for",
  }),
});
export type Artifact = Static<typeof ArtifactSchema>;

/** All of a job on one page. */
export const ArtifactPageSchema = Type.Object({
  items: Type.Array(ArtifactSchema),
  nextCursor: Type.Null(),
  absent: Type.Union([Type.String(), Type.Null()], {
    description: "why files of the job's ranks are not listed; null: what there is, is",
  }),
  removed: Type.Array(RemovalSchema, { description: "what retention took, the newest removal of each kind" }),
});
export type ArtifactPage = Static<typeof ArtifactPageSchema>;
