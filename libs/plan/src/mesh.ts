import {
  contextOf,
  headRanks,
  ProblemError,
  replicaRanks,
  worldSize,
  type Cluster,
  type Mesh,
  type Placement,
  type PlacementPlan,
  type Plan,
} from "@internevo/domain";
import { meshFault } from "./legality.ts";

/** The dimensions whose groups a mesh lists. */
export const MESH_DIMENSIONS = [
  "tensorParallel",
  "sequenceParallel",
  "dataParallel",
  "pipelineParallel",
  "parameterSharding",
  "optimizerStateSharding",
  "gradientReplicas",
] as const;
export type MeshDimension = (typeof MESH_DIMENSIONS)[number];

/**
 * The groups of one dimension, in closed form: rank k of a group sits at `start + k · stride`, and starts
 * repeat every `stride · size` ranks with all offsets below `stride`.
 */
export interface GroupGeometry {
  /** Ranks in one group. */
  readonly size: number;
  /** Distance between neighbouring ranks of a group. */
  readonly stride: number;
}

/**
 * Where the groups of a dimension sit. Rank = (pipeline · s_dp + data) · s_sp + sequence: tensor and sequence
 * ranks vary fastest (the paper's takeaway 1), the shards of one parameter group are neighbours among the
 * ranks that hold the same slice of the model (takeaway 2), pipeline stages are outermost.
 */
export function groupGeometry(plan: Plan, dimension: MeshDimension | "contextParallel"): GroupGeometry {
  const {
    pipelineParallel: pp,
    dataParallel: dp,
    tensorParallel: tp,
    sequenceParallel: sp,
    parameterSharding: ps,
    optimizerStateSharding: oss,
  } = plan;
  switch (dimension) {
    case "tensorParallel":
      return { size: tp, stride: 1 };
    case "sequenceParallel":
      return { size: sp, stride: 1 };
    // A ring passes over the neighbours that share its heads.
    case "contextParallel":
      return { size: contextOf(plan), stride: headRanks(plan) };
    case "dataParallel":
      return { size: dp, stride: sp };
    case "pipelineParallel":
      return { size: pp, stride: dp * sp };
    // The R ranks of one slice are `tp` apart (tp = 1 in config 2: all ranks of the stage).
    case "parameterSharding":
      return { size: ps, stride: tp };
    case "optimizerStateSharding":
      return { size: oss, stride: tp * ps };
    case "gradientReplicas":
      return { size: replicaRanks(plan) / ps, stride: tp * ps };
  }
}

function groupsOf(worldSize: number, { size, stride }: GroupGeometry): number[][] {
  const groups: number[][] = [];
  for (let block = 0; block < worldSize; block += size * stride) {
    for (let offset = 0; offset < stride; offset += 1) {
      groups.push(Array.from({ length: size }, (_, k) => block + offset + k * stride));
    }
  }
  return groups;
}

/** @throws ProblemError `plan-invalid` when the factors of the plan do not divide as a mesh needs. */
function assertMeshable(plan: Plan): void {
  const fault = meshFault(plan);
  if (fault === null) return;
  const { field, message, remedy } = fault;
  throw new ProblemError("plan-invalid", `the plan has no mesh: ${message}`, [
    { field, value: plan[field], message, remedy },
  ]);
}

/**
 * The ordered groups of ranks of a plan: the one place where ranks become groups, for planner and executor
 * alike.
 * @throws ProblemError `plan-invalid` when the factors do not divide.
 */
export function buildMesh(plan: Plan): Mesh {
  assertMeshable(plan);
  const size = worldSize(plan);
  const of = (dimension: MeshDimension) => groupsOf(size, groupGeometry(plan, dimension));
  return {
    worldSize: size,
    pipelineParallel: of("pipelineParallel"),
    dataParallel: of("dataParallel"),
    tensorParallel: of("tensorParallel"),
    sequenceParallel: of("sequenceParallel"),
    parameterSharding: of("parameterSharding"),
    optimizerStateSharding: of("optimizerStateSharding"),
    gradientReplicas: of("gradientReplicas"),
  };
}

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** Nodes that the worst-placed group of a dimension touches, with ranks filling the nodes in order. */
export function nodesTouched({ size, stride }: GroupGeometry, gpusPerNode: number): number {
  if (size === 1) return 1;
  if (stride >= gpusPerNode) return size;
  // stride < gpusPerNode: no node between the first and the last rank is skipped.
  const span = (size - 1) * stride;
  const block = size * stride;
  if (gpusPerNode % block === 0) return 1;
  if (block % gpusPerNode === 0 && gpusPerNode % stride === 0) return block / gpusPerNode;
  const step = gcd(gcd(block, gpusPerNode), gpusPerNode);
  let most = 1;
  for (let at = 0; at < gpusPerNode; at += step) {
    for (let offset = 0; offset < stride; offset += 1) {
      const start = at + offset;
      most = Math.max(most, Math.floor((start + span) / gpusPerNode) - Math.floor(start / gpusPerNode) + 1);
    }
  }
  return most;
}

/**
 * How a group of `size` ranks on `nodes` nodes is placed: on one node, one rank a node, or several ranks on
 * several nodes.
 */
export function placementClass(size: number, nodes: number): Placement {
  if (nodes === 1) return "intra-node";
  return nodes === size ? "inter-node" : "mixed";
}

/** Where the ranks of a plan sit on a cluster whose nodes are filled in rank order. */
export function placementOf(plan: Plan, cluster: Pick<Cluster, "gpusPerNode">): PlacementPlan {
  const nodesPerGroup: Record<string, number> = {};
  for (const dimension of MESH_DIMENSIONS)
    nodesPerGroup[dimension] = nodesTouched(groupGeometry(plan, dimension), cluster.gpusPerNode);
  if (contextOf(plan) > 1)
    nodesPerGroup["contextParallel"] = nodesTouched(
      groupGeometry(plan, "contextParallel"),
      cluster.gpusPerNode,
    );
  return {
    rankOrder: [
      plan.tensorParallel > 1 ? "tensorParallel" : "sequenceParallel",
      "dataParallel",
      "pipelineParallel",
    ],
    nodesPerGroup,
  };
}
