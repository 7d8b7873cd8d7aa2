import { CostModel } from "@internevo/cost-model";
import type { JobSpec, Plan, Profile } from "@internevo/domain";

/** A feasible plan, predicted one by one. */
export interface Judged {
  readonly plan: Plan;
  readonly seconds: number;
  readonly bytes: number;
  readonly runnable: boolean;
}

/**
 * The search again, written to be read: every factor from 1 to N, the constraints of the paper's integer program one by
 * one, and a prediction of every plan on its own.
 */
export function bruteForce(job: JobSpec, profile: Profile): { feasible: Judged[]; tooLarge: Judged[] } {
  const { model, sequenceLengthTokens: s, globalBatchTokens, precision } = job;
  const n = job.cluster.nodes * job.cluster.gpusPerNode;
  const cost = new CostModel(job, profile);
  const feasible: Judged[] = [];
  const tooLarge: Judged[] = [];
  const upTo = (last: number) => Array.from({ length: last }, (_, i) => i + 1);
  for (const pp of upTo(n)) for (const sp of upTo(n)) for (const dp of upTo(n)) {
    if (pp * sp * dp !== n || pp > model.layers) continue;
    if (s % sp !== 0 || model.heads % sp !== 0) continue;
    if (Math.max(model.kvHeads, sp) % Math.min(model.kvHeads, sp) !== 0) continue;
    for (const tp of new Set([1, sp])) for (const b of upTo(globalBatchTokens / s)) for (const a of [false, true]) {
      const microBatches = globalBatchTokens / (b * s * dp);
      if (!Number.isInteger(microBatches)) continue;
      // The inner width divides, and the last tensor rank has a row of the vocabulary.
      if (tp > 1 && (model.ffnHiddenSize % tp !== 0 || model.vocabularySize <= (tp - 1) * Math.ceil(model.vocabularySize / tp))) continue;
      for (const ps of upTo(n)) for (const oss of upTo(n)) for (const gs of new Set([1, oss])) {
        if (n % (ps * pp * tp) !== 0 || n % (ps * oss * pp * tp) !== 0) continue;
        const plan: Plan = {
          microBatchSize: b, microBatches, recompute: a, pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp,
          parameterSharding: ps, gradientSharding: gs, optimizerStateSharding: oss, ...profile.executor,
        };
        const { stepTimeSeconds: seconds, peakMemoryBytes: bytes } = cost.predict(plan);
        const runnable = precision !== "bf16-grad16";
        (bytes <= job.cluster.memoryPerGpuBytes ? feasible : tooLarge).push({ plan, seconds, bytes, runnable });
      }
    }
  }
  return { feasible, tooLarge };
}
