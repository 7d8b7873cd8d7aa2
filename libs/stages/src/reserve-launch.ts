import { WAITS_FOR_CLUSTER, waitsForMachine, waitsForQuota } from "@internevo/contracts";
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
import { OthersGoFirstError } from "@internevo/service-kit";
import { projectOf, type Database } from "@internevo/store";
import { clustersDirectory } from "./directories.ts";

/**
 * Jobs, or workloads, that a service works on at a time. What runs is bounded by the hosts: who waits for them
 * is in a queue, and not in here.
 */
export const MOST_AT_A_TIME = 64;

/** How a service shares its places for a stage among projects: one that is alone has as many as above. */
export const stagePlaces = (database: Database) =>
  ({
    concurrency: 2 * MOST_AT_A_TIME,
    projectOf: async ({ jobId }: { readonly jobId: string }) =>
      (await projectOf(database.db, "job", jobId)) ?? undefined,
  }) as const;

export interface LaunchReservationOptions {
  readonly dataDirectory: string;
  /** Where installations of this machine see each other. */
  readonly machineDirectory: string;
  /** Hosts of clusters with launcher: ssh. */
  readonly clustersFile?: string | undefined;
  readonly cluster: Cluster;
  /** Claims hosts, all or none, as a command's context does; throws while others go first. */
  readonly claimHosts: (hosts: readonly string[]) => Promise<void>;
  /** Throws when the leases are not held any more. */
  readonly confirm: () => Promise<void>;
  readonly use: MachineUse;
  /** Ends the wait for other installations. */
  readonly signal: AbortSignal;
  /** Told when others go first, in words. */
  readonly onWait: (message: string) => void;
  /** Told of other users' installations, which are not waited for. */
  readonly onNotice: (message: string) => void;
  /** Told the same with paths and processes: for the log of the service, not for those who see the job. */
  readonly onDetails: (message: string) => void;
}

/**
 * Takes what ranks are about to run on: every host of the cluster. Two clusters that share a host never
 * measure or train at once, whatever they are called: each would spoil the other's figures. The hosts stay the
 * owner's until it is over. Where a scheduler shares the nodes out, it keeps launches apart. On this machine
 * other installations are waited for as well, until `release`: what they measure and what is measured here
 * would both be spoilt. Ranks that a killed holder left on these hosts are ended, whichever cluster's they were.
 * @throws ProblemError for a cluster that the installation does not know; what `claimHosts` and `confirm` threw.
 */
export async function reserveLaunch(options: LaunchReservationOptions): Promise<{ release(): void }> {
  const { cluster, dataDirectory } = options;
  const target = await launchTarget(cluster, options.clustersFile);
  const hosts = launchedHosts(target);
  if (schedulerOf(cluster) === null) await claim(options, hosts);
  const lock = usesThisMachine(target)
    ? await lockMachine({
        ...options,
        directory: options.machineDirectory,
        onWait: (who) => options.onWait(waitsForMachine(who)),
      })
    : undefined;
  const release = (): void => lock?.release();
  try {
    await options.confirm();
    await killLeftoversOn(clustersDirectory(dataDirectory), hosts, ownHost());
  } catch (error) {
    release();
    throw error;
  }
  return { release };
}

async function claim(options: LaunchReservationOptions, hosts: readonly string[]): Promise<void> {
  try {
    await options.claimHosts(hosts);
  } catch (error) {
    if (error instanceof OthersGoFirstError)
      options.onWait(error.limit === null ? WAITS_FOR_CLUSTER : waitsForQuota(error.limit));
    throw error;
  }
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
    reservation.release();
  }
}
