import {
  layerParameters,
  replicaRanks,
  type Collective,
  type JobSpec,
  type Plan,
  type TimeBreakdown,
} from "@internevo/domain";
import type { SliceTime } from "./layer-time.ts";

/** R of the text ("Job Profiler"): the middle of its 1.25 to 1.35. */
const SLOWDOWN = 1.3;
/** β of parameters, gradients and activations. */
const ELEMENT_BYTES = 2;

/** τ(op, bytes, group) on the measured curves; ranks of the group are `stride` apart. */
export type Tau = (op: Collective, bytes: number, size: number, stride: number) => number;

/** T_comm of a layer and micro-batch ("Memory & Communication Analysis"). */
function layerCommunication(
  { model, sequenceLengthTokens }: Pick<JobSpec, "model" | "sequenceLengthTokens">,
  plan: Plan,
  tau: Tau,
): { readonly sequence: number; readonly parameters: number; readonly gradients: number } {
  const { tensorParallel: tp, sequenceParallel: sp, parameterSharding: ps, microBatches: n } = plan;
  const stream = ELEMENT_BYTES * plan.microBatchSize * sequenceLengthTokens * model.hiddenSize;
  const layer = (ELEMENT_BYTES * layerParameters(model)) / tp;
  // 6bSH and 2bSH are whole tensors; the curves of all-to-all are over what one rank sends.
  const sequence =
    tp > 1
      ? 2 * tau("reduce-scatter", stream, tp, 1) + 3 * tau("all-gather", stream, tp, 1)
      : 2 * tau("all-to-all", (3 * stream) / sp, sp, 1) + 2 * tau("all-to-all", stream / sp, sp, 1);
  const parameters = ps > 1 ? 2 * tau("all-gather", layer, ps, tp) + tau("reduce-scatter", layer, ps, tp) : 0;
  const gradients =
    plan.gradientSharding > 1
      ? ((n - 1) / n) * tau("all-reduce", layer / ps, replicaRanks(plan) / ps, tp * ps)
      : 0;
  return { sequence, parameters, gradients };
}

/**
 * Seconds of a step as the paper's text has them ("Execution Simulator", the problem's objective): (n + s_pp
 * − 1) · (T_other + ⌈L/s_pp⌉ · OPro) + T_update, where OPro = R · max(VPro, UPro) is all communication of a
 * layer beside all its computation, and T_update is T_comm(s_oss) of the layers of a stage. The text has no
 * messages between stages and no optimizer. UPro and T_other are those of our profile.
 */
export function paperTime(
  job: Pick<JobSpec, "model" | "sequenceLengthTokens">,
  plan: Plan,
  slice: SliceTime,
  tau: Tau,
): TimeBreakdown {
  const { tensorParallel: tp, parameterSharding: ps, microBatches: n, pipelineParallel: pp } = plan;
  const stageLayers = Math.ceil(job.model.layers / pp);
  const recomputed = plan.recompute ? 1 : (plan.recomputeLayers ?? 0) / stageLayers;
  const once = slice.forwardSeconds + slice.backwardSeconds;
  const again = recomputed * slice.recomputeSeconds;
  const vpro = layerCommunication(job, plan, tau);
  const sent = vpro.sequence + vpro.parameters + vpro.gradients;
  const opro = SLOWDOWN * Math.max(sent, once + again);
  const exposed = opro - once - again;
  // What overlap leaves is laid to what is sent, by its parts; without any, R slows computation.
  const share = (part: number): number => (sent > 0 ? (exposed * part) / sent : 0);
  const other = slice.embeddingSeconds + slice.headSeconds;
  const shard = (ELEMENT_BYTES * layerParameters(job.model)) / (tp * ps);
  const update =
    tau("reduce-scatter", shard, plan.optimizerStateSharding, tp * ps) +
    tau("all-reduce", shard, replicaRanks(plan) / ps, tp * ps);
  return {
    computeSeconds: n * (other + stageLayers * (once + (sent > 0 ? 0 : exposed))),
    recomputeSeconds: n * stageLayers * again,
    sequenceCommunicationSeconds: n * stageLayers * share(vpro.sequence),
    parameterCommunicationSeconds: n * stageLayers * share(vpro.parameters),
    gradientCommunicationSeconds: n * stageLayers * share(vpro.gradients),
    pipelineBubbleSeconds: (pp - 1) * (other + stageLayers * opro),
    pipelineCommunicationSeconds: 0,
    updateSeconds: stageLayers * update,
  };
}
