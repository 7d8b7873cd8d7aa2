/**
 * Looks of series that stay apart, also for people who see fewer colours: eight colours after Okabe and Ito (styles/base.css), and where a
 * chart has more series, the same colours again in another pattern.
 */
const COLOURS = 8;
const PATTERNS = ["", "pattern-stripes", "pattern-bars", "pattern-dots"] as const;
const DASHES = [undefined, "6 3", "2 3", "8 3 2 3"] as const;

export const seriesColour = (index: number): string => `var(--series-${(index % COLOURS) + 1})`;
/** Class of an area. */
export const seriesPattern = (index: number): string => PATTERNS[Math.floor(index / COLOURS) % PATTERNS.length] ?? "";
/** Dashes of a line. */
export const seriesDash = (index: number): string | undefined => DASHES[Math.floor(index / COLOURS) % DASHES.length];
