import { Type } from "typebox";
import { PLAN_ROWS, planValue, type PlanField, type PlanFieldValue } from "./plan-fields.ts";
import { planFieldSchema, type Plan } from "./plan.ts";

/** A value, or some, of fields of a plan. */
export type PlanConstraints = {
  readonly [Field in PlanField]?: PlanFieldValue<Field> | readonly PlanFieldValue<Field>[];
};

const DESCRIPTION =
  "plans that may be chosen: for any field of a plan a value, or a list of values; what is not named is free, and what a plan leaves out is 1 chunk, a ring of 1, no recomputed layers";

function planConstraintsSchema() {
  const oneOrSome = ([field]: (typeof PLAN_ROWS)[number]) => {
    const value = planFieldSchema(field);
    return [
      field,
      Type.Optional(Type.Union([value, Type.Array(value, { minItems: 1, maxItems: 1000 })])),
    ] as const;
  };
  return Type.Unsafe<PlanConstraints>(
    Type.Object(Object.fromEntries(PLAN_ROWS.map(oneOrSome)), {
      additionalProperties: false,
      description: DESCRIPTION,
    }),
  );
}

/** What a search may choose: of each field that is named, only these values. */
export const PlanConstraintsSchema = planConstraintsSchema();

/** Whether a constraint leaves a value open. */
export const allowedBy = <Value>(constraint: Value | readonly Value[] | undefined, value: Value): boolean =>
  constraint === undefined ||
  (Array.isArray(constraint) ? (constraint as readonly Value[]).includes(value) : constraint === value);

/** Whether a plan has, of each field that is named, one of the values. */
export const meetsConstraints = (plan: Plan, constraints: PlanConstraints): boolean =>
  PLAN_ROWS.every(([field]) => allowedBy<unknown>(constraints[field], planValue(plan, field)));
