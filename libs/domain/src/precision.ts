import { Type, type Static } from "typebox";

/**
 * Precision policies.
 * - `fp32`: everything in 4 bytes, no separate master copy.
 * - `bf16`: bf16 parameters and activations, fp32 gradients, fp32 master weights and moments.
 * - `bf16-grad16`: as `bf16` with 2-byte gradients, as the runs of the paper kept them.
 */
export const PRECISIONS = ["fp32", "bf16", "bf16-grad16"] as const;
export const PrecisionSchema = Type.Enum(PRECISIONS);
export type Precision = Static<typeof PrecisionSchema>;

/** Bytes a parameter takes in each model state: β_P, β_G, β_OS; and bytes of an activation element. */
export interface PrecisionBytes {
  readonly parameterBytes: number;
  readonly gradientBytes: number;
  readonly optimizerStateBytes: number;
  readonly activationBytes: number;
}

export const PRECISION_BYTES: Readonly<Record<Precision, PrecisionBytes>> = {
  fp32: { parameterBytes: 4, gradientBytes: 4, optimizerStateBytes: 8, activationBytes: 4 },
  bf16: { parameterBytes: 2, gradientBytes: 4, optimizerStateBytes: 12, activationBytes: 2 },
  "bf16-grad16": { parameterBytes: 2, gradientBytes: 2, optimizerStateBytes: 12, activationBytes: 2 },
};
