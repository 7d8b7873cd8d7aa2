import type { ClusterRecord } from "@internevo/contracts";
import { launcherOf } from "@internevo/launcher";
import { hostsUse, jobsAtWorkOn, profilesOfCluster, type HostsUse, type Queryable } from "@internevo/store";
import type { SeenCluster } from "./cluster-watch.ts";

const MOST_PROFILES = 10;

const hasOneOf = (hosts: readonly string[], ofCluster: ReadonlySet<string>): boolean =>
  hosts.some((host) => ofCluster.has(host));

/** Clusters with what they have, who uses them and what was measured of them. @param only as of {@link clusterRecord} */
export async function clusterRecords(
  db: Queryable,
  clusters: readonly SeenCluster[],
  only: string | null,
): Promise<ClusterRecord[]> {
  const use = await hostsUse(db, only);
  const records: ClusterRecord[] = [];
  for (const cluster of clusters) records.push(await clusterRecord(db, cluster, only, use));
  return records;
}

/** One of them. @param only names work of this project; null: of all. @param use of all hosts, where it is known */
export async function clusterRecord(
  db: Queryable,
  cluster: SeenCluster,
  only: string | null,
  use?: HostsUse,
): Promise<ClusterRecord> {
  const { name, launcher, seen } = cluster;
  const hosts = new Set(cluster.hosts);
  // Without a description every name that a job gives is this machine.
  const isNamed = launcherOf(cluster).description !== null;
  const { holders, waiting, taken } = use ?? (await hostsUse(db, only));
  const claimed = holders.filter((holder) => hasOneOf(holder.hosts, hosts));
  return {
    name,
    launcher,
    capacity: seen?.look.capacity ?? null,
    health: seen === undefined ? null : { ...seen.look.health, lookedAt: seen.at.toISOString() },
    holders: hosts.size === 0 ? await jobsAtWorkOn(db, { name, launcher }, only) : claimed,
    hostsInUse: cluster.hosts.filter((host) => taken.has(host)).length,
    waiting: waiting.filter((waiter) => hasOneOf(waiter.hosts, hosts)),
    profiles: await profilesOfCluster(db, isNamed ? { launcher, name } : { launcher }, MOST_PROFILES),
  };
}
