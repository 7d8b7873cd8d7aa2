import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { SERVICE_NAMES } from "@internevo/local-stack";

/** What dies. */
export const TARGETS = [...SERVICE_NAMES, "nats", "postgres", "rank"] as const;
export type Target = (typeof TARGETS)[number];

/** A death: so long after the one before. */
export interface Kill {
  readonly afterSeconds: number;
  readonly target: Target;
}

/** Every third death is that of a rank: jobs are at work on ranks for most of their time. */
const RANK_SHARE = 3;

/**
 * Deaths at random moments, the same for the same seed.
 * @param meanSeconds between two of them; the times between are distributed exponentially, so that some come
 * faster than anything can begin anew
 */
export function drawKills(count: number, seed: number, meanSeconds: number): readonly Kill[] {
  const random = xoroshiro128plus(seed);
  const others = TARGETS.filter((target) => target !== "rank");
  return Array.from({ length: count }, () => ({
    afterSeconds: -meanSeconds * Math.log(1 - uniformFloat64(random)),
    target:
      uniformInt(random, 1, RANK_SHARE) === 1
        ? "rank"
        : (others[uniformInt(random, 0, others.length - 1)] as Target),
  }));
}
