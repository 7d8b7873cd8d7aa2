import { MAXIMUM_RANKS } from "../bounds.ts";
import type { Cluster } from "../job.ts";
import { SCHEDULED_LAUNCHERS, schedulerOf } from "../launchers.ts";
import type { ProblemDetail } from "../problem.ts";
import { readMemory } from "../units.ts";
import type { JobFile } from "./schema.ts";

export function resolveCluster(written: JobFile["cluster"], details: ProblemDetail[]): Cluster {
  const { nodes, gpusPerNode, minNodes, device } = written;
  const memory = readMemory(written.memoryPerGpu);
  if (!("bytes" in memory))
    details.push({ field: "cluster.memoryPerGpu", value: written.memoryPerGpu, ...memory });
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
    memoryPerGpuBytes: "bytes" in memory ? memory.bytes : 0,
    launcher,
    profile: written.profile ?? null,
    ...(device === undefined ? {} : { device }),
    ...(minNodes === undefined ? {} : { minNodes }),
  };
}
