import { splitKey, splitOf, type JobSpec } from "@internevo/domain";
import { layoutsOf } from "@internevo/plan";
import type { LayerSlice } from "./layer.ts";

/** A slice (b, s_sp, s_tp, ring) of the job's plans, and whether a plan cuts it into stages. */
export interface PlanSlice extends LayerSlice {
  readonly inStages: boolean;
}

/** The slices of all plans that divide a job, each once, whatever its \`plan\` allows. */
export function slicesOf({ plan: _, ...spec }: JobSpec): PlanSlice[] {
  const { sequenceLengthTokens } = spec;
  const slices = new Map<string, PlanSlice>();
  for (const { layout, microBatchSizes, fault } of layoutsOf(spec)) {
    if (fault !== null || microBatchSizes === null) continue;
    const { pipelineParallel } = layout;
    const split = splitOf(layout);
    for (const microBatchSize of microBatchSizes) {
      const key = `${microBatchSize} ${splitKey(split)}`;
      const inStages = pipelineParallel > 1 || (slices.get(key)?.inStages ?? false);
      slices.set(key, { microBatchSize, sequenceLengthTokens, ...split, inStages });
    }
  }
  return [...slices.values()];
}
