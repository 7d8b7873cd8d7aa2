import { WAITS_FOR_CLUSTER, waitsForMachine } from "@internevo/contracts";
import { schedulerOf, type Cluster } from "@internevo/domain";
import {
  killLeftoversOn,
  launchedHosts,
  launchTarget,
  lockMachine,
  ownHost,
  usesThisMachine,
  type MachineUse,
} from "@internevo/launcher";
import { allocationLease, hostLease } from "@internevo/store";
import { clustersDirectory } from "./directories.ts";

/**
 * Jobs, or workloads, that a service works on at a time. Most of them only wait for their hosts, which costs a
 * query a second. What runs is bounded by the hosts: a job that waits must not stop one whose hosts are free.
 */
export const MOST_AT_A_TIME = 64;

export interface LaunchReservationOptions {
  readonly dataDirectory: string;
  /** Where installations of this machine see each other. */
  readonly machineDirectory: string;
  /** Hosts of clusters with launcher: ssh. */
  readonly clustersFile?: string | undefined;
  readonly cluster: Cluster;
  /** The job, or whatever else is launched for. */
  readonly owner: string;
  /** Waits for one resource and keeps it, as a command's context does. */
  readonly reserve: (resource: string, onWait: () => void) => Promise<{ release(): Promise<void> }>;
  /** Throws when the leases are not held any more. */
  readonly confirm: () => Promise<void>;
  readonly use: MachineUse;
  /** Ends the wait for other installations. */
  readonly signal: AbortSignal;
  /** Told when somebody else has one of the resources, in words. */
  readonly onWait: (message: string) => void;
  /** Told of other users' installations, which are not waited for. */
  readonly onNotice: (message: string) => void;
}

/**
 * Takes what ranks are about to run on: every host of the cluster. Two clusters that share a host never
 * measure or train at once, whatever they are called: each would spoil the other's figures. Where a scheduler
 * shares the nodes out, a job only keeps its own launches apart. On this machine other installations are
 * waited for as well: what they measure and what is measured here would both be spoilt. Ranks that a killed
 * holder left on these hosts are ended, whichever cluster's they were.
 * @throws ProblemError for a cluster that the installation does not know; what `reserve` and `confirm` threw.
 */
export async function reserveLaunch(
  options: LaunchReservationOptions,
): Promise<{ release(): Promise<void> }> {
  const { cluster, owner, dataDirectory } = options;
  const target = await launchTarget(cluster, options.clustersFile);
  const hosts = launchedHosts(target);
  const resources =
    schedulerOf(cluster) === null ? hosts.map(hostLease) : [allocationLease(cluster.name, owner)];
  const held: { release(): Promise<void> }[] = [];
  const release = async (): Promise<void> => {
    for (const each of held.splice(0).reverse()) await each.release();
  };
  let told = false;
  const onWait = (): void => {
    if (!told) options.onWait(WAITS_FOR_CLUSTER);
    told = true;
  };
  try {
    // Everybody takes them in the same order, so that no two wait for each other.
    for (const resource of resources) held.push(await options.reserve(resource, onWait));
    if (usesThisMachine(target)) {
      const lock = await lockMachine({
        ...options,
        directory: options.machineDirectory,
        onWait: (who) => options.onWait(waitsForMachine(who)),
      });
      held.push({ release: async () => lock.release() });
    }
    await options.confirm();
    await killLeftoversOn(clustersDirectory(dataDirectory), hosts, ownHost());
  } catch (error) {
    await release();
    throw error;
  }
  return { release };
}

/** Works with what a launch needs reserved, and gives it back however the work ends. */
export async function whileReserved<T>(
  options: LaunchReservationOptions,
  work: () => Promise<T>,
): Promise<T> {
  const reservation = await reserveLaunch(options);
  try {
    return await work();
  } finally {
    await reservation.release();
  }
}
