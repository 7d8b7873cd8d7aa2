import type { TInteger } from "typebox";
import { contextOf, type Plan } from "./plan.ts";

/**
 * The fields of a plan that say how ranks share a sequence: they decide the shapes of a layer on one rank, and
 * what its ranks send each other inside it.
 */
type SplitField = "sequenceParallel" | "tensorParallel" | "contextParallel";

export type SequenceSplit = { readonly [Field in SplitField]: number };
/** What a split may be read from: a plan, or a part of one, leaves out a ring of one rank. */
export type SplitSource = Readonly<Pick<Plan, SplitField>>;

/** How a plan shares a sequence. */
export const splitOf = (plan: SplitSource): SequenceSplit => ({
  sequenceParallel: plan.sequenceParallel,
  tensorParallel: plan.tensorParallel,
  contextParallel: contextOf(plan),
});

/** The same for two plans that share a sequence in one way, and for no others. */
export const splitKey = (split: SequenceSplit): string =>
  `${split.sequenceParallel} ${split.tensorParallel} ${split.contextParallel}`;

/** A split without what it need not say. */
export const shortSplit = ({ contextParallel, ...split }: SequenceSplit): SplitSource => ({
  ...split,
  ...(contextParallel > 1 ? { contextParallel } : {}),
});

/** All but how ranks share the sequence. */
export function withoutSplit<T extends SequenceSplit>(shape: T): Omit<T, SplitField> {
  const { sequenceParallel: _ranks, tensorParallel: _tensor, contextParallel: _ring, ...rest } = shape;
  return rest;
}

/** The schema of a split. */
export const splitProperties = (size: TInteger): Record<SplitField, TInteger> => ({
  sequenceParallel: size,
  tensorParallel: size,
  contextParallel: size,
});

/** By what the ranks of a sequence share it: nobody shares it, tensor ranks, a ring, or Ulysses's all-to-all. */
export type SplitKind = "alone" | "tensor" | "ring" | "heads";

export function splitKind(split: SplitSource): SplitKind {
  if (split.sequenceParallel === 1) return "alone";
  if (split.tensorParallel > 1) return "tensor";
  return contextOf(split) > 1 ? "ring" : "heads";
}

/** How unlike two splits are, as the sum of the logarithms of what differs; tensor ranks are of another kind. */
export const splitDistance = (a: SequenceSplit, b: SequenceSplit): number =>
  Math.abs(Math.log(a.sequenceParallel / b.sequenceParallel)) +
  Math.abs(Math.log(a.contextParallel / b.contextParallel));
