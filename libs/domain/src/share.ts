/** A number without the last digits, which products of binary fractions get wrong. */
const tidy = (value: number): number => Number(value.toPrecision(15));

/** A share in percent: 0.07 is 7. */
export const percentOf = (share: number): number => tidy(share * 100);

/** A share that is given in percent: 7 is 0.07. */
export const shareOfPercent = (percent: number): number => tidy(percent / 100);

const NUMBER = String.raw`[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?`;
const PERCENT = new RegExp(String.raw`^(${NUMBER})\s*%$`, "i");
const PLAIN = new RegExp(`^${NUMBER}$`, "i");

/** Reads `5%` as 5. @returns undefined for a text without the sign, or without a number before it */
export function readPercent(text: string): number | undefined {
  const number = PERCENT.exec(text.trim())?.[1];
  return number === undefined ? undefined : Number(number);
}

/** Reads a share as people write it: `5%` or `0.05`. @returns undefined for a text that is neither */
export function readShare(text: string): number | undefined {
  const percent = readPercent(text);
  if (percent !== undefined) return shareOfPercent(percent);
  return PLAIN.test(text.trim()) ? Number(text) : undefined;
}
