import { DECODER_PROGRAM, holds, unitPlace, type ByUnit } from "@internevo/domain";
import { byUnit } from "./layer-units.ts";
import { together } from "./together.ts";

/** Places of the units whose product reads the whole sequence, which tensor ranks gather for it. */
export const GATHERED_UNITS: ReadonlySet<number> = new Set(
  DECODER_PROGRAM.operators
    .filter(
      ({ kind, before }) =>
        kind === "linear" && before?.collective === "all-gather" && holds(before, { tensorParallel: true }),
    )
    .map((operator) => unitPlace(DECODER_PROGRAM, operator, "backward")),
);

/**
 * Collectives of tensor ranks in the backward pass of a layer that go on beside products, where it overlaps
 * (native/src/trainer/model_moves.cpp): for each of these units its input is gathered while the gradient of
 * the input is computed, and the sums of this are scattered while the gradient of the weight is.
 */
export interface TensorBeside {
  /** Of the two products of each unit together, which are equally much work; 0 where nothing goes on beside. */
  readonly products: ByUnit;
  /** Of one unit, alone. */
  readonly gatherSeconds: number;
  readonly scatterSeconds: number;
  /** R of such a product beside either, at least 1. */
  readonly slowdowns: { readonly gather: number; readonly scatter: number };
}

/** Seconds of the product of one gradient of a unit. */
export const gradientSeconds = ({ products }: Pick<TensorBeside, "products">, unit: number): number =>
  (products[unit] as number) / 2;

/** Seconds of a layer that these collectives take alone, and that are left of them where they are beside. */
export function besideSeconds(beside: TensorBeside): { readonly alone: number; readonly waited: number } {
  const { gatherSeconds, scatterSeconds, slowdowns } = beside;
  let alone = 0;
  let waited = 0;
  for (const unit of GATHERED_UNITS) {
    const compute = gradientSeconds(beside, unit);
    alone += gatherSeconds + scatterSeconds;
    waited +=
      together(compute, gatherSeconds, slowdowns.gather) -
      compute +
      (together(compute, scatterSeconds, slowdowns.scatter) - compute);
  }
  return { alone, waited };
}

/** The same products with every unit as many times longer as the whole unit. */
export const correctedProducts = (products: ByUnit, composed: ByUnit, corrected: ByUnit): ByUnit =>
  byUnit((unit) =>
    GATHERED_UNITS.has(unit) && (composed[unit] as number) > 0
      ? ((products[unit] as number) * (corrected[unit] as number)) / (composed[unit] as number)
      : 0,
  );
