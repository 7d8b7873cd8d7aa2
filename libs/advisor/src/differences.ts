import { planValue, READING_ORDER, type Plan, type PlanField } from "@internevo/domain";

export type FieldValue = number | boolean | string;

/** A field of a plan that differs between two plans. */
export interface FieldChange {
  readonly field: PlanField;
  readonly from: FieldValue;
  readonly to: FieldValue;
}

/** What has to be changed in `from` to make it `to`. */
export function changesBetween(from: Plan, to: Plan): FieldChange[] {
  const changes: FieldChange[] = [];
  for (const field of READING_ORDER) {
    const [before, after] = [planValue(from, field), planValue(to, field)];
    if (before !== after) changes.push({ field, from: before, to: after });
  }
  return changes;
}

/** How far a change goes: powers of two between numbers, one for anything else. */
function distanceOf({ from, to }: FieldChange): number {
  if (typeof from !== "number" || typeof to !== "number") return 1;
  return Math.abs(
    Math.log2((to + (to === 0 || from === 0 ? 1 : 0)) / (from + (to === 0 || from === 0 ? 1 : 0))),
  );
}

/**
 * How large a set of changes is: the fields changed, then how far they go. The number of micro-batches
 * follows from the batch, s_dp and b, so it is not counted as a change of its own.
 */
export function sizeOf(changes: readonly FieldChange[]): readonly [fields: number, distance: number] {
  const own = changes.filter(({ field }) => field !== "microBatches");
  return [own.length, own.reduce((sum, change) => sum + distanceOf(change), 0)];
}
