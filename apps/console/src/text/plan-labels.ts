import { planLabel, type Plan } from "@internevo/domain";

export interface PlanLabels {
  /** Symbols and values that all plans have in common; empty when they have none, or there is one plan only. */
  readonly common: string;
  /** What tells each plan apart, in the order of the plans. */
  readonly own: readonly string[];
}

/** "inter-layer" and "intra-layer" differ in a syllable; bars have little room. */
const brief = (parts: readonly string[]): string => parts.join(" ").replaceAll("-layer", "");

/** The labels of several plans without what they have in common: what differs is what one looks for. */
export function planLabels(plans: readonly Plan[]): PlanLabels {
  const parts = plans.map((plan) => planLabel(plan).split(" "));
  const [first] = parts;
  if (first === undefined || parts.length === 1) return { common: "", own: plans.map(planLabel) };
  const length = Math.max(...parts.map((each) => each.length));
  const isCommon = Array.from({ length }, (_, index) => parts.every((each) => each[index] === first[index]));
  if (isCommon.every(Boolean)) return { common: "", own: plans.map(planLabel) };
  return { common: first.filter((_, index) => isCommon[index]).join(" "), own: parts.map((each) => brief(each.filter((_, index) => !isCommon[index]))) };
}
