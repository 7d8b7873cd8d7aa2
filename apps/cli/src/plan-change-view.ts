import {
  formatMoment,
  formatSignedPercent,
  lowered,
  namesAPlan,
  PLAN_CHANGE_STATE_WORDS,
  planChangeWords,
  planLabel,
  type PlanChange,
} from "@internevo/domain";
import { table, type Colors, type Column } from "./output.ts";

const NONE = "–";
const gainText = (gain: number | null): string => (gain === null ? NONE : formatSignedPercent(gain));

/** A change of a job's plan: both plans, and what became of it. */
export function planChangeLines(change: PlanChange): string[] {
  return [
    `from ${planLabel(change.from.plan)}`,
    ...(namesAPlan(change) ? [`to   ${planLabel(change.to.plan)}`] : []),
    `${lowered(PLAN_CHANGE_STATE_WORDS[change.state])}: ${planChangeWords(change)}`,
  ];
}

export function planChangesTable(changes: readonly PlanChange[], colors: Colors): string {
  const columns: Column<PlanChange>[] = [
    { title: "ID", value: ({ id }) => id },
    { title: "ASKED FOR", value: ({ createdAt }) => formatMoment(createdAt) },
    { title: "BY", value: ({ askedBy }) => askedBy },
    { title: "STATE", value: ({ state }) => lowered(PLAN_CHANGE_STATE_WORDS[state]) },
    {
      title: "AT STEP",
      align: "right",
      value: ({ appliedAtStep }) => (appliedAtStep === null ? NONE : String(appliedAtStep)),
    },
    { title: "PREDICTED", align: "right", value: ({ predictedGain }) => gainText(predictedGain) },
    { title: "MEASURED", align: "right", value: ({ measuredGain }) => gainText(measuredGain) },
    {
      title: "TO PLAN",
      below: true,
      value: (change) => (namesAPlan(change) ? planLabel(change.to.plan) : NONE),
    },
  ];
  return table(columns, changes, colors);
}
