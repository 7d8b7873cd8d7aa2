import type { StepMetric, ValidationLoss } from "@internevo/domain";

/** Both losses over the same steps; null where a step has none. */
export interface LossCurves {
  readonly steps: readonly number[];
  readonly training: readonly (number | null)[];
  readonly validation: readonly (number | null)[];
}

/** @param steps in order, as are @param validations */
export function lossCurves(
  steps: readonly Pick<StepMetric, "step" | "loss">[],
  validations: readonly Pick<ValidationLoss, "step" | "loss">[],
): LossCurves {
  const trained = new Map(steps.map(({ step, loss }) => [step, loss]));
  const evaluated = new Map(validations.map(({ step, loss }) => [step, loss]));
  const all = [...new Set([...trained.keys(), ...evaluated.keys()])].sort((a, b) => a - b);
  return {
    steps: all,
    training: all.map((step) => trained.get(step) ?? null),
    validation: all.map((step) => evaluated.get(step) ?? null),
  };
}
