import type { ClusterCapacity, ClusterHealth } from "@internevo/domain";

/** What a launcher finds when it looks at a cluster. */
export interface ClusterLook {
  readonly capacity: ClusterCapacity;
  readonly health: ClusterHealth;
}

/** Nobody knows what it has. */
export const UNKNOWN_CAPACITY: ClusterCapacity = { nodes: null, ranks: null, gpus: null, memoryBytes: null };

/** So many of the nodes that cannot be used are named. */
const NAMED_NODES = 8;

/** @param faults of the nodes that cannot be used, a sentence part each: "n3 is down (broken fan)". */
export function healthOf(nodes: number, faults: readonly string[]): ClusterHealth {
  if (faults.length === 0) return { state: "ready", message: "every node can be used" };
  const named = faults.slice(0, NAMED_NODES).join(", ");
  const more = faults.length > NAMED_NODES ? `, and ${faults.length - NAMED_NODES} more` : "";
  return {
    state: faults.length < nodes ? "partly" : "away",
    message: `${faults.length} of ${nodes} nodes cannot be used: ${named}${more}`,
  };
}

/** Why a cluster does not answer. */
export const awayFor = (message: string): ClusterHealth => ({ state: "away", message });
