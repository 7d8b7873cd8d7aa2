import {
  ClusterCapacitySchema,
  ClusterHealthSchema,
  JOB_STATES,
  LAUNCHERS,
  QueuePositionSchema,
} from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import { PageSchema, ProfileSummarySchema } from "./http.ts";

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const work = { kind: Type.Enum(["job", "workload"]), id: Type.String(), name: Type.String() };

/** What has hosts of a cluster, or is at work on nodes that a scheduler gives it. */
export const ClusterHolderSchema = Type.Object({
  ...work,
  state: nullable(Type.Enum(JOB_STATES, { description: "of a job" })),
  hosts: Type.Array(Type.String(), { description: "none where a scheduler shares nodes out" }),
});
export type ClusterHolder = Static<typeof ClusterHolderSchema>;

/** What waits for hosts of a cluster. */
export const ClusterWaiterSchema = Type.Object({
  ...work,
  ...QueuePositionSchema.properties,
  hosts: Type.Array(Type.String()),
});
export type ClusterWaiter = Static<typeof ClusterWaiterSchema>;

/** A cluster of the installation: what it has, how it is, who uses it, and what was measured of it. */
export const ClusterRecordSchema = Type.Object({
  name: Type.String(),
  launcher: Type.Enum(LAUNCHERS),
  capacity: nullable(ClusterCapacitySchema),
  health: nullable(
    Type.Object({ ...ClusterHealthSchema.properties, lookedAt: Type.String({ format: "date-time" }) }),
  ),
  holders: Type.Array(ClusterHolderSchema, { description: "of what the token may see" }),
  hostsInUse: Type.Integer({ description: "hosts of it that work holds, of whichever project" }),
  waiting: Type.Array(ClusterWaiterSchema, { description: "in their order, of what the token may see" }),
  profiles: Type.Array(ProfileSummarySchema, { description: "newest first, ten at most" }),
});
export type ClusterRecord = Static<typeof ClusterRecordSchema>;
export const ClusterPageSchema = PageSchema(ClusterRecordSchema);
