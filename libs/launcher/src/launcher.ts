import type { Cluster, LauncherKind, ProblemDetail } from "@internevo/domain";
import type { TObject, TSchema } from "typebox";
import type { ClusterLook } from "./cluster-look.ts";
import type { LaunchOptions, LaunchOutcome } from "./launch-options.ts";
import type { CudaHost, NativeProgram } from "./programs.ts";

/** What can start ranks on the machine of the services. */
export interface LaunchCapabilities {
  /** Whether a program of that name is on the path. */
  readonly hasProgram: (name: string) => boolean;
  /** Describes the clusters of launchers that need a description; undefined: none are known. */
  readonly clustersFile?: string | undefined;
  /** More ranks than this are not started on one machine. */
  readonly maximumLocalRanks: number;
  readonly localMemoryBytes: number;
  readonly cores?: number | undefined;
  /** Where checkpoints are written, as this machine sees it; undefined: unknown. */
  readonly dataDirectory?: string | undefined;
  /** What ranks on GPUs of this machine have; undefined: unknown. */
  readonly cuda?: CudaHost | undefined;
}

/** How an installation's clusters file describes a cluster of this launcher. */
export interface ClusterDescription<Settings> {
  /** The member of an entry that says that it is of this kind. */
  readonly member: string;
  readonly schema: TObject;
  /** "describes no Slurm cluster". */
  readonly noun: string;
  /** "is run by Slurm". */
  readonly words: string;
  /**
   * What the launcher needs of a valid entry.
   * @throws ProblemError `job-invalid` where the job's cluster does not fit it, `unavailable` where the entry
   * contradicts itself.
   */
  settingsOf(entry: unknown, cluster: DescribedCluster, clustersFile: string): Settings;
  /**
   * The same for the whole cluster, whatever a job takes of it.
   * @throws ProblemError `unavailable` where the entry contradicts itself.
   */
  wholeOf(entry: unknown, name: string, clustersFile: string): Settings;
}

/** What a job says of the cluster that is looked up. */
export type DescribedCluster = Pick<Cluster, "name" | "nodes" | "gpusPerNode">;

/** A launch whose supervisor is gone. */
export interface LeftLaunch {
  /** See {@link LaunchOptions.label}. */
  readonly label: string;
  /** Whether somebody has asked for its end. */
  readonly cancelled: boolean;
}

/**
 * Ranks that outlive their supervisor: how the next one finds and ends them. The caller owns the run
 * directory.
 */
export interface Outliving {
  /** The launch of a run directory that nobody has concluded; undefined: there is none. */
  left(runDirectory: string): LeftLaunch | undefined;
  /**
   * @returns whether nothing of it is left; not while the scheduler does not answer. @param seconds how long
   * it may take.
   */
  endLeft(runDirectory: string, seconds?: number): Promise<boolean>;
}

/**
 * Starts ranks in one way. All that is particular to a launcher is behind this; nobody else compares a
 * launcher's name. `Settings`: what it needs to reach a cluster, from the cluster's description.
 */
export interface Launcher<Settings = unknown> {
  readonly kind: LauncherKind;
  /** Null: its clusters need no description. */
  readonly description: ClusterDescription<Settings> | null;
  /** Why the job's cluster cannot run here although it is described. */
  faults(cluster: Cluster, settings: Settings, here: LaunchCapabilities): ProblemDetail[];
  /**
   * The hosts that a launch takes, each once, in the order of the alphabet; none where a scheduler chooses
   * them.
   */
  hosts(settings: Settings): string[];
  /**
   * What a cluster has, and whether it can be reached now. Never throws for a cluster that is away.
   * @param signal ends the look.
   */
  look(settings: Settings, here: LaunchCapabilities, signal: AbortSignal): Promise<ClusterLook>;
  /**
   * Whether ranks of a launch compute on this machine: as its own, as a host of the cluster, or in a place
   * inside it, such as a testbed.
   */
  usesThisMachine(settings: Settings): boolean;
  /** See `launchRanks`, which calls it. */
  launch<P extends NativeProgram<TSchema, TSchema>>(
    options: LaunchOptions<P>,
    settings: Settings,
  ): Promise<LaunchOutcome>;
  /** Null: ranks end with their supervisor. */
  readonly outliving: Outliving | null;
  /** The beginning of the command line that starts a program on so many ranks, for people. */
  startWords(ranks: number): string;
}
