import { topologyQueue, type Manifest } from "./manifests.ts";
import { PLAYED } from "./kwok.ts";
import type { KubernetesStand } from "./stand.ts";

/** Labels of a fleet's nodes, from the widest part of its network to a node. */
export const BLOCK = "internevo.dev/block";
export const RACK = "internevo.dev/rack";
const HOST = "kubernetes.io/hostname";
export const GPU = "nvidia.com/gpu";

/** How many nodes a fleet has, in the order of its network. */
export interface Fleet {
  readonly blocks: number;
  readonly racksPerBlock: number;
  readonly nodesPerRack: number;
  readonly gpusPerNode: number;
  readonly cpusPerNode: number;
  readonly memoryPerNode: string;
}

/** Requests that are on their way at once. */
const AT_A_TIME = 32;

interface FleetNode {
  readonly name: string;
  readonly block: string;
  readonly rack: string;
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1);

export const nodesOfFleet = ({ blocks, racksPerBlock, nodesPerRack }: Fleet): FleetNode[] =>
  numbers(blocks).flatMap((block) =>
    numbers(racksPerBlock).flatMap((rack) =>
      numbers(nodesPerRack).map((node) => ({
        name: `b${block}-r${rack}-n${node}`,
        block: `b${block}`,
        rack: `b${block}-r${rack}`,
      })),
    ),
  );

/** Makes the nodes, and waits until all take pods. The stand was started with kwok, which plays them. */
export async function makeFleet(stand: KubernetesStand, fleet: Fleet): Promise<void> {
  const { gpusPerNode, cpusPerNode, memoryPerNode } = fleet;
  const all = { cpu: String(cpusPerNode), memory: memoryPerNode, pods: "110", [GPU]: String(gpusPerNode) };
  const nodes = nodesOfFleet(fleet);
  const { core } = stand;
  const left = nodes.values();
  const makeOn = async (): Promise<void> => {
    for (const { name, block, rack } of left)
      await core.createNode({
        body: {
          metadata: { name, labels: { ...PLAYED, [HOST]: name, [BLOCK]: block, [RACK]: rack } },
          status: { capacity: all, allocatable: all },
        },
      });
  };
  await Promise.all(numbers(AT_A_TIME).map(makeOn));
  // A list of thousands is much work for whoever answers.
  await stand.untilReady(nodes.length, { seconds: 300, pauseMilliseconds: 3000 });
}

/** A queue of Kueue with all that a fleet has, whose jobs are placed by its topology. */
export function fleetQueue(name: string, fleet: Fleet): Manifest[] {
  const { length } = nodesOfFleet(fleet);
  const [amount = 0, unit = ""] = /^(\d+)(\D*)$/.exec(fleet.memoryPerNode)?.slice(1) ?? [];
  return topologyQueue({
    name,
    levels: [BLOCK, RACK, HOST],
    nodeLabels: PLAYED,
    quota: {
      cpu: String(length * fleet.cpusPerNode),
      memory: `${length * Number(amount)}${unit}`,
      [GPU]: String(length * fleet.gpusPerNode),
    },
  });
}
