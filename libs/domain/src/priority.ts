import { Type, type Static } from "typebox";
import { Line } from "./text.ts";

/** How urgent a job is among those that wait for the same hosts. */
export const PRIORITIES = ["low", "normal", "high"] as const;
export type Priority = (typeof PRIORITIES)[number];

/**
 * A priority is a head start in the queue, in hours. A job of high priority passes those that were submitted up
 * to a day before it; nobody is passed for longer, so that nothing starves.
 */
export const HEAD_START_HOURS: Readonly<Record<Priority, number>> = { low: -24, normal: 0, high: 24 };

export const PrioritySchema = Type.Enum(PRIORITIES, {
  description: `where hosts are waited for: high goes before what was submitted up to ${HEAD_START_HOURS.high} hours earlier, low behind what is submitted up to ${-HEAD_START_HOURS.low} hours later; default normal`,
});

/** A job's place among those that wait for the same hosts: the earlier goes first. */
export const placeInQueue = (submittedAt: Date, priority: Priority = "normal"): Date =>
  new Date(submittedAt.getTime() - HEAD_START_HOURS[priority] * 3_600_000);

const MOST_LABELS = 16;
/** Of a label's key, and of its value. */
const LONGEST_LABEL = 63;

/** What people sort their jobs by: `team: nlp`. */
export const LabelsSchema = Type.Record(
  Type.String({ pattern: `^[A-Za-z0-9][A-Za-z0-9._/-]{0,${LONGEST_LABEL - 1}}$` }),
  Line(LONGEST_LABEL),
  {
    maxProperties: MOST_LABELS,
    additionalProperties: false,
    description: `up to ${MOST_LABELS} names with values, for lists to be narrowed by; names have letters, digits and . _ / -`,
  },
);
export type Labels = Static<typeof LabelsSchema>;
