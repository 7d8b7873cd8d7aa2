import type { JobSpec } from "@internevo/domain";

/**
 * The divisors of a positive integer, ascending, from its prime factors: 2^50 sequences must not take longer
 * than 1,000.
 */
export function divisors(value: number): number[] {
  let rest = value;
  let list = [1];
  for (let prime = 2; prime * prime <= rest; prime += prime === 2 ? 1 : 2) {
    if (rest % prime !== 0) continue;
    const powers = [1];
    while (rest % prime === 0) {
      rest /= prime;
      powers.push((powers.at(-1) as number) * prime);
    }
    list = list.flatMap((one) => powers.map((power) => one * power));
  }
  if (rest > 1) list = list.flatMap((one) => [one, one * rest]);
  return list.sort((a, b) => a - b);
}

/** All divisors of a number from those of its multiple. */
export const divisorsAmong = (candidates: readonly number[], value: number): number[] =>
  candidates.filter((one) => one <= value && value % one === 0);

/** N: ranks of the job's cluster. */
export const clusterRanks = (spec: Pick<JobSpec, "cluster">): number =>
  spec.cluster.nodes * spec.cluster.gpusPerNode;

/** Sequences of one step: B / S. */
export const sequencesPerStep = (spec: Pick<JobSpec, "globalBatchTokens" | "sequenceLengthTokens">): number =>
  spec.globalBatchTokens / spec.sequenceLengthTokens;
