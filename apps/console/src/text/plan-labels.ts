import { planLabel, type Plan } from "@internevo/domain";

export interface PlanLabels {
  /**
   * Symbols and values that all plans have in common; empty when they have none, or there is one plan only.
   */
  readonly common: string;
  /** What tells each plan apart, in the order of the plans. */
  readonly own: readonly string[];
}

/** What the overlap of a label's part is in words; bars have little room. */
const GRAINS: Readonly<Record<string, string>> = {
  none: "none",
  block: "blocks",
  "inter-layer": "layers",
  "intra-layer": "modules",
};
const briefPart = (part: string): string => {
  const [, forward, backward] = /^ov([a-z-]+)\/([a-z-]+)$/.exec(part) ?? [];
  if (forward === undefined || backward === undefined) return part;
  return `overlaps ${forward === backward ? GRAINS[forward] : `${GRAINS[forward]}, ${GRAINS[backward]}`}`;
};
const brief = (parts: readonly string[]): string => parts.map(briefPart).join(" ");

/** The labels of several plans without what they have in common: what differs is what one looks for. */
export function planLabels(plans: readonly Plan[]): PlanLabels {
  const parts = plans.map((plan) => planLabel(plan).split(" "));
  const [first] = parts;
  if (first === undefined || parts.length === 1) return { common: "", own: plans.map(planLabel) };
  const length = Math.max(...parts.map((each) => each.length));
  const isCommon = Array.from({ length }, (_, index) => parts.every((each) => each[index] === first[index]));
  if (isCommon.every(Boolean)) return { common: "", own: plans.map(planLabel) };
  return {
    common: brief(first.filter((_, index) => isCommon[index])),
    own: parts.map((each) => brief(each.filter((_, index) => !isCommon[index]))),
  };
}
