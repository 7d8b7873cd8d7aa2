import { MAXIMUM_RANKS } from "../bounds.ts";
import type { Cluster } from "../job.ts";
import { SCHEDULED_LAUNCHERS, schedulerOf } from "../launchers.ts";
import type { ProblemDetail } from "../problem.ts";
import { readMemory } from "../units.ts";
import type { JobFile } from "./schema.ts";

export function resolveCluster(written: JobFile["cluster"], details: ProblemDetail[]): Cluster {
  const { nodes, gpusPerNode, minNodes, device } = written;
  const bytesOf = (field: "memoryPerGpu" | "hostMemory", value: string | number): number => {
    const memory = readMemory(value);
    if ("bytes" in memory) return memory.bytes;
    details.push({ field: `cluster.${field}`, value, ...memory });
    return 0;
  };
  const memoryPerGpuBytes = bytesOf("memoryPerGpu", written.memoryPerGpu);
  const host = written.hostMemory;
  if (nodes * gpusPerNode > MAXIMUM_RANKS) {
    details.push({
      field: "cluster.nodes",
      value: nodes,
      message: `times ${gpusPerNode} GPUs a node is more than ${MAXIMUM_RANKS} ranks`,
      remedy: `use at most ${Math.floor(MAXIMUM_RANKS / gpusPerNode)} nodes of ${gpusPerNode}`,
    });
  }
  const launcher = written.launcher ?? "local";
  if (minNodes !== undefined && schedulerOf({ launcher }) === null) {
    details.push({
      field: "cluster.minNodes",
      value: minNodes,
      message: `says with how few nodes training may go on, and launcher ${launcher} cannot tell how many are left`,
      remedy: `leave it out, or use launcher: ${SCHEDULED_LAUNCHERS}`,
    });
  } else if (minNodes !== undefined && minNodes > nodes) {
    details.push({
      field: "cluster.minNodes",
      value: minNodes,
      message: `is more than nodes ${nodes}`,
      remedy: `give at most ${nodes}`,
    });
  }
  return {
    name: written.name ?? `${nodes}x${gpusPerNode}`,
    nodes,
    gpusPerNode,
    memoryPerGpuBytes,
    ...(host === undefined ? {} : { hostMemoryBytes: bytesOf("hostMemory", host) }),
    launcher,
    profile: written.profile ?? null,
    ...(device === undefined ? {} : { device }),
    ...(minNodes === undefined ? {} : { minNodes }),
  };
}
