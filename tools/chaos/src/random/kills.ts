import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";
import { SERVICE_NAMES } from "@internevo/local-stack";

/** What dies. */
export const TARGETS = [...SERVICE_NAMES, "nats", "postgres", "rank"] as const;
/** Further servers of a cluster. */
export const CLUSTER_TARGETS = ["nats-2", "nats-3", "postgres-standby"] as const;
/** Links between the services and their servers: they have a fault for some seconds. */
export const LINK_TARGETS = ["link to postgres", "link to nats"] as const;
export type LinkTarget = (typeof LINK_TARGETS)[number];
/** What ranks run on: it fails for some seconds. */
export type SiteTarget = "link of a node" | "slurm controller";
export type Target = (typeof TARGETS)[number] | (typeof CLUSTER_TARGETS)[number] | LinkTarget | SiteTarget;

export const isLink = (target: Target): target is LinkTarget =>
  (LINK_TARGETS as readonly Target[]).includes(target);

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
export function drawKills(
  count: number,
  seed: number,
  meanSeconds: number,
  targets: readonly Target[] = TARGETS,
): readonly Kill[] {
  const random = xoroshiro128plus(seed);
  const others = targets.filter((target) => target !== "rank");
  return Array.from({ length: count }, () => ({
    afterSeconds: -meanSeconds * Math.log(1 - uniformFloat64(random)),
    target:
      uniformInt(random, 1, RANK_SHARE) === 1
        ? "rank"
        : (others[uniformInt(random, 0, others.length - 1)] as Target),
  }));
}
