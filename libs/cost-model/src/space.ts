import { contextOf, headRanks, type JobSpec, type Plan } from "@internevo/domain";

/** The divisors of a positive integer, ascending. */
export function divisors(value: number): number[] {
  const small: number[] = [];
  const large: number[] = [];
  for (let d = 1; d * d <= value; d += 1) {
    if (value % d !== 0) continue;
    small.push(d);
    if (d * d !== value) large.push(value / d);
  }
  return [...small, ...large.reverse()];
}

/** N: ranks of the job's cluster. */
export const clusterRanks = (spec: Pick<JobSpec, "cluster">): number =>
  spec.cluster.nodes * spec.cluster.gpusPerNode;

/** Sequences of one step: B / S. */
export const sequencesPerStep = (spec: Pick<JobSpec, "globalBatchTokens" | "sequenceLengthTokens">): number =>
  spec.globalBatchTokens / spec.sequenceLengthTokens;

/**
 * Why the sequence cannot be split over s_sp ranks; null when it can. Heads are split during attention, or by
 * tensor ranks: over all of them, or over s_sp / contextParallel of them. A ring must be possible (see {@link
 * contextFault}).
 */
export function sequenceSplitFault(
  spec: Pick<JobSpec, "model" | "sequenceLengthTokens">,
  sequenceParallel: number,
  contextParallel = 1,
): "sequence-not-divisible" | "heads-not-divisible" | null {
  const { heads, kvHeads } = spec.model;
  const ranks = headRanks({ sequenceParallel, contextParallel });
  if (spec.sequenceLengthTokens % sequenceParallel !== 0) return "sequence-not-divisible";
  if (heads % ranks !== 0) return "heads-not-divisible";
  if (kvHeads % ranks !== 0 && ranks % kvHeads !== 0) return "heads-not-divisible";
  return null;
}

/**
 * Why a ring cannot share the sequence of a job; null when it can, or when there is none. Every rank of it
 * has two chunks of the sequence.
 */
export function contextFault(
  spec: Pick<JobSpec, "sequenceLengthTokens">,
  plan: Pick<Plan, "contextParallel" | "sequenceParallel" | "tensorParallel">,
): string | null {
  const ring = contextOf(plan);
  if (ring === 1) return null;
  if (plan.tensorParallel !== 1)
    return `contextParallel ${ring} needs tensorParallel 1; it is ${plan.tensorParallel}`;
  if (plan.sequenceParallel % ring !== 0)
    return `contextParallel ${ring} does not divide sequenceParallel ${plan.sequenceParallel}`;
  if (spec.sequenceLengthTokens % (2 * ring) !== 0)
    return `contextParallel ${ring} cuts a sequence into 2 x ${ring} equal chunks, which do not divide sequenceLengthTokens ${spec.sequenceLengthTokens}`;
  return null;
}

/**
 * Why s_tp ranks cannot split the inner width and the vocabulary of the job's model; null when they can.
 * Every rank has a row of the vocabulary.
 */
export function tensorSplitFault(spec: Pick<JobSpec, "model">, tensorParallel: number): string | null {
  const { ffnHiddenSize, vocabularySize } = spec.model;
  if (tensorParallel === 1) return null;
  if (ffnHiddenSize % tensorParallel !== 0)
    return `ffnHiddenSize ${ffnHiddenSize} is not divisible by tensorParallel ${tensorParallel}`;
  if ((tensorParallel - 1) * Math.ceil(vocabularySize / tensorParallel) >= vocabularySize)
    return `tensorParallel ${tensorParallel} leaves the last rank no row of vocabularySize ${vocabularySize}`;
  return null;
}
