import { availableParallelism } from "node:os";
import {
  formatBytes,
  REMOTE_LAUNCHERS,
  usesGpus,
  writeBytes,
  type Cluster,
  type ProblemDetail,
} from "@internevo/domain";
import { healthOf } from "../cluster-look.ts";
import { ownHost } from "../hosts.ts";
import type { LaunchCapabilities, Launcher } from "../launcher.ts";
import { runUnderMpirun } from "../mpirun/run.ts";
import type { CudaHost } from "../programs.ts";
import { localCommand, talksByMemory, yieldsWhenIdle } from "./command.ts";

/** Sizes that a person is told to write are whole ones. */
const MIB = 2 ** 20;

const PLANS_ONLY = "or ask for the plan only: `internevo plan`";

/** Why ranks on GPUs cannot start on this machine. */
function gpuFaults({ nodes, gpusPerNode }: Cluster, cuda: CudaHost): ProblemDetail[] {
  if (!cuda.hasBackend) {
    return [
      {
        field: "cluster.device",
        value: "cuda",
        message: "needs the CUDA backend, and the native programs here were built without it",
        remedy:
          "build it with INTERNEVO_CUDA=1 in the environment " +
          `of \`npm run setup\`, use device: cpu, ${PLANS_ONLY}`,
      },
    ];
  }
  const ranks = nodes * gpusPerNode;
  if (cuda.gpus === null || ranks <= cuda.gpus) return [];
  return [
    {
      field: "cluster.gpusPerNode",
      value: gpusPerNode,
      message:
        `gives ${ranks} ranks on GPUs, and this machine shows ` +
        `${cuda.gpus} NVIDIA GPU${cuda.gpus === 1 ? "" : "s"}`,
      remedy: `${cuda.gpus === 0 ? `use device: cpu, or launcher: ${REMOTE_LAUNCHERS}` : `use ${cuda.gpus} at most, or launcher: ${REMOTE_LAUNCHERS}`}, ${PLANS_ONLY}`,
    },
  ];
}

/** Why this machine cannot hold the cluster. */
function machineFaults(cluster: Cluster, here: LaunchCapabilities): ProblemDetail[] {
  const details: ProblemDetail[] = [];
  const ranks = cluster.nodes * cluster.gpusPerNode;
  if (cluster.nodes > 1) {
    details.push({
      field: "cluster.nodes",
      value: cluster.nodes,
      message: "is more than the one machine that launcher: local has",
      remedy: `use nodes: 1 with all ranks in gpusPerNode, or launcher: ${REMOTE_LAUNCHERS}, ${PLANS_ONLY}`,
    });
  }
  if (usesGpus(cluster) && here.cuda) details.push(...gpuFaults(cluster, here.cuda));
  if (ranks > here.maximumLocalRanks) {
    details.push({
      field: "cluster.gpusPerNode",
      value: cluster.gpusPerNode,
      message: `gives ${ranks} ranks, and this machine starts ${here.maximumLocalRanks} at most`,
      remedy: `use fewer, or launcher: ${REMOTE_LAUNCHERS}, ${PLANS_ONLY}`,
    });
  } else if (!usesGpus(cluster) && neededBytes(cluster) > here.localMemoryBytes) {
    details.push({
      field: "cluster.memoryPerGpu",
      value: writeBytes(cluster.memoryPerGpuBytes),
      message:
        `times ${ranks} ranks${cluster.hostMemoryBytes === undefined ? "" : ", and cluster.hostMemory,"} is ${formatBytes(neededBytes(cluster))}, ` +
        `and this machine has ${formatBytes(here.localMemoryBytes)}`,
      remedy:
        cluster.hostMemoryBytes === undefined
          ? `use ${writeBytes(Math.floor(here.localMemoryBytes / ranks / MIB) * MIB)} or less`
          : "use less of both",
    });
  }
  return details;
}

/** What the ranks and their host's part take of one machine's memory, where ranks have no memory of their own. */
const neededBytes = ({ nodes, gpusPerNode, memoryPerGpuBytes, hostMemoryBytes = 0 }: Cluster): number =>
  nodes * (gpusPerNode * memoryPerGpuBytes + hostMemoryBytes);

/** Ranks on the machine of the services, under one mpirun. */
export const localLauncher: Launcher<unknown> = {
  kind: "local",
  description: null,
  faults: (cluster, _settings, here) => machineFaults(cluster, here),
  hosts: () => [ownHost()],
  look: async (_settings, { maximumLocalRanks, localMemoryBytes, cuda }) => ({
    capacity: {
      nodes: 1,
      ranks: maximumLocalRanks,
      gpus: cuda?.hasBackend === true ? cuda.gpus : 0,
      memoryBytes: localMemoryBytes,
    },
    health: healthOf(1, []),
  }),
  usesThisMachine: () => true,
  launch: (options) =>
    runUnderMpirun(options, {
      runsHere: true,
      hosts: [ownHost()],
      command: (places) =>
        localCommand({
          ...places,
          program: options.program.path,
          ranks: options.ranks,
          yields: yieldsWhenIdle(options.ranks, options.threadsPerRank, availableParallelism()),
          byMemory: talksByMemory(options.ranks),
        }),
    }),
  outliving: null,
  startWords: (ranks) => `mpirun -np ${ranks}`,
};
