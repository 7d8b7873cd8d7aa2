import { refuseEntry } from "../clusters-file.ts";
import type { Launcher } from "../launcher.ts";
import { cancelSlurmLeftover, launchOnSlurm } from "./launch.ts";
import { lookAtPartition } from "./look.ts";
import { readSlurmRecord } from "./record.ts";
import { SlurmClusterSchema, type SlurmCluster, type SlurmSettings } from "./settings.ts";

/** Slurm's client, where slurmrestd is not asked. */
const CLIENT = ["sbatch", "squeue", "scancel", "sinfo"];

/**
 * The settings of a cluster that Slurm runs. @throws ProblemError `unavailable` where they contradict each
 * other.
 */
export function slurmSettings({ slurm }: SlurmCluster, name: string, clustersFile: string): SlurmSettings {
  const { timeLimitSeconds, saveSeconds, rest, start } = slurm;
  const field = `clusters.${name}.slurm`;
  if (rest && start === "mpirun")
    return refuseEntry(
      clustersFile,
      `${field}.start`,
      start,
      "does not go with rest: slurmrestd signals ranks without mpirun's knowledge",
      "use start: srun, or leave rest out",
    );
  if (timeLimitSeconds !== undefined && saveSeconds !== undefined && saveSeconds * 2 > timeLimitSeconds)
    return refuseEntry(
      clustersFile,
      `${field}.saveSeconds`,
      saveSeconds,
      `is more than half of timeLimitSeconds ${timeLimitSeconds}`,
      `use ${Math.floor(timeLimitSeconds / 2)} or less, or raise timeLimitSeconds`,
    );
  return slurm;
}

/** Ranks as jobs of Slurm, which outlive whoever submitted them. */
export const slurmLauncher: Launcher<SlurmSettings> = {
  kind: "slurm",
  description: {
    member: "slurm",
    schema: SlurmClusterSchema,
    noun: "Slurm cluster",
    words: "is run by Slurm",
    // The schema of the entry has been checked.
    settingsOf: (entry, { name }, clustersFile) => slurmSettings(entry as SlurmCluster, name, clustersFile),
    wholeOf: (entry, name, clustersFile) => slurmSettings(entry as SlurmCluster, name, clustersFile),
  },
  faults: ({ launcher }, { rest }, here) =>
    rest || CLIENT.every((program) => here.hasProgram(program))
      ? []
      : [
          {
            field: "cluster.launcher",
            value: launcher,
            message: "is not available: this installation has no Slurm client",
            remedy: "install Slurm's client where the services run, or use launcher: local",
          },
        ],
  hosts: () => [],
  look: (settings) => lookAtPartition(settings),
  usesThisMachine: () => false,
  launch: launchOnSlurm,
  outliving: { left: readSlurmRecord, endLeft: cancelSlurmLeftover },
  startWords: (ranks) => `srun -n ${ranks}`,
};
