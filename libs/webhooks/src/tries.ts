import { WEBHOOK_BOUNDS } from "@internevo/contracts";

const FIRST_WAIT_SECONDS = 10;
const GROWTH = 3;
const LONGEST_WAIT_SECONDS = 6 * 3600;
/** So many receivers that were down together are not asked together again. */
const JITTER = 0.2;

/**
 * Before the next try. @param tries so far, from 1 @param random from 0 to 1
 * @returns null: it was the last
 */
export function secondsBeforeNextTry(tries: number, random: number): number | null {
  if (tries >= WEBHOOK_BOUNDS.tries) return null;
  const wait = Math.min(FIRST_WAIT_SECONDS * GROWTH ** (tries - 1), LONGEST_WAIT_SECONDS);
  return wait * (1 + JITTER * (2 * random - 1));
}

/** What a receiver asks for may be longer than our wait, within the bound of all waits. */
export const longestOf = (waitSeconds: number, askedSeconds: number | null): number =>
  Math.max(waitSeconds, Math.min(askedSeconds ?? 0, LONGEST_WAIT_SECONDS));
