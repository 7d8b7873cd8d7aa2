import {
  csvHead,
  csvRows,
  Line,
  ProjectNameSchema,
  QueueSettingsSchema,
  WeightSchema,
} from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import { PageSchema } from "./http.ts";

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const MOST_DESCRIPTION = 500;
const quotas = {
  maxGpus: nullable(
    Type.Integer({
      minimum: 0,
      maximum: 2 ** 31 - 1,
      description: "GPUs that its jobs hold at once at most; null: no limit",
    }),
  ),
  gpuHoursPerMonth: nullable(
    Type.Number({
      minimum: 0,
      maximum: 1e12,
      description: "GPU-hours that its jobs may use in a calendar month (UTC); null: no limit",
    }),
  ),
};

/** A project, its quotas, and what it has used of them. */
export const ProjectRecordSchema = Type.Object({
  name: ProjectNameSchema,
  description: Type.String(),
  ...quotas,
  weight: WeightSchema,
  createdAt: Type.String(),
  gpusInUse: Type.Integer({ description: "GPUs of the hosts that its jobs hold now" }),
  gpuHoursThisMonth: Type.Number({ description: "since the first of the month (UTC), until now" }),
});
export type ProjectRecord = Static<typeof ProjectRecordSchema>;
export const ProjectPageSchema = PageSchema(ProjectRecordSchema);

/** Of a project what somebody may change. */
export const ProjectChangeSchema = Type.Object(
  {
    description: Type.Optional(
      Type.Union([Line(MOST_DESCRIPTION), Type.Literal("")], { description: "one line; default: empty" }),
    ),
    maxGpus: Type.Optional(quotas.maxGpus),
    gpuHoursPerMonth: Type.Optional(quotas.gpuHoursPerMonth),
    weight: Type.Optional(WeightSchema),
  },
  { additionalProperties: false },
);
export type ProjectChange = Static<typeof ProjectChangeSchema>;

export const ProjectCreateSchema = Type.Object(
  { name: ProjectNameSchema, ...ProjectChangeSchema.properties },
  { additionalProperties: false },
);
export type ProjectCreate = Static<typeof ProjectCreateSchema>;

/** Of the queue's settings what somebody may change. */
export const QueueSettingsChangeSchema = Type.Partial(QueueSettingsSchema, { additionalProperties: false });
export type QueueSettingsChange = Static<typeof QueueSettingsChangeSchema>;

/** What usage can be summed by. */
export const USAGE_GROUPS = ["project", "owner", "cluster", "day"] as const;
export type UsageGroup = (typeof USAGE_GROUPS)[number];

/** Which usage is asked for. */
export const UsageQuerySchema = Type.Object(
  {
    from: Type.Optional(
      Type.String({ format: "date-time", description: "default: the first of this month (UTC)" }),
    ),
    to: Type.Optional(Type.String({ format: "date-time", description: "before this instant; default: now" })),
    by: Type.Optional(Type.Enum(USAGE_GROUPS, { description: "default: project; day: in UTC" })),
    project: Type.Optional(ProjectNameSchema),
  },
  { additionalProperties: false },
);
export type UsageQuery = Static<typeof UsageQuerySchema>;

/** GPU-hours: GPUs times the hours that work held their hosts. */
export const UsageSchema = Type.Object({
  from: Type.String({ format: "date-time" }),
  to: Type.String({ format: "date-time" }),
  by: Type.Enum(USAGE_GROUPS),
  gpuHours: Type.Number({ description: "of all rows" }),
  rows: Type.Array(
    Type.Object({
      key: nullable(
        Type.String({
          description: "project, owner, cluster, or day as 2026-01-31; null: nobody, as of scheduled work",
        }),
      ),
      gpuHours: Type.Number(),
      jobs: Type.Integer({ description: "jobs and workloads that held hosts" }),
    }),
    { description: "by day in their order, else the largest first" },
  ),
});
export type Usage = Static<typeof UsageSchema>;

/** Usage as CSV (RFC 4180), with its head also where there is none. */
export function usageCsv({ by, rows }: Pick<Usage, "by" | "rows">): string {
  const names = [by, "gpuHours", "jobs"];
  return (
    csvHead(names) +
    csvRows(
      rows.map(({ key, ...figures }) => ({ [by]: key, ...figures })),
      names,
    )
  );
}
