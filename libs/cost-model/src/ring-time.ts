import type { CollectiveTimes } from "./collectives.ts";
import { together } from "./together.ts";

/** Where a ring sits. */
export interface RingPlace {
  /** Nodes that its ranks touch. */
  readonly nodes: number;
  /** Of the ranks of a node, the share whose next rank is on another node. */
  readonly crossing: number;
}

export interface RingWork {
  /** c: ranks of the ring; 1: there is none. */
  readonly ranks: number;
  readonly place: RingPlace;
  /** Of the keys and values of one rank. */
  readonly elements: number;
  readonly activationBytes: number;
  /** Attention of one turn, on average. */
  readonly forwardTurnSeconds: number;
  readonly backwardTurnSeconds: number;
  /** Part of all turns' attention that is in the first; an equal part where documents are not packed. */
  readonly firstTurn?: number;
  /**
   * R of both at a time, at least 1, where messages travel during computation; null: they wait until it is
   * over.
   */
  readonly beside: { readonly forward: number; readonly backward: number } | null;
}

/** Gradients travel in float32. */
const GRADIENT_BYTES = 4;

/** Where a ring sits whose ranks are `stride` apart. */
export const ringPlace = (stride: number, nodes: number, gpusPerNode: number): RingPlace => ({
  nodes,
  crossing: nodes === 1 ? 0 : Math.min(1, stride / gpusPerNode),
});

/** Every rank sends one message to the next and gets one from the former; the slowest link decides. */
function hopSeconds(bytes: number, { nodes, crossing }: RingPlace, times: CollectiveTimes): number {
  const inside = crossing < 1 ? times.seconds("point-to-point", bytes, { size: 2, nodes: 1 }) : 0;
  // Measured with all ranks of a node sending to another node: fewer of them take the time of smaller
  // messages.
  const across = nodes > 1 ? times.seconds("point-to-point", bytes * crossing, { size: 2, nodes: 2 }) : 0;
  return Math.max(inside, across);
}

/**
 * Seconds of one layer in which a rank waits for the ring (native/src/comm/ring_attention.cpp). Forward: in
 * each of c turns but the last the block of keys and values that is computed with goes on to the next rank.
 * Backward: the same, and one turn behind it the sums of that block's gradients, which need one hop more,
 * after the last turn, to be at home.
 */
export function ringSeconds(work: RingWork, times: CollectiveTimes): { forward: number; backward: number } {
  const { ranks, place, elements } = work;
  if (ranks === 1) return { forward: 0, backward: 0 };
  const keys = hopSeconds(elements * work.activationBytes, place, times);
  const gradients = hopSeconds(elements * GRADIENT_BYTES, place, times);
  const waited = (pass: "forward" | "backward", turn: number, communication: number): number =>
    work.beside === null ? communication : together(turn, communication, work.beside[pass]) - turn;
  const { forwardTurnSeconds, backwardTurnSeconds, firstTurn } = work;
  const [first, later] =
    firstTurn === undefined ? [1, 1] : [ranks * firstTurn, (ranks * (1 - firstTurn)) / (ranks - 1)];
  const ahead = (turns: number): number => waited("forward", turns * forwardTurnSeconds, keys);
  const back = (turns: number, communication: number): number =>
    waited("backward", turns * backwardTurnSeconds, communication);
  return {
    forward: ahead(first) - ahead(later) + (ranks - 1) * ahead(later),
    backward:
      back(first, keys) + (ranks - 2) * back(later, keys + gradients) + back(later, gradients) + gradients,
  };
}
