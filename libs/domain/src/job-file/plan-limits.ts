import type { Model } from "../model.ts";
import type { PlanConstraints } from "../plan-constraints.ts";
import { boundedBy, type PlanField } from "../plan-fields.ts";
import { constraintsOf, parsePlanPart } from "../plan-text.ts";
import { ProblemError, type ProblemDetail } from "../problem.ts";
import type { Lengths } from "./lengths.ts";
import type { JobFile } from "./schema.ts";

/** What the values of a plan's fields must divide, or be at most; undefined where it is not known. */
export interface PlanSizes {
  readonly ranks: number;
  readonly sequences?: number | undefined;
  readonly layers?: number | undefined;
}

/** Of a field of a plan: that it has none of the values asked of it, whatever the other fields. */
export interface BoundFault {
  readonly field: PlanField;
  readonly values: readonly number[];
  /** What they should divide, or be at most. */
  readonly what: string;
  readonly divides: boolean;
  /** The values next to those that were asked for. */
  readonly nearest: string;
}

/** What is asked of a plan's fields, and no plan has, each by itself. */
export function boundFaults(
  plan: PlanConstraints,
  { ranks, sequences, layers }: PlanSizes,
): readonly BoundFault[] {
  const bounds = [
    { bound: "ranks", whole: ranks, what: `the ${ranks} ranks of the cluster` },
    { bound: "sequences", whole: sequences, what: `the ${sequences} sequences of a step` },
    { bound: "layers", whole: layers, what: `the ${layers} layers of the model` },
  ] as const;
  return bounds.flatMap(({ bound, whole, what }) =>
    boundedBy(bound).flatMap((field) => {
      const given = plan[field];
      if (given === undefined || whole === undefined || !Number.isInteger(whole)) return [];
      const divides = bound !== "layers";
      const values = [given].flat() as number[];
      if (values.some((value) => (divides ? whole % value === 0 : value <= whole))) return [];
      const nearest = divides ? nearestDivisors(whole, values[0] as number).join(" or ") : `at most ${whole}`;
      return [{ field, values, what, divides, nearest }];
    }),
  );
}

/**
 * Constraints on plans that no plan of the job meets, each by itself; how they go together only a search
 * tells.
 */
export function checkPlan(
  plan: PlanConstraints,
  cluster: Pick<JobFile["cluster"], "nodes" | "gpusPerNode">,
  lengths: Lengths | undefined,
  model: Model | undefined,
  details: ProblemDetail[],
): void {
  const sizes = {
    ranks: cluster.nodes * cluster.gpusPerNode,
    sequences: lengths && lengths.globalBatchTokens / lengths.sequenceLengthTokens,
    layers: model?.layers,
  };
  for (const { field, what, divides, nearest } of boundFaults(plan, sizes))
    details.push({
      field: `plan.${field}`,
      value: plan[field],
      message: `${divides ? "does not divide" : "is more than"} ${what}`,
      remedy: `give ${nearest}, or leave it out`,
    });
}

/** Of a step with more than 2^32 sequences not all divisors are looked at. */
const MOST_TRIED = 2 ** 16;

/** The divisors of a number next to a value, below and above. */
function nearestDivisors(whole: number, value: number): number[] {
  let [below, above] = [1, whole];
  for (let small = 1; small <= MOST_TRIED && small * small <= whole; small += 1) {
    if (whole % small !== 0) continue;
    for (const divisor of [small, whole / small]) {
      if (divisor <= value) below = Math.max(below, divisor);
      else above = Math.min(above, divisor);
    }
  }
  return [...new Set(above > value ? [below, above] : [below])];
}

/** A plan's text, or its fields, as what a search may choose. */
export function resolvePlan(
  file: Pick<JobFile, "plan" | "cluster">,
  lengths: Lengths | undefined,
  model: Model | undefined,
  details: ProblemDetail[],
): PlanConstraints | undefined {
  let plan = file.plan;
  if (typeof plan === "string") {
    try {
      plan = constraintsOf(parsePlanPart(plan));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      details.push(...error.details);
      return undefined;
    }
  }
  if (plan !== undefined) checkPlan(plan, file.cluster, lengths, model, details);
  return plan;
}
