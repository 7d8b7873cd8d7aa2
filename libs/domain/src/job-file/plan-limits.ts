import type { Model } from "../model.ts";
import { allowedBy, type PlanConstraints } from "../plan-constraints.ts";
import { boundedBy, PLAN_ROWS, type PlanField } from "../plan-fields.ts";
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
  for (const fault of faultsOf(plan, cluster, lengths, model))
    details.push({
      field: `plan.${fault.field}`,
      value: plan[fault.field],
      message: faultWords(fault),
      remedy: `give ${fault.nearest}, or leave it out`,
    });
}

const faultWords = ({ divides, what }: BoundFault): string =>
  `${divides ? "does not divide" : "is more than"} ${what}`;

function faultsOf(
  plan: PlanConstraints,
  cluster: Pick<JobFile["cluster"], "nodes" | "gpusPerNode">,
  lengths: Lengths | undefined,
  model: Model | undefined,
): readonly BoundFault[] {
  const sizes = {
    ranks: cluster.nodes * cluster.gpusPerNode,
    sequences: lengths && lengths.globalBatchTokens / lengths.sequenceLengthTokens,
    layers: model?.layers,
  };
  return boundFaults(plan, sizes);
}

/** Of the plans that are tried beside the best: parts that no plan has, or none that the job's `plan` allows. */
export function checkAlsoTried(
  { trials, cluster }: Pick<JobFile, "trials" | "cluster">,
  plan: PlanConstraints | undefined,
  lengths: Lengths | undefined,
  model: Model | undefined,
  details: ProblemDetail[],
): void {
  for (const [index, text] of (trials?.also ?? []).entries()) {
    const about = { field: `trials.also[${index}]`, value: text };
    try {
      const part = constraintsOf(parsePlanPart(text));
      const [fault] = faultsOf(part, cluster, lengths, model);
      const barred = PLAN_ROWS.map(([field]) => field).find(
        (field) => part[field] !== undefined && !allowedBy<unknown>(plan?.[field], part[field]),
      );
      if (fault !== undefined)
        details.push({
          ...about,
          message: `its ${fault.field} ${faultWords(fault)}`,
          remedy: `give ${fault.nearest} as ${fault.field}, or leave this entry out`,
        });
      else if (barred !== undefined)
        details.push({
          ...about,
          message: `the job's \`plan\` does not allow this ${barred}`,
          remedy: `leave this entry out, or allow ${barred} ${String(part[barred])} in \`plan\``,
        });
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      details.push(...error.details.map((detail) => ({ ...detail, ...about })));
    }
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
