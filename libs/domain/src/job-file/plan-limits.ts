import type { Model } from "../model.ts";
import type { PlanConstraints } from "../plan-constraints.ts";
import { boundedBy, type PlanField } from "../plan-fields.ts";
import { constraintsOf, parsePlanPart } from "../plan-text.ts";
import { ProblemError, type ProblemDetail } from "../problem.ts";
import type { Lengths } from "./lengths.ts";
import type { JobFile } from "./schema.ts";

/** Of one field of a job's `plan`: what its values must divide, or be at most. */
interface Bound {
  readonly fields: readonly PlanField[];
  readonly whole: number;
  readonly what: string;
  readonly divides: boolean;
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
  const ranks = cluster.nodes * cluster.gpusPerNode;
  const sequences = lengths && lengths.globalBatchTokens / lengths.sequenceLengthTokens;
  const bounds: Bound[] = [
    { fields: boundedBy("ranks"), whole: ranks, what: `the ${ranks} ranks of the cluster`, divides: true },
    ...(sequences !== undefined && Number.isInteger(sequences)
      ? [
          {
            fields: boundedBy("sequences"),
            whole: sequences,
            what: `the ${sequences} sequences of a step`,
            divides: true,
          },
        ]
      : []),
    ...(model === undefined
      ? []
      : [
          {
            fields: boundedBy("layers"),
            whole: model.layers,
            what: `the ${model.layers} layers of the model`,
            divides: false,
          },
        ]),
  ];
  for (const { fields, whole, what, divides } of bounds)
    for (const field of fields) {
      const given = plan[field];
      if (given === undefined) continue;
      const values = [given].flat() as number[];
      if (values.some((value) => (divides ? whole % value === 0 : value <= whole))) continue;
      const nearest = divides ? nearestDivisors(whole, values[0] as number).join(" or ") : `at most ${whole}`;
      details.push({
        field: `plan.${field}`,
        value: given,
        message: divides ? `does not divide ${what}` : `is more than ${what}`,
        remedy: `give ${nearest}, or leave it out`,
      });
    }
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
