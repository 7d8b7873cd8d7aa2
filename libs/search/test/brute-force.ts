import { CostModel, totalSeconds } from "@internevo/cost-model";
import type { JobSpec, Plan, Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";

/** A plan, predicted on its own. */
export interface Judged {
  readonly plan: Plan;
  readonly seconds: number;
  readonly bytes: number;
}

const upTo = (last: number) => Array.from({ length: last }, (_, i) => i + 1);
const multiple = (a: number, b: number) => a % b === 0;

/** Whether a constraint of the job leaves a value open: a value, a list of values, or nothing said. */
const open = (constraint: unknown, value: unknown) =>
  constraint === undefined || ([constraint].flat() as unknown[]).includes(value);

/** Whether the job's constraints leave a plan open, with what a plan leaves out written out. */
function isOpen(job: JobSpec, plan: Plan, recomputed: number): boolean {
  const whole: Record<string, unknown> = {
    contextParallel: 1,
    pipelineChunks: 1,
    gateUp: "kept",
    ...plan,
    recomputeLayers: recomputed,
  };
  return Object.entries(job.plan ?? {}).every(([field, constraint]) => open(constraint, whole[field]));
}

const offersHost = ({ plan, cluster, memoryModel }: JobSpec, { device }: Profile) =>
  memoryModel === "executor" &&
  device.toHostBytesPerSecond !== undefined &&
  device.toDeviceBytesPerSecond !== undefined &&
  ((cluster.hostMemoryBytes !== undefined && cluster.device === "cuda") ||
    [plan?.gateUp ?? []].flat().includes("host"));

/**
 * The search again, written to be read: every field of a plan from its least to its most value, the
 * constraints one by one, and a prediction of every plan on its own.
 */
export function bruteForce(job: JobSpec, profile: Profile): { feasible: Judged[]; tooLarge: Judged[] } {
  const { model, sequenceLengthTokens: s, globalBatchTokens } = job;
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  const sequences = globalBatchTokens / s;
  const cost = new CostModel(job, profile);
  const feasible: Judged[] = [];
  const tooLarge: Judged[] = [];
  const judge = (plan: Plan) => {
    const seconds = totalSeconds(cost.time(planOfJob(plan, cost.job)));
    const { bytes } = cost.memory(planOfJob(plan, cost.job));
    const { memoryPerGpuBytes, hostMemoryBytes = Infinity, gpusPerNode } = job.cluster;
    const host = cost.hostBytes(planOfJob(plan, cost.job)) * gpusPerNode;
    (bytes <= memoryPerGpuBytes && host <= hostMemoryBytes ? feasible : tooLarge).push({
      plan,
      seconds,
      bytes,
    });
  };
  for (const pp of upTo(ranks))
    for (const sp of upTo(ranks))
      for (const dp of upTo(ranks)) {
        if (pp * sp * dp !== ranks || pp > model.layers) continue;
        for (const tp of new Set([1, sp]))
          for (const c of tp > 1 ? [1] : upTo(sp)) {
            if (!multiple(sp, c) || (c > 1 && !multiple(s, 2 * c))) continue;
            const heads = sp / c;
            if (
              !multiple(s, sp) ||
              !multiple(model.heads, heads) ||
              !(multiple(model.kvHeads, heads) || multiple(heads, model.kvHeads))
            )
              continue;
            // The inner width divides, and the last tensor rank has a row of the vocabulary.
            if (
              tp > 1 &&
              (!multiple(model.ffnHiddenSize, tp) ||
                model.vocabularySize <= (tp - 1) * Math.ceil(model.vocabularySize / tp))
            )
              continue;
            for (const b of upTo(sequences))
              for (const n of upTo(sequences)) {
                if (b * n * dp !== sequences) continue;
                for (const v of pp === 1 ? [1] : upTo(model.layers)) {
                  if (v > 1 && (v * pp > model.layers || !multiple(n, pp))) continue;
                  const longest = Math.ceil(model.layers / pp);
                  for (const [k, gateUp] of [0, ...upTo(longest)].flatMap((layers) =>
                    (["kept", "again", "host"] as const).map((choice) => [layers, choice] as const),
                  )) {
                    // Where every layer is made again, gate and up are.
                    if (k === longest && gateUp !== "kept") continue;
                    // Kept on the host only where copies have a time, and the host's memory is known or
                    // asked for.
                    if (gateUp === "host" && !offersHost(job, profile)) continue;
                    for (const ps of upTo(ranks))
                      for (const oss of upTo(ranks))
                        for (const gs of new Set([1, oss])) {
                          if (!multiple(ranks, ps * oss * pp * tp)) continue;
                          for (const forwardOverlap of [
                            "none",
                            "block",
                            "inter-layer",
                            "intra-layer",
                          ] as const)
                            for (const backwardOverlap of ["none", "block", "intra-layer"] as const) {
                              const measured =
                                profile.overlaps.length > 0 ||
                                job.plan?.forwardOverlap !== undefined ||
                                job.plan?.backwardOverlap !== undefined;
                              if (
                                !measured &&
                                (forwardOverlap !== profile.executor.forwardOverlap ||
                                  backwardOverlap !== profile.executor.backwardOverlap)
                              )
                                continue;
                              const plan: Plan = {
                                microBatchSize: b,
                                microBatches: n,
                                recompute: k === longest,
                                pipelineParallel: pp,
                                dataParallel: dp,
                                tensorParallel: tp,
                                sequenceParallel: sp,
                                parameterSharding: ps,
                                gradientSharding: gs,
                                optimizerStateSharding: oss,
                                forwardOverlap,
                                backwardOverlap,
                                ...(c > 1 ? { contextParallel: c } : {}),
                                ...(v > 1 ? { pipelineChunks: v } : {}),
                                ...(k > 0 && k < longest ? { recomputeLayers: k } : {}),
                                ...(gateUp === "kept" ? {} : { gateUp }),
                              };
                              if (isOpen(job, plan, k)) judge(plan);
                            }
                        }
                  }
                }
              }
          }
      }
  return { feasible, tooLarge };
}
