import {
  Line,
  RETENTION_KINDS,
  RetentionSettingsSchema,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";

const RetentionKindSchema = Type.Enum(RETENTION_KINDS);
const amounts = {
  files: Type.Integer({ minimum: 0, description: "0 of what is rows in Postgres" }),
  bytes: Type.Integer({ minimum: 0, description: "of the files" }),
  rows: Type.Integer({ minimum: 0, description: "in Postgres; 0 of files" }),
};

/** What retention has taken of one job. */
export const RemovalSchema = Type.Object({
  kind: RetentionKindSchema,
  at: Type.String({
    format: "date-time",
    description: "when it was decided; what is named is gone since then",
  }),
  days: Type.Integer({ description: "days after the job's end, as they were set" }),
  ...amounts,
  isDone: Type.Boolean({ description: "false: it is being deleted" }),
});
export type Removal = Static<typeof RemovalSchema>;

/** What was removed, or would be, of all jobs. */
const RetentionAmountsSchema = Type.Object({ jobs: Type.Integer({ minimum: 0 }), ...amounts });
export type RetentionAmounts = Static<typeof RetentionAmountsSchema>;

const ofEachKind = <S extends TSchema>(schema: S) =>
  Type.Object({
    checkpoints: schema,
    timelines: schema,
    exports: schema,
    logs: schema,
    steps: schema,
  } satisfies Record<RetentionKind, S>);
const RetentionTotalsSchema = ofEachKind(RetentionAmountsSchema);
export type RetentionTotals = Static<typeof RetentionTotalsSchema>;

const Remarks = Type.Array(Type.String(), {
  description: "what was left, and why, in words; the first twenty",
});
const orNull = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);

/** One time that retention looked at all ended jobs. */
export const RetentionRunSchema = Type.Object({
  id: Type.Integer(),
  askedBy: orNull(Type.String({ description: "the token's name; null: the schedule" })),
  askedAt: Type.String({ format: "date-time" }),
  beganAt: orNull(Type.String({ description: "null: no replanner has taken it yet" })),
  endedAt: orNull(Type.String({ description: "null: it goes on" })),
  removed: RetentionTotalsSchema,
  remarks: Remarks,
});
export type RetentionRun = Static<typeof RetentionRunSchema>;

export const RetentionSchema = Type.Object({
  settings: RetentionSettingsSchema,
  lastRun: Type.Optional(
    Type.Union([RetentionRunSchema, Type.Null()], {
      description: "null: none yet; absent for a project's token: it tells of all projects",
    }),
  ),
});
export interface Retention {
  readonly settings: RetentionSettings;
  readonly lastRun?: RetentionRun | null;
}

/** What is left out stays as it is. */
export const RetentionChangeSchema = Type.Partial(RetentionSettingsSchema, { additionalProperties: false });
export type RetentionChange = Static<typeof RetentionChangeSchema>;

const triedDays = Type.Optional(
  Line(20, { description: "days to try in place of what is set, or `forever`; left out: what is set" }),
);
/** Settings that are only tried, as texts of a query. */
export const RetentionTrialSchema = ofEachKind(triedDays);
export type RetentionTrial = Static<typeof RetentionTrialSchema>;

/** What would be removed now. */
export const RetentionPreviewSchema = Type.Object({
  settings: RetentionSettingsSchema,
  totals: RetentionTotalsSchema,
  isWhole: Type.Boolean({ description: "false: it took too long, and there is more than this" }),
  remarks: Remarks,
  items: Type.Array(
    Type.Object({
      jobId: Type.String(),
      jobName: Type.String(),
      project: Type.String(),
      endedAt: Type.String({ format: "date-time" }),
      removes: Type.Array(
        Type.Object({
          kind: RetentionKindSchema,
          days: Type.Integer({ description: "after the job's end" }),
          ...amounts,
        }),
      ),
    }),
    { description: "jobs of which something would be removed, whose end is longest ago first" },
  ),
  nextCursor: orNull(Type.String()),
});
export type RetentionPreview = Static<typeof RetentionPreviewSchema>;
