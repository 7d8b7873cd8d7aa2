const FIRST_WAIT_SECONDS = 1;
const GROWTH = 2;
const LONGEST_WAIT_SECONDS = 60;
/** So much more or less: many jobs that failed together do not come back together. */
const JITTER = 0.2;

/** Everything is sent once more: seldom, and ever more seldom. */
const FIRST_START_OVER_SECONDS = 2;
const START_OVER_GROWTH = 4;
const LONGEST_START_OVER_SECONDS = 6 * 3600;

const grown = (first: number, growth: number, before: number, longest: number, random: number): number =>
  Math.min(first * growth ** before, longest) * (1 + JITTER * (2 * random - 1));

/**
 * Before the next try. @param failures in a row, before this one @param asked what the server asks for
 * @param random from 0 to 1
 */
export const secondsBeforeRetry = (failures: number, asked: number | null, random: number): number =>
  Math.max(
    grown(FIRST_WAIT_SECONDS, GROWTH, failures, LONGEST_WAIT_SECONDS, random),
    Math.min(asked ?? 0, LONGEST_WAIT_SECONDS),
  );

/** @param startOvers before this one */
export const secondsBeforeStartOver = (startOvers: number, random: number): number =>
  grown(FIRST_START_OVER_SECONDS, START_OVER_GROWTH, startOvers, LONGEST_START_OVER_SECONDS, random);
