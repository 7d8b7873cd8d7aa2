import type { LaneStep, SliceWaits } from "@internevo/domain";
import { computedUnits, type ComputedUnit } from "./step-parts.ts";

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/** Lengths of the parts of a step that begin where `begins` says. */
function lengths(units: readonly ComputedUnit[], begins: (unit: ComputedUnit) => boolean): number[] {
  const parts: number[] = [];
  for (const unit of units) {
    if (begins(unit) || parts.length === 0) parts.push(0);
    parts[parts.length - 1] = (parts.at(-1) as number) + unit.seconds;
  }
  return parts;
}

/**
 * How long ranks take that wait for one another at the begin of every part, over ranks that wait at the end
 * of the step only.
 */
function waits(ranks: readonly (readonly ComputedUnit[])[], begins: (unit: ComputedUnit) => boolean): number {
  const parts = ranks.map((units) => lengths(units, begins));
  const together = sum(
    (parts[0] ?? []).map((_, part) => Math.max(...parts.map((own) => own[part] as number))),
  );
  return Math.max(1, together / Math.max(...ranks.map((units) => sum(units.map(({ seconds }) => seconds)))));
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] as number;

/**
 * What it costs ranks to wait for one another more often than once a step, from a timeline of ranks that do
 * not: the median over the steps. Their units are the same in number and order, because they run the same
 * micro-batches.
 * @returns undefined where a step has no computation, or ranks computed different units.
 */
export function rankWaits(ranks: readonly (readonly LaneStep[])[]): SliceWaits | undefined {
  const steps = (ranks[0] ?? []).map((_, step) => ranks.map((own) => computedUnits(own[step] as LaneStep)));
  if (
    steps.length === 0 ||
    steps.some((each) => each.some((units) => units.length === 0 || units.length !== each[0]?.length))
  )
    return undefined;
  return {
    unit: median(steps.map((each) => waits(each, () => true))),
    layer: median(steps.map((each) => waits(each, ({ beginsLayer }) => beginsLayer))),
  };
}
