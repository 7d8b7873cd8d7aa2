import { CompareStepsSchema, GainThresholdSchema, PlanChangeSchema } from "@internevo/domain";
import { Type, type Static } from "typebox";
import { PlanChoiceSchema } from "./advice.ts";
import { PageSchema } from "./http.ts";

export const PlanChangePageSchema = PageSchema(PlanChangeSchema);

export const PlanChangeCreateSchema = Type.Object(
  {
    plan: PlanChoiceSchema,
    gainThreshold: Type.Optional(GainThresholdSchema),
    compareSteps: Type.Optional(CompareStepsSchema),
  },
  { additionalProperties: false },
);
export type PlanChangeCreate = Static<typeof PlanChangeCreateSchema>;
