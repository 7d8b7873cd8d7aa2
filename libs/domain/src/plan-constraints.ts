import { Type, type TSchema } from "typebox";
import type { Plan } from "./plan.ts";

const oneOrSome = (value: TSchema) => Type.Optional(Type.Union([value, Type.Array(value, { minItems: 1, maxItems: 1000 })]));
const factor = oneOrSome(Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1 }));

/** What a search may choose: of each field that is named, only these values. */
export const PlanConstraintsSchema = Type.Object(
  {
    microBatchSize: factor,
    microBatches: factor,
    recompute: oneOrSome(Type.Boolean()),
    pipelineParallel: factor,
    dataParallel: factor,
    tensorParallel: factor,
    sequenceParallel: factor,
    contextParallel: factor,
    parameterSharding: factor,
    gradientSharding: factor,
    optimizerStateSharding: factor,
    forwardOverlap: oneOrSome(Type.Enum(["none", "block", "inter-layer", "intra-layer"])),
    backwardOverlap: oneOrSome(Type.Enum(["none", "block", "intra-layer"])),
    pipelineChunks: factor,
    recomputeLayers: oneOrSome(Type.Integer({ minimum: 0, maximum: 10_000 })),
  },
  { additionalProperties: false, description: "plans that may be chosen: for any field of a plan a value, or a list of values; what is not named is free, and what a plan leaves out is 1 chunk, a ring of 1, no recomputed layers" },
);

/** A value, or some, of fields of a plan. */
export type PlanConstraints = { readonly [Field in keyof Plan]?: Required<Plan>[Field] | readonly Required<Plan>[Field][] };

/** Whether a constraint leaves a value open. */
export const allowedBy = <Value>(constraint: Value | readonly Value[] | undefined, value: Value): boolean =>
  constraint === undefined || (Array.isArray(constraint) ? (constraint as readonly Value[]).includes(value) : constraint === value);
