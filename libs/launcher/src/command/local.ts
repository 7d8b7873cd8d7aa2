export interface LocalCommandOptions {
  readonly program: string;
  readonly configPath: string;
  readonly ranks: number;
  /** Scratch of this run: session files. */
  readonly temporaryDirectory: string;
  /** Scratch of this run in shared memory: segments of the shared-memory transport; null: the transport's default. */
  readonly sharedMemoryDirectory: string | null;
}

/**
 * The command line that starts ranks with Open MPI. mpirun gets SIGKILL when its parent dies, and the ranks die with mpirun.
 * More ranks than cores are allowed and nothing is bound, so that several small runs share a machine.
 */
export function localCommand(options: LocalCommandOptions): string[] {
  return [
    "setpriv", "--pdeathsig", "KILL", "--",
    "mpirun", "-np", String(options.ranks), "--oversubscribe", "--bind-to", "none",
    "--host", `localhost:${options.ranks}`,
    // Runs side by side would otherwise share one session directory and /dev/shm, and a killed one would leave its segments.
    "--mca", "orte_tmpdir_base", options.temporaryDirectory,
    ...(options.sharedMemoryDirectory === null ? [] : ["--mca", "btl_vader_backing_directory", options.sharedMemoryDirectory]),
    // Ranks give the core away while they wait: with more ranks than cores a spinning rank would stop the one it waits for.
    "--mca", "mpi_yield_when_idle", "1",
    "--mca", "orte_base_help_aggregate", "0",
    options.program, "--config", options.configPath,
  ];
}
