import { Type, type Static } from "typebox";
import type { ProblemDetail } from "./problem.ts";

/*
 * How a model was stretched to sequences longer than those it was first trained on. The kinds and what they mean are those of
 * Hugging Face's rope_scaling; native/include/internevo/rope.h computes them.
 */

const strict = { additionalProperties: false } as const;
const factor = Type.Number({ minimum: 1, maximum: 1e6, description: "how many times longer" });
const originalPositions = Type.Integer({
  minimum: 1,
  maximum: 2 ** 31 - 1,
  description: "the positions before scaling (original_max_position_embeddings)",
});
const positive = (description: string) => Type.Number({ exclusiveMinimum: 0, maximum: 1e6, description });

export const RopeScalingSchema = Type.Union(
  [
    Type.Object({ kind: Type.Literal("linear"), factor }, strict),
    Type.Object(
      {
        kind: Type.Literal("llama3"),
        factor,
        originalPositions,
        lowFrequencyFactor: positive("pairs that turn less often in the original positions are stretched"),
        highFrequencyFactor: positive("pairs that turn more often in the original positions stay"),
      },
      strict,
    ),
    Type.Object(
      {
        kind: Type.Literal("yarn"),
        factor,
        originalPositions,
        betaFast: Type.Optional(positive("pairs with more turns stay; 32 where it is left out")),
        betaSlow: Type.Optional(positive("pairs with fewer turns are stretched; 1 where it is left out")),
        truncate: Type.Optional(
          Type.Boolean({ description: "the borders are whole pairs; true where it is left out" }),
        ),
        attentionFactor: Type.Optional(
          positive("multiplies cosines and sines; follows from factor where it is left out"),
        ),
        mscale: Type.Optional(positive("mscale")),
        mscaleAllDimensions: Type.Optional(positive("mscale_all_dim")),
      },
      strict,
    ),
  ],
  { description: "how rotary positions are scaled for sequences longer than the model was first trained on" },
);
export type RopeScaling = Static<typeof RopeScalingSchema>;

/** What yarn has unless it says otherwise. */
const YARN_DEFAULTS = { betaFast: 32, betaSlow: 1, truncate: true } as const;

/** The same scaling without what is its default anyway. */
export function plainRopeScaling(scaling: RopeScaling): RopeScaling {
  if (scaling.kind !== "yarn") return scaling;
  const said = Object.entries(scaling).filter(
    ([name, value]) => YARN_DEFAULTS[name as keyof typeof YARN_DEFAULTS] !== value,
  );
  return Object.fromEntries(said) as RopeScaling;
}

/** What the members of a scaling must have to do with each other. */
export function ropeScalingFaults(
  scaling: RopeScaling,
  ropeTheta: number | undefined,
  field: string,
): ProblemDetail[] {
  if (scaling.kind === "linear") return [];
  if (scaling.kind === "llama3") {
    const { lowFrequencyFactor: low, highFrequencyFactor: high } = scaling;
    if (high > low) return [];
    return [
      {
        field: `${field}.highFrequencyFactor`,
        value: high,
        message: `is not more than lowFrequencyFactor ${low}`,
        remedy: "give more than lowFrequencyFactor; Llama 3.1 has 1 and 4",
      },
    ];
  }
  const { betaFast, betaSlow } = { ...YARN_DEFAULTS, ...scaling };
  const faults: ProblemDetail[] = [];
  if (betaFast < betaSlow)
    faults.push({
      field: `${field}.betaFast`,
      value: betaFast,
      message: `is less than betaSlow ${betaSlow}`,
      remedy: "give at least betaSlow, or leave both out for 32 and 1",
    });
  if (ropeTheta !== undefined && ropeTheta <= 1)
    faults.push({
      field: field.replace(/[^.]*$/, "ropeTheta"),
      value: ropeTheta,
      message: "is not more than 1, which yarn needs",
      remedy: "give the base of the model's positions, such as 10000",
    });
  return faults;
}
