import type { JobSpec } from "@internevo/domain";

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
export const clusterRanks = (spec: Pick<JobSpec, "cluster">): number => spec.cluster.nodes * spec.cluster.gpusPerNode;

/** Sequences of one step: B / S. */
export const sequencesPerStep = (spec: Pick<JobSpec, "globalBatchTokens" | "sequenceLengthTokens">): number =>
  spec.globalBatchTokens / spec.sequenceLengthTokens;

/** Why the sequence cannot be split over s_sp ranks; null when it can. Heads are split during attention, or by tensor ranks. */
export function sequenceSplitFault(spec: Pick<JobSpec, "model" | "sequenceLengthTokens">, sequenceParallel: number): "sequence-not-divisible" | "heads-not-divisible" | null {
  const { heads, kvHeads } = spec.model;
  if (spec.sequenceLengthTokens % sequenceParallel !== 0) return "sequence-not-divisible";
  if (heads % sequenceParallel !== 0) return "heads-not-divisible";
  if (kvHeads % sequenceParallel !== 0 && sequenceParallel % kvHeads !== 0) return "heads-not-divisible";
  return null;
}

/** Why s_tp ranks cannot split the inner width and the vocabulary of the job's model; null when they can. Every rank has a row of the vocabulary. */
export function tensorSplitFault(spec: Pick<JobSpec, "model">, tensorParallel: number): string | null {
  const { ffnHiddenSize, vocabularySize } = spec.model;
  if (tensorParallel === 1) return null;
  if (ffnHiddenSize % tensorParallel !== 0) return `ffnHiddenSize ${ffnHiddenSize} is not divisible by tensorParallel ${tensorParallel}`;
  if ((tensorParallel - 1) * Math.ceil(vocabularySize / tensorParallel) >= vocabularySize) return `tensorParallel ${tensorParallel} leaves the last rank no row of vocabularySize ${vocabularySize}`;
  return null;
}
