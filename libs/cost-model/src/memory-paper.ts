import { recomputedLayers, type MemoryLines } from "@internevo/domain";
import type { MemoryModel } from "./memory.ts";
import { layersInFlight, unitParameters } from "./stage.ts";

/*
 * The paper's own arithmetic (section "Memory & Communication Analysis"), with its slips put right: the model states are
 * divided by products of factors (1/s_ps, 1/(s_ps·s_gs), 1/(s_ps·s_oss)), activations take min(s_pp, n) micro-batches, and
 * 34·bSH is a = 0. β_P = β_G = 2 and β_OS = 6 whatever the precision. Of M_other it has the embedding, the head and the
 * gather pool of two layers; it knows no workspace, no logits and no memory of the runtime.
 */
const PARAMETER_BYTES = 2;
const GRADIENT_BYTES = 2;
const OPTIMIZER_STATE_BYTES = 6;
const BOUNDARY_BYTES = 2;
const LAYER_BYTES = 32;

export const paperMemory: MemoryModel = {
  shardLines(
    context,
    stage,
    { parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss },
  ): MemoryLines {
    const units = unitParameters(context.job.model, context.layout.tensorParallel);
    const parameters =
      stage.layers * units.layer +
      (stage.hasEmbedding ? units.embedding : 0) +
      (stage.hasHead ? units.head : 0);
    return {
      parameters: Math.ceil((PARAMETER_BYTES * parameters) / ps),
      gradients: Math.ceil((GRADIENT_BYTES * parameters) / (ps * gs)),
      optimizerStates: Math.ceil((OPTIMIZER_STATE_BYTES * parameters) / (ps * oss)),
      gatherPool: ps > 1 ? 2 * PARAMETER_BYTES * units.layer : 0,
    };
  },

  layerBytes({ job, layout }, microBatchSize): number {
    return (
      LAYER_BYTES *
      ((microBatchSize * job.sequenceLengthTokens) / layout.sequenceParallel) *
      job.model.hiddenSize
    );
  },

  // It knows no memory of a host.
  layerHostBytes: () => 0,

  batchLines(context, stage, batching): MemoryLines {
    const { microBatchSize: b, microBatches: n } = batching;
    const { model, sequenceLengthTokens } = context.job;
    const stream = ((b * sequenceLengthTokens) / context.layout.sequenceParallel) * model.hiddenSize;
    const recomputed = recomputedLayers(batching, stage.layers);
    const layers = layersInFlight(stage, n, recomputed);
    return {
      activations: (BOUNDARY_BYTES * layers.all + LAYER_BYTES * layers.kept) * stream,
      recomputedLayer: recomputed > 0 ? LAYER_BYTES * stream : 0,
    };
  },
};
