import { Type, type Static } from "typebox";
import { LABEL_NAME, Line, LONGEST_LABEL } from "./text.ts";

/** How urgent a job is among those that wait for the same hosts, the least first. */
export const PRIORITIES = ["low", "normal", "high"] as const;
export type Priority = (typeof PRIORITIES)[number];
export const DEFAULT_PRIORITY: Priority = "normal";

/** Waiting so many hours counts as the next priority: low as normal, normal as high. */
export const HOURS_TO_NEXT_PRIORITY = 24;

export const PrioritySchema = Type.Enum(PRIORITIES, {
  description: `where hosts are waited for: high goes first, low last; who has waited for ${HOURS_TO_NEXT_PRIORITY} hours counts as of the next priority; default ${DEFAULT_PRIORITY}`,
});

export const PreemptibleSchema = Type.Boolean({
  description:
    "true: where a job of higher priority waits for its hosts, the job writes a checkpoint, gives its hosts up and waits for them again; default false",
});

const MOST_LABELS = 16;

/** What people sort their jobs by: `team: nlp`. */
export const LabelsSchema = Type.Record(Type.String({ pattern: LABEL_NAME.pattern }), Line(LONGEST_LABEL), {
  maxProperties: MOST_LABELS,
  additionalProperties: false,
  description: `up to ${MOST_LABELS} names with values, for lists to be narrowed by; names have letters, digits and . _ / -`,
});
export type Labels = Static<typeof LabelsSchema>;
