import { shareOfPercent } from "@internevo/domain";

/** Why a field in percent cannot be sent, an empty one included; undefined: nothing. */
export const percentFault = (
  value: number | string,
  minimum: number,
  maximum: number,
): string | undefined => {
  const percent = String(value).trim() === "" ? Number.NaN : Number(value);
  return percent >= minimum && percent <= maximum ? undefined : `Give a number from ${minimum} to ${maximum}`;
};

/** The share that a field in percent says. */
export const shareOfField = (value: number | string): number => shareOfPercent(Number(value));
