export {
  checkCluster,
  knownClusters,
  launchedHosts,
  launcherOf,
  launchRanks,
  launchTarget,
  usesThisMachine,
  type KnownCluster,
  type LaunchTarget,
} from "./launchers.ts";
export type { LaunchCapabilities, Launcher, LeftLaunch, Outliving } from "./launcher.ts";
export type { LaunchOptions, LaunchOutcome, OnQueue } from "./launch-options.ts";
export type { ClusterLook } from "./cluster-look.ts";
export { CLUSTERS_VARIABLE, ClustersFileError } from "./clusters-file.ts";
export { ownHost } from "./hosts.ts";
export type { HostCluster } from "./ssh/settings.ts";
export type { SlurmSettings } from "./slurm/settings.ts";
export { lockMachine, type MachineUse } from "./machine-lock.ts";
export * from "./programs.ts";
export * from "./failure.ts";
export { trainerConfig, type TrainerConfigOptions } from "@internevo/contracts";
export * from "./trial-measurement.ts";
export * from "./local/command.ts";
export { slurmTools } from "./slurm/cli.ts";
export { jobsOf, type SlurmJob } from "./slurm/control.ts";
export { JOB_FILES } from "./slurm/script.ts";
export { readSlurmRecord, slurmJobName, type SlurmRecord } from "./slurm/record.ts";
export { YIELDS_VARIABLE } from "./environment.ts";
export { RUN_MARKER, processesOfRun, readProcess, type ProcessEntry } from "./process/processes.ts";
export { killLeftovers, killLeftoversOn, readRunRecord, type RunRecord } from "./process/run-record.ts";
