/** One term of two plans; `difference` is b − a. */
export interface DifferingTerm {
  readonly a: number;
  readonly b: number;
  readonly difference: number;
}

/** Sums round: what two plans differ by less than this share of the whole is the same in both. */
const ROUNDING = 1e-9;
/** Of the difference that is explained: what differs by less says little, and by much less nothing. */
const LITTLE = 1 / 20;
const NEXT_TO_NOTHING = 1 / 1000;

/**
 * The terms that tell two plans apart, and those that are alike: that differ by nothing that is
 * written, or by next to nothing beside the largest difference and beside the total one. Large differences
 * can balance; the small one between them then is what the total is made of.
 * @param format how the terms are written
 */
export function splitTerms<T extends DifferingTerm>(
  terms: readonly T[],
  format: (value: number) => string,
): { readonly differing: readonly T[]; readonly alike: readonly T[] } {
  const whole = terms.reduce((sum, { a, b }) => sum + Math.max(Math.abs(a), Math.abs(b)), 0);
  const total = Math.abs(terms.reduce((sum, { difference }) => sum + difference, 0));
  const most = Math.max(0, ...terms.map(({ difference }) => Math.abs(difference)));
  const differs = ({ a, b, difference }: T): boolean => {
    const size = Math.abs(difference);
    const share = format(a) === format(b) ? LITTLE : NEXT_TO_NOTHING;
    return size > ROUNDING * whole && format(size) !== format(0) && size >= share * Math.min(most, total);
  };
  return { differing: terms.filter(differs), alike: terms.filter((term) => !differs(term)) };
}

/** What the terms that are not told one by one are called. */
export const alikeWords = (terms: readonly DifferingTerm[]): string =>
  terms.some((term) => sumOfDifferences([term]) !== 0) ? "Nearly the same in both" : "The same in both";

/** What terms differ by together, where that is more than rounding; else 0. */
export function sumOfDifferences(terms: readonly DifferingTerm[]): number {
  const sum = terms.reduce((total, { difference }) => total + difference, 0);
  const whole = terms.reduce((total, { a, b }) => total + Math.max(Math.abs(a), Math.abs(b)), 0);
  return Math.abs(sum) <= ROUNDING * whole ? 0 : sum;
}
