import type { JobSpec } from "./job.ts";
import { worldSize, type Plan } from "./plan.ts";

/** What a measured or predicted rate of tokens counts. */
export const TOKENS_COUNTED = "tokens of all sequences of a step, also those without a target";

/** Steps that so many ranks made in so many seconds, all of them together. */
export interface TimedSteps {
  readonly steps: number;
  readonly seconds: number;
  readonly ranks: number;
}

const sumOf = <T>(parts: readonly T[], of: (part: T) => number): number =>
  parts.reduce((total, part) => total + of(part), 0);
const rankSeconds = (parts: readonly TimedSteps[]): number =>
  sumOf(parts, ({ seconds, ranks }) => seconds * ranks);

/**
 * Tokens that all ranks work off in a second. Each step has those of its sequences, predicted or measured. They are
 * more than the tokens with a target where data is packed: the last of a document has none.
 */
export const tokensPerSecond = (
  { globalBatchTokens }: Pick<JobSpec, "globalBatchTokens">,
  stepTimeSeconds: number,
): number => globalBatchTokens / stepTimeSeconds;

/**
 * Of these tokens, those of one rank: all tokens by all of the ranks' time. So what slow steps lose counts as it does
 * in the mean step time; the mean of the steps' rates is higher.
 */
export const tokensPerRankPerSecond = (
  { globalBatchTokens }: Pick<JobSpec, "globalBatchTokens">,
  parts: readonly TimedSteps[],
): number => (sumOf(parts, ({ steps }) => steps) * globalBatchTokens) / rankSeconds(parts);

/**
 * MFU of steps by the time that they took. The model needs as many operations under every plan, so that it follows from
 * what was predicted for one of them.
 */
export function measuredMfu(
  predicted: {
    readonly plan: Plan;
    readonly predicted: { readonly mfu: number; readonly stepTimeSeconds: number };
  },
  parts: readonly TimedSteps[],
): number {
  const { mfu, stepTimeSeconds } = predicted.predicted;
  const predictedRankSeconds = stepTimeSeconds * worldSize(predicted.plan);
  return (mfu * predictedRankSeconds * sumOf(parts, ({ steps }) => steps)) / rankSeconds(parts);
}
