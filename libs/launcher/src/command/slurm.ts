import { RUN_MARKER } from "../process/processes.ts";

export interface SlurmCommandOptions {
  readonly program: string;
  readonly configPath: string;
  readonly ranks: number;
  readonly ranksPerNode: number;
  readonly threadsPerRank: number;
  /** Names the Slurm job, so that `scancel --name` ends exactly this run. */
  readonly marker: string;
  readonly timeLimitSeconds?: number;
  readonly partition?: string;
  readonly account?: string;
  /** GPUs that one rank holds; left out for CPU ranks. */
  readonly gpusPerRank?: number;
}

const positive = (name: string, value: number): number => {
  if (!Number.isInteger(value) || value < 1) throw new RangeError(`${name} is ${value}: give an integer of 1 or more`);
  return value;
};

/** Slurm's D-HH:MM:SS, rounded up to whole seconds. */
export function slurmTime(seconds: number): string {
  const total = Math.ceil(seconds);
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${Math.floor(total / 86_400)}-${two(Math.floor((total % 86_400) / 3600))}:${two(Math.floor((total % 3600) / 60))}:${two(total % 60)}`;
}

const jobName = (marker: string): string => `internevo-${marker}`;

function allocation(options: SlurmCommandOptions): string[] {
  const ranks = positive("ranks", options.ranks);
  const perNode = Math.min(ranks, positive("ranksPerNode", options.ranksPerNode));
  if (ranks % perNode !== 0) throw new RangeError(`ranks ${ranks} do not fill nodes of ${perNode}: give a multiple`);
  return [
    `--job-name=${jobName(options.marker)}`,
    `--nodes=${ranks / perNode}`,
    `--ntasks=${ranks}`,
    `--ntasks-per-node=${perNode}`,
    `--cpus-per-task=${positive("threadsPerRank", options.threadsPerRank)}`,
    ...(options.gpusPerRank === undefined ? [] : [`--gpus-per-task=${positive("gpusPerRank", options.gpusPerRank)}`]),
    ...(options.partition === undefined ? [] : [`--partition=${options.partition}`]),
    ...(options.account === undefined ? [] : [`--account=${options.account}`]),
    ...(options.timeLimitSeconds === undefined ? [] : [`--time=${slurmTime(options.timeLimitSeconds)}`]),
  ];
}

/**
 * The srun command line that starts ranks on a Slurm cluster: PMIx wires MPI up, one dead task ends all, SIGTERM reaches every
 * task. The program, the configuration and the data must lie on a file system that all nodes share.
 * Tested as a command line only: no Slurm cluster has run it yet.
 */
export function srunCommand(options: SlurmCommandOptions): string[] {
  return [
    "setpriv", "--pdeathsig", "TERM", "--",
    "srun", ...allocation(options), "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=30", "--unbuffered", "--distribution=block:block", `--export=ALL,${RUN_MARKER}=${options.marker}`,
    options.program, "--config", options.configPath,
  ];
}

/** A batch script for `sbatch` that runs the same srun inside its allocation. Tested as text only, as {@link srunCommand}. */
export function sbatchScript(options: SlurmCommandOptions & { readonly outputPath: string; readonly errorPath: string }): string {
  const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;
  return [
    "#!/bin/bash",
    ...allocation(options).map((option) => `#SBATCH ${option}`),
    `#SBATCH --output=${options.outputPath}`,
    `#SBATCH --error=${options.errorPath}`,
    // TERM goes to the tasks two minutes before the limit: they finish the step, write a checkpoint and end with 75.
    "#SBATCH --signal=TERM@120",
    `export ${RUN_MARKER}=${quote(options.marker)}`,
    `exec srun --mpi=pmix --kill-on-bad-exit=1 --wait=30 --unbuffered --distribution=block:block ${quote(options.program)} --config ${quote(options.configPath)}`,
    "",
  ].join("\n");
}

/** Ends every task of a run, wherever it is. */
export const scancelCommand = (marker: string, signal: "TERM" | "KILL"): string[] => ["scancel", `--signal=${signal}`, "--full", `--name=${jobName(marker)}`];
