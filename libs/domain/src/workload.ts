import { Type, type Static } from "typebox";
import { JobSpecSchema } from "./job.ts";
import { CandidateSchema } from "./planning.ts";
import { ProjectNameSchema } from "./project.ts";
import { Line } from "./text.ts";

/** A workload that is planned again by a schedule. */
export const WorkloadSchema = Type.Object(
  {
    id: Type.String(),
    name: Line(100),
    project: ProjectNameSchema,
    spec: JobSpecSchema,
    cron: Line(200, { description: "five fields, for example `0 3 * * *`" }),
    timeZone: Line(100, { description: "IANA name" }),
    catchUpWindowSeconds: Type.Integer({
      minimum: 0,
      maximum: 31_536_000,
      description: "how late a missed run may still be made up",
    }),
    gainThreshold: Type.Number({
      minimum: 0,
      maximum: 1,
      description: "predicted gain in step time that makes a proposal, as a fraction",
    }),
    enabled: Type.Boolean(),
    nextRunAt: Type.Union([Type.String(), Type.Null()]),
    lastRunAt: Type.Union([Type.String(), Type.Null()]),
    lastOutcome: Type.Union([Type.String(), Type.Null()]),
    createdAt: Type.String(),
  },
  { additionalProperties: false },
);
export type Workload = Static<typeof WorkloadSchema>;

/** A better plan that the replanner found: predicted gain and every field that differs. */
export const ProposalSchema = Type.Object(
  {
    id: Type.String(),
    workloadId: Type.String(),
    current: Type.Union([CandidateSchema, Type.Null()]),
    proposed: CandidateSchema,
    predictedGain: Type.Number({ description: "1 − proposed step time / current step time" }),
    differences: Type.Array(Type.Object({ field: Type.String(), from: Type.Unknown(), to: Type.Unknown() })),
    createdAt: Type.String(),
  },
  { additionalProperties: false },
);
export type Proposal = Static<typeof ProposalSchema>;
