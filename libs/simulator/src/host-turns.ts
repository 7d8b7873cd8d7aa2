import { layersOf, type PipelineOperation } from "@internevo/plan";
import type { StepWork } from "./step-work.ts";

/** One pass of one layer where its gate and up wait in the host's memory. */
export interface HostTurn {
  /** Which of the two places on the device it uses. */
  readonly place: 0 | 1;
  /** Whether they are copied in before it, and out behind it. */
  readonly fetches: boolean;
  readonly leaves: boolean;
}

/**
 * The passes of a stage's layers in the order of a step (native/src/trainer/layer_offload.cpp). The two places
 * take turns, but a backward pass right behind the forward pass of the same layer finds what that left.
 */
export function hostTurns(
  work: StepWork,
  stage: number,
  operations: readonly PipelineOperation[],
): HostTurn[] {
  const passes = operations.flatMap(({ pass, microBatch, chunk }) => {
    const layers = layersOf(work, stage, chunk);
    return (pass === "forward" ? layers : layers.reverse()).map(({ layer, isRecomputed }) => ({
      pass,
      microBatch,
      layer,
      isRecomputed,
    }));
  });
  const continues = (at: number): boolean => {
    const [one, next] = [passes[at], passes[at + 1]];
    return (
      one?.pass === "forward" &&
      next?.pass === "backward" &&
      one.layer === next.layer &&
      one.microBatch === next.microBatch &&
      !one.isRecomputed
    );
  };
  const turns: HostTurn[] = [];
  for (const [at, { pass, isRecomputed }] of passes.entries()) {
    const isContinued = continues(at - 1);
    const former = turns.at(-1)?.place ?? 1;
    turns.push({
      place: isContinued ? former : ((1 - former) as 0 | 1),
      fetches: pass === "backward" && !isRecomputed && !isContinued,
      leaves: pass === "forward" && !isRecomputed && !continues(at),
    });
  }
  return turns;
}
