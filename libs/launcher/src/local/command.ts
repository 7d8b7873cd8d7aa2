import { existsSync, statfsSync } from "node:fs";
import { YIELDS_VARIABLE } from "../environment.ts";

export interface LocalCommandOptions {
  readonly program: string;
  readonly configPath: string;
  readonly ranks: number;
  /** Scratch of this run: session files. */
  readonly temporaryDirectory: string;
  /**
   * Scratch of this run in shared memory: segments of the shared-memory transport; null: the transport's
   * default.
   */
  readonly sharedMemoryDirectory: string | null;
  /** Whether ranks give their core away while they wait (see {@link yieldsWhenIdle}). */
  readonly yields: boolean;
  /** Whether ranks talk by memory alone (see {@link talksByMemory}). */
  readonly byMemory: boolean;
}

const SHARED_MEMORY = "/dev/shm";
/** Twice what Open MPI's transport has of shared memory for a rank. */
const SHARED_BYTES_PER_RANK = 2 ** 23;

/**
 * Whether ranks of one machine need no other way to each other than its shared memory. By TCP each of them would
 * wait for connections at every address of the machine, so that has to be left out. With too little shared memory, as
 * in a container, TCP is what they have.
 */
export function talksByMemory(ranks: number, directory = SHARED_MEMORY): boolean {
  if (!existsSync(directory)) return false;
  const { bavail, bsize } = statfsSync(directory);
  return bavail * bsize >= ranks * SHARED_BYTES_PER_RANK;
}

/**
 * With more ranks than cores a rank that spins would stop the one it waits for, so it gives its core away.
 * With a core for each it keeps it: whatever else runs on the machine, however nice, would have it for a tick
 * of the scheduler (milliseconds) in every collective. On a machine that has much other work this costs the others
 * more than it gains: {@link YIELDS_VARIABLE} says so.
 * @param cores of the host; undefined: they are not known
 */
export function yieldsWhenIdle(ranks: number, threadsPerRank: number, cores: number | undefined): boolean {
  const asked = process.env[YIELDS_VARIABLE];
  if (asked === "0" || asked === "1") return asked === "1";
  return cores === undefined || ranks * threadsPerRank > cores;
}

/**
 * The command line that starts ranks with Open MPI. mpirun gets SIGKILL when its parent dies, and the ranks
 * die with mpirun. More ranks than cores are allowed and nothing is bound, so that several small runs share a
 * machine.
 */
export function localCommand(options: LocalCommandOptions): string[] {
  return [
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "mpirun",
    "-np",
    String(options.ranks),
    "--oversubscribe",
    "--bind-to",
    "none",
    "--host",
    `localhost:${options.ranks}`,
    // Runs side by side would otherwise share one session directory and /dev/shm, and a killed one would
    // leave its segments.
    "--mca",
    "orte_tmpdir_base",
    options.temporaryDirectory,
    ...(options.sharedMemoryDirectory === null
      ? []
      : ["--mca", "btl_vader_backing_directory", options.sharedMemoryDirectory]),
    ...(options.byMemory ? ["--mca", "btl", "self,vader"] : []),
    "--mca",
    "mpi_yield_when_idle",
    options.yields ? "1" : "0",
    "--mca",
    "orte_base_help_aggregate",
    "0",
    options.program,
    "--config",
    options.configPath,
  ];
}
