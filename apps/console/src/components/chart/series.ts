import { seriesLook, type SeriesLook, type SeriesPattern } from "@internevo/domain";

/** What a dash is to a line, a pattern is to an area. */
const DASHES: Readonly<Record<SeriesPattern, string | undefined>> = {
  plain: undefined,
  stripes: "6 3",
  bars: "2 3",
  dots: "8 3 2 3",
};

export const lookColour = ({ colour }: Pick<SeriesLook, "colour">): string => `var(--series-${colour + 1})`;
/** Class of an area. */
export const lookPattern = ({ pattern }: Pick<SeriesLook, "pattern">): string =>
  pattern === "plain" ? "" : `pattern-${pattern}`;

export const seriesColour = (index: number): string => lookColour(seriesLook(index));
/** Class of an area. */
export const seriesPattern = (index: number): string => lookPattern(seriesLook(index));
/** Dashes of a line. */
export const seriesDash = (index: number): string | undefined => DASHES[seriesLook(index).pattern];
