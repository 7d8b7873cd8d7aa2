/** A leap second, which JavaScript's dates lack. */
const LEAP_SECOND = /:60(?=[.Z+-])/;

/**
 * The instant of an RFC 3339 time with its offset, in milliseconds since 1970; a leap second is the second
 * behind it. NaN for another text.
 */
export function instantMilliseconds(text: string): number {
  const upper = text.toUpperCase().replace(" ", "T");
  return LEAP_SECOND.test(upper) ? Date.parse(upper.replace(LEAP_SECOND, ":59")) + 1000 : Date.parse(upper);
}
