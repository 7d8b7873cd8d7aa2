import type { MemoryLines, Plan } from "@internevo/domain";
import type { GateUp, Layout, Sharding } from "@internevo/plan";
import type { JobShape, Stage } from "./stage.ts";

/** b, n, a. */
export interface Batching {
  readonly microBatchSize: number;
  readonly microBatches: number;
  readonly recompute: boolean;
  /** Beyond the paper: layers of a stage that are recomputed when `recompute` is false. */
  readonly recomputeLayers?: number;
  /** Beyond the paper: what the other layers do with gate and up; kept where it is left out. */
  readonly gateUp?: GateUp;
}

/** What a memory model sees of a job, a layout and the profile. */
export interface MemoryContext {
  readonly job: JobShape;
  readonly layout: Layout;
  /** What runs beside computation: gathers and gradients on their way then have two buffers each. */
  readonly overlap: Pick<Plan, "forwardOverlap" | "backwardOverlap">;
  /** Memory of a rank before the arena, from the profile. */
  readonly runtimeBytes: number;
  readonly threadsPerRank: number;
}

/** What of it decides the bytes of a sharding: jobs that agree in it share them. */
export type ShardContext = Omit<MemoryContext, "job"> & {
  readonly job: Pick<JobShape, "model" | "precision" | "cluster">;
};

/**
 * Memory of one rank of a stage by named line. Lines that depend on the sharding and lines that depend on the
 * batch are apart, so that a search adds two numbers for a plan; together they are the rank's memory.
 */
export interface MemoryModel {
  /**
   * Bytes that are the same for all layouts of so many stages, tensor ranks and ranks with one slice of the model: a
   * search keeps them for all of these. Of the batch only its recomputation matters here: a layer that is recomputed
   * is gathered whole, and one that makes gate and up again with what its MLP needs.
   */
  shardLines(
    context: ShardContext,
    stage: Stage,
    sharding: Sharding,
    recomputation: Pick<Batching, "recompute" | "recomputeLayers" | "gateUp">,
  ): MemoryLines;
  batchLines(context: MemoryContext, stage: Stage, batching: Batching): MemoryLines;
  /** Bytes of what a layer keeps of one micro-batch when it is not recomputed. */
  layerBytes(context: MemoryContext, microBatchSize: number, gateUp: GateUp): number;
  /** Bytes of what it keeps in the host's memory. */
  layerHostBytes(context: MemoryContext, microBatchSize: number, gateUp: GateUp): number;
}

/** Both together: of a line that both have, the sum. */
export function addLines(one: MemoryLines, other: MemoryLines): MemoryLines {
  const sum: Record<string, number> = { ...one };
  for (const [line, bytes] of Object.entries(other)) sum[line] = (sum[line] ?? 0) + bytes;
  return sum;
}

/** Bytes of all lines together. */
export function sumLines(lines: MemoryLines): number {
  let sum = 0;
  for (const bytes of Object.values(lines)) sum += bytes;
  return sum;
}
