/**
 * What planning, checking and storing must know of a launcher. How it starts ranks is the launcher's own
 * business.
 */
interface LauncherFacts {
  /** Ranks run on the machine of the services, and nowhere else. */
  readonly runsHere: boolean;
  /**
   * The scheduler that shares out the cluster's nodes, as people call it. Launches wait in its queue, it
   * chooses their nodes, their ranks outlive the service that started them, and nodes that it loses can be
   * counted. Null: InternEvo starts ranks on machines that it holds itself.
   */
  readonly scheduler: string | null;
}

/**
 * Every launcher. A new one is a line here, a line in the launcher library's registry, and a folder there.
 */
const LAUNCHER_FACTS = {
  local: { runsHere: true, scheduler: null },
  /** Hosts that the installation describes under the cluster's name, reached by a remote shell. */
  ssh: { runsHere: false, scheduler: null },
  slurm: { runsHere: false, scheduler: "Slurm" },
  kubernetes: { runsHere: false, scheduler: "Kubernetes" },
} as const satisfies Record<string, LauncherFacts>;

export type LauncherKind = keyof typeof LAUNCHER_FACTS;
export const LAUNCHERS = Object.keys(LAUNCHER_FACTS) as LauncherKind[];

interface Launched {
  readonly launcher: LauncherKind;
}

export const runsHere = ({ launcher }: Launched): boolean => LAUNCHER_FACTS[launcher].runsHere;

/** See {@link LauncherFacts.scheduler}. */
export const schedulerOf = ({ launcher }: Launched): string | null => LAUNCHER_FACTS[launcher].scheduler;

const wordsOf = (wanted: (facts: LauncherFacts) => boolean): string =>
  LAUNCHERS.filter((each) => wanted(LAUNCHER_FACTS[each])).join(" or ");

/** The launchers whose clusters have a scheduler, for people: "slurm". */
export const SCHEDULED_LAUNCHERS = wordsOf(({ scheduler }) => scheduler !== null);
/** The launchers that reach other machines, for people: "ssh or slurm". */
export const REMOTE_LAUNCHERS = wordsOf((facts) => !facts.runsHere);
