import { schedulerOf, type Cluster } from "@internevo/domain";
import { killLeftoversOn, launchedHosts, launchTarget, ownHost } from "@internevo/launcher";
import { allocationLease, hostLease } from "@internevo/store";
import { clustersDirectory } from "./directories.ts";

export interface LaunchReservationOptions {
  readonly dataDirectory: string;
  /** Hosts of clusters with launcher: ssh. */
  readonly clustersFile?: string | undefined;
  readonly cluster: Cluster;
  /** The job, or whatever else is launched for. */
  readonly owner: string;
  /** Waits for one resource and keeps it, as a command's context does. */
  readonly reserve: (resource: string, onWait: () => void) => Promise<{ release(): Promise<void> }>;
  /** Throws when the leases are not held any more. */
  readonly confirm: () => Promise<void>;
  /** Told once, when somebody else has one of the resources. */
  readonly onWait: () => void;
}

/**
 * Takes what ranks are about to run on: every host of the cluster. Two clusters that share a host never measure or train at once, whatever
 * they are called: each would spoil the other's figures. Where a scheduler shares
 * the nodes out, a job only keeps its own launches apart.
 * Ranks that a killed holder left on these hosts are ended, whichever cluster's they were.
 * @throws ProblemError for a cluster that the installation does not know; what `reserve` and `confirm` threw.
 */
export async function reserveLaunch(
  options: LaunchReservationOptions,
): Promise<{ release(): Promise<void> }> {
  const { cluster, owner, dataDirectory } = options;
  const hosts = launchedHosts(await launchTarget(cluster, options.clustersFile));
  const resources =
    schedulerOf(cluster) === null ? hosts.map(hostLease) : [allocationLease(cluster.name, owner)];
  const held: { release(): Promise<void> }[] = [];
  const release = async (): Promise<void> => {
    for (const each of held.splice(0).reverse()) await each.release();
  };
  let told = false;
  const onWait = (): void => {
    if (!told) options.onWait();
    told = true;
  };
  try {
    // Everybody takes them in the same order, so that no two wait for each other.
    for (const resource of resources) held.push(await options.reserve(resource, onWait));
    await options.confirm();
    await killLeftoversOn(clustersDirectory(dataDirectory), hosts, ownHost());
  } catch (error) {
    await release();
    throw error;
  }
  return { release };
}
