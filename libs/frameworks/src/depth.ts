/**
 * Values inside one another that a configuration may have. What is deeper would overflow the stack of
 * whatever walks through it.
 */
export const MOST_DEPTH = 100;

/** What a file is that nests deeper: a fault's message and its remedy. */
export const TOO_DEEP = [
  `is nested more than ${MOST_DEPTH} levels deep`,
  "leave out what is nested so deep",
] as const;

/**
 * Whether a parsed value nests deeper. Values are looked at level by level: to go down into them is what is
 * not safe.
 */
export function isTooDeep(value: unknown): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; depth <= MOST_DEPTH; depth += 1) {
    level = level.flatMap((each) =>
      typeof each === "object" && each !== null ? (Object.values(each) as unknown[]) : [],
    );
    if (level.length === 0) return false;
  }
  return true;
}
