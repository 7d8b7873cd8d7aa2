import { headSize, type JobSpec, type Model } from "@internevo/domain";
import { localKvHeads } from "./layer.ts";

/** How the ranks are split before sharding: s_pp, s_dp, s_tp, s_sp. */
export interface Layout {
  readonly pipelineParallel: number;
  readonly dataParallel: number;
  readonly tensorParallel: number;
  readonly sequenceParallel: number;
}

/** Parameters of the units that are gathered, reduced and updated together, on one tensor rank, before padding. */
export interface UnitParameters {
  readonly embedding: number;
  readonly layer: number;
  /** 0 with tied embeddings: the final norm is then part of the embedding's unit. */
  readonly head: number;
}

/** P of every unit. Tensor ranks split the vocabulary, the heads and the inner width; norms are whole on each. */
export function unitParameters(model: Model, tensorParallel: number): UnitParameters {
  const { hiddenSize: h, vocabularySize: v, ffnHiddenSize: f, heads, kvHeads } = model;
  const d = headSize(model);
  const vocabulary = Math.ceil(v / tensorParallel) * h;
  const query = (heads / tensorParallel) * d;
  const kv = localKvHeads(kvHeads, tensorParallel) * d;
  const inner = Math.ceil(f / tensorParallel);
  return {
    embedding: vocabulary + (model.tiedEmbeddings ? h : 0),
    layer: 2 * h + 2 * h * query + 2 * h * kv + 3 * h * inner,
    head: model.tiedEmbeddings ? 0 : vocabulary + h,
  };
}

/** One pipeline stage as memory sees it. */
export interface Stage {
  readonly layers: number;
  readonly hasEmbedding: boolean;
  readonly hasHead: boolean;
  /** Micro-batches whose activations the stage holds at once under 1F1B: min(s_pp − index, n). */
  inFlight(microBatches: number): number;
}

/**
 * The stages that can be the fullest. Layers are dealt as evenly as they go, the longer stages first, so the first stage
 * (embedding, most micro-batches in flight) or the last (head, logits) needs the most memory; with one stage it is both.
 */
export function fullestStages(model: Model, pipelineParallel: number): Stage[] {
  const longest = Math.ceil(model.layers / pipelineParallel);
  const shortest = Math.floor(model.layers / pipelineParallel);
  if (pipelineParallel === 1) return [{ layers: model.layers, hasEmbedding: true, hasHead: true, inFlight: () => 1 }];
  return [
    { layers: longest, hasEmbedding: true, hasHead: false, inFlight: (n) => Math.min(pipelineParallel, n) },
    { layers: shortest, hasEmbedding: model.tiedEmbeddings, hasHead: true, inFlight: () => 1 },
  ];
}

/** Everything of a job that the formulas need. */
export type JobShape = Pick<JobSpec, "model" | "sequenceLengthTokens" | "globalBatchTokens" | "precision" | "cluster">;
