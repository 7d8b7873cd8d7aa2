import {
  differencesOf,
  formatPercent,
  formatSignedPercent,
  type Candidate,
  type Proposal,
} from "@internevo/domain";

export type Comparison =
  | { readonly kind: "first"; readonly proposed: Candidate; readonly differences: Proposal["differences"] }
  | {
      readonly kind: "better";
      readonly current: Candidate;
      readonly proposed: Candidate;
      readonly predictedGain: number;
      readonly differences: Proposal["differences"];
    }
  | { readonly kind: "keep"; readonly reason: string };

/**
 * Whether a new search found something worth changing to.
 * @param current the plan in use, predicted from the newest profile: old and new figures must come from the
 * same measurements.
 *   Undefined when none was ever chosen; null when the plan in use does not fit any more.
 * @param gainThreshold predicted gain that makes a proposal, a fraction of the current step time.
 */
export function comparePlans(
  current: Candidate | null | undefined,
  proposed: Candidate,
  gainThreshold: number,
): Comparison {
  if (current === undefined || current === null)
    return { kind: "first", proposed, differences: differencesOf(null, proposed.plan) };
  const differences = differencesOf(current.plan, proposed.plan);
  if (differences.length === 0) return { kind: "keep", reason: "it is still the best" };
  const predictedGain = 1 - proposed.predicted.stepTimeSeconds / current.predicted.stepTimeSeconds;
  if (predictedGain <= 0 || predictedGain < gainThreshold) {
    return {
      kind: "keep",
      reason:
        `the best other plan gains ${formatSignedPercent(predictedGain)}, ` +
        `below the threshold of ${formatPercent(gainThreshold)}`,
    };
  }
  return { kind: "better", current, proposed, predictedGain, differences };
}
