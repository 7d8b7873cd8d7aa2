import { Type, type TLiteral, type TNumber, type TUnion } from "typebox";

/** More than any memory, file or message has. */
export const MAXIMUM_BYTES = 2 ** 50;

/** More ranks than any cluster has; their groups are listed one by one. */
export const MAXIMUM_RANKS = 1_000_000;

/** More layers than any model has: the deepest that was published has a thousand. */
export const MAXIMUM_LAYERS = 2000;

/** What the trainer counts steps up to. */
export const MAXIMUM_STEPS = 1_000_000_000;

/** More tokens than a sequence, and than a step's batch, has. */
export const MAXIMUM_SEQUENCE_TOKENS = 2 ** 40;
export const MAXIMUM_BATCH_TOKENS = 2 ** 50;

/**
 * A number that is nothing at all, or large enough to matter in the 4 bytes that the trainer computes with.
 */
export const zeroOr = (
  minimum: number,
  maximum: number,
  description?: string,
): TUnion<[TLiteral<0>, TNumber]> =>
  Type.Union(
    [Type.Literal(0), Type.Number({ minimum, maximum })],
    description === undefined ? {} : { description },
  );
