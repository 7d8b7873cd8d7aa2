import type { Slowdown, TensorBeside } from "@internevo/cost-model";
import type { ByUnit } from "@internevo/domain";
import type { ScheduledStep } from "@internevo/plan";

/** Inside a node, or between nodes. */
export type Link = "intra-node" | "inter-node";

/** A number for each unit of a layer, in the order of the forward pass. */
export type ByModule = ByUnit;

/**
 * Seconds alone of what a layer does for one micro-batch on one rank, by the unit whose parameters are in
 * use; attention apart.
 */
export interface LayerWork {
  readonly forward: ByModule;
  readonly forwardAttentionSeconds: number;
  readonly backward: ByModule;
  readonly backwardAttentionSeconds: number;
  /** Collectives of tensor ranks that go on beside products of the backward pass; null where none do. */
  readonly beside: TensorBeside | null;
  /**
   * Exposed collectives of sequence or tensor parallelism inside a pass: half of them before attention, half
   * after it.
   */
  readonly forwardExposedSeconds: number;
  readonly backwardExposedSeconds: number;
  /** What the backward pass makes again of a layer that is recomputed. */
  readonly recomputeSeconds: number;
  readonly recomputeExposedSeconds: number;
  /** What it makes again of another layer where gate and up are not kept. */
  readonly gateUpSeconds: number;
  readonly gateUpExposedSeconds: number;
  /** A copy of gate and up to the host, and back, where nothing else goes on. */
  readonly toHostSeconds: number;
  readonly toDeviceSeconds: number;
  /** All-gather of a unit's parameters, once for each pass that needs them; 0 when they are not sharded. */
  readonly gather: ByModule;
  /** Reduce-scatter of a unit's gradient over s_ps, in every micro-batch. */
  readonly scatter: ByModule;
  /** Its reduction over s_oss and the replicas. */
  readonly reduce: ByModule;
  /** Padded elements of a unit. */
  readonly elements: ByModule;
}

/** The same of the embedding or the head, which are one unit each. */
export interface EndWork {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  readonly forwardExposedSeconds: number;
  readonly backwardExposedSeconds: number;
  readonly gatherSeconds: number;
  readonly scatterSeconds: number;
  readonly reduceSeconds: number;
  readonly elements: number;
}

/** R of what computes beside each kind of collective. */
export interface StepSlowdowns {
  readonly forwardGather: Slowdown;
  readonly backwardGather: Slowdown;
  readonly scatter: Slowdown;
  readonly reduce: Slowdown;
}

export interface StepWork extends ScheduledStep {
  readonly layer: LayerWork;
  readonly embedding: EndWork;
  /** Forward and backward of the head are one piece of work: it counts as backward. */
  readonly head: EndWork;
  readonly microBatches: number;
  /** One message over a stage boundary. */
  readonly boundarySeconds: number;
  /** s_gs > 1: gradients are reduced in every micro-batch, not once a step. */
  readonly reduceEveryMicroBatch: boolean;
  /** Reductions of a stage once a step, where nothing runs beside them. */
  readonly reduceOnceSeconds: number;
  /** Gradients that several slices of the model hold alike. */
  readonly shareOnceSeconds: number;
  readonly updateSeconds: number;
  /**
   * What ranks wait for one another when they meet before every unit, or before every layer, as a part of
   * what they compute there.
   */
  readonly unitWaits: number;
  readonly layerWaits: number;
  readonly slowdowns: StepSlowdowns;
  /**
   * Links that the collectives of the sequence or tensor ranks, and those of the sharding, go through: what
   * goes through one at a time shares it.
   */
  readonly sequenceLink: Link;
  readonly shardLink: Link;
}
