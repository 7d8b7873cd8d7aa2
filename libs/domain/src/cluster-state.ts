import { Type, type Static } from "typebox";
import { formatCounted, formatInteger } from "./figures.ts";
import { formatBytes } from "./units.ts";

const count = (description: string) =>
  Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], { description });

/** What a cluster has for ranks. */
export const ClusterCapacitySchema = Type.Object(
  {
    nodes: count("nodes"),
    ranks: count("ranks that it takes at most"),
    gpus: count("GPUs that ranks can use"),
    memoryBytes: count("memory of all nodes"),
  },
  { description: "null: not known here" },
);
export type ClusterCapacity = Static<typeof ClusterCapacitySchema>;

export const CLUSTER_HEALTH = ["ready", "partly", "away"] as const;

/** Whether a cluster can be used. */
export const ClusterHealthSchema = Type.Object({
  state: Type.Enum(CLUSTER_HEALTH, {
    description: "partly: some of its nodes cannot be used; away: none can, or nobody answers",
  }),
  message: Type.String({ description: "in words, with the nodes that cannot be used" }),
});
export type ClusterHealth = Static<typeof ClusterHealthSchema>;

export const CLUSTER_HEALTH_WORDS: Readonly<Record<ClusterHealth["state"], string>> = {
  ready: "Ready",
  partly: "Partly ready",
  away: "Away",
};

/** `2 nodes, up to 8 ranks, 8 GPUs, 64.0 GiB`: what is known of it. */
export function capacityWords({ nodes, ranks, gpus, memoryBytes }: ClusterCapacity): string {
  const parts = [
    nodes === null ? [] : [formatCounted(nodes, "node")],
    ranks === null ? [] : [`up to ${formatInteger(ranks)} ranks`],
    gpus === null || gpus === 0 ? [] : [formatCounted(gpus, "GPU")],
    memoryBytes === null ? [] : [formatBytes(memoryBytes)],
  ].flat();
  return parts.length === 0 ? "not known" : parts.join(", ");
}
