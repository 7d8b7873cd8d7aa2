import { chunksOf, contextOf, headRanks, PRECISION_BYTES, recomputedLayers, type JobSpec, type MemoryLines, type Plan, type Prediction, type Profile, type TimeBreakdown } from "@internevo/domain";
import { CollectiveTimes } from "./collectives.ts";
import { overlapsAny } from "./layer-step.ts";
import { boundaryBytes, SliceTimes, type SliceTime } from "./layer-time.ts";
import { ringPlace } from "./ring-time.ts";
import { sumLines, type Batching, type MemoryContext, type MemoryModel, type Sharding } from "./memory.ts";
import { executorMemory } from "./memory-executor.ts";
import { paperMemory } from "./memory-paper.ts";
import { nodesTouched } from "./mesh.ts";
import { ModuleTimes } from "./modules.ts";
import { OverlapTimes } from "./overlap-times.ts";
import { shardTime, type ShardTime } from "./shard-time.ts";
import { SliceCorrections } from "./slice-corrections.ts";
import type { LayerSlice } from "./layer.ts";
import { clusterRanks } from "./space.ts";
import { fullestStages, pipelineStages, type Layout, type Stage } from "./stage.ts";
import { stepBreakdown, totalSeconds, type StepShape } from "./step-time.ts";
import { tokenFlops } from "./utilisation.ts";
import { Warnings } from "./warnings.ts";

export const MEMORY_MODELS: Readonly<Record<JobSpec["memoryModel"], MemoryModel>> = { executor: executorMemory, paper: paperMemory };

export interface CostModelOptions {
  readonly memoryModel?: JobSpec["memoryModel"];
  /** Threads that one rank computes with: their scratch is part of its memory. */
  readonly threadsPerRank?: number;
}

/** Memory of the stages that can be the fullest, in bytes, one number a stage. */
export type StageBytes = readonly number[];

/** Bytes of a batch as they depend on how many layers are recomputed (see `recomputedBytes`). */
export interface BatchMemory {
  /** Of one layer and one micro-batch that are not recomputed; as many are needed once where any layer is. */
  readonly layerBytes: number;
  readonly stages: readonly { readonly stage: Stage; readonly microBatches: number; readonly bytes: number }[];
}

/** Bytes of a stage of a batch whose first k layers are recomputed. */
export function recomputedBytes({ layerBytes }: BatchMemory, { stage, microBatches, bytes }: BatchMemory["stages"][number], k: number): number {
  if (k === 0) return bytes;
  return bytes + (1 - (stage.layersHeld(microBatches)[Math.min(k, stage.layers)] as number)) * layerBytes;
}

/**
 * Memory and time of the plans of one job on one profile. Everything that several plans share is computed once: times of a
 * slice (b, s_sp, s_tp), times of a sharding (s_pp, s_tp, s_ps, s_oss), bytes of a sharding and of a batch.
 */
export class CostModel {
  readonly job: JobSpec;
  readonly profile: Profile;
  readonly #memory: MemoryModel;
  readonly #threadsPerRank: number;
  readonly #modules: ModuleTimes;
  readonly #collectives: CollectiveTimes;
  readonly #warnings = new Warnings();
  readonly #slices = new Map<string, SliceTime>();
  readonly #shards = new Map<string, ShardTime>();
  readonly #fullest = new Map<number, Stage[]>();
  readonly #overlaps: OverlapTimes;
  readonly #sliceTimes: SliceTimes;
  readonly #corrections: SliceCorrections;

  constructor(job: JobSpec, profile: Profile, options: CostModelOptions = {}) {
    this.job = job;
    this.profile = profile;
    this.#memory = MEMORY_MODELS[options.memoryModel ?? job.memoryModel];
    this.#threadsPerRank = options.threadsPerRank ?? 1;
    this.#modules = new ModuleTimes(profile, this.#warnings.add);
    this.#collectives = new CollectiveTimes(profile, job.cluster.gpusPerNode, this.#warnings.add);
    this.#overlaps = new OverlapTimes(profile, this.#warnings.add);
    this.#sliceTimes = new SliceTimes(job, this.#modules, this.#collectives, profile.device);
    this.#corrections = new SliceCorrections(job, profile.slices ?? [], (slice) => this.#composed(slice, false), this.#warnings.add);
  }

  /** What the predictions so far had to assume, each kind once, in order. */
  get warnings(): string[] {
    return this.#warnings.lines;
  }

  /** One R for everything that a plan runs beside computation, for a timeline: the mean of gathers and reductions. */
  overlapSlowdown(plan: Plan): number {
    if (!overlapsAny(plan)) return 1;
    const { forwardGather, backwardGather, scatter, reduce } = this.shardTime(plan, plan).slowdowns;
    return (forwardGather.product + backwardGather.product + scatter.product + reduce.product) / 4;
  }

  #place(size: number, stride: number) {
    return { size, nodes: nodesTouched({ size, stride }, this.job.cluster.gpusPerNode) };
  }

  /** Whether the plan overlaps matters to a ring only: its messages then travel during attention. */
  sliceTime(microBatchSize: number, layout: Layout & Partial<Pick<Plan, "forwardOverlap" | "backwardOverlap">>): SliceTime {
    const { sequenceParallel, tensorParallel, forwardOverlap = "none", backwardOverlap = "none" } = layout;
    const contextParallel = contextOf(layout);
    const beside = contextParallel > 1 && overlapsAny({ forwardOverlap, backwardOverlap });
    const key = `${microBatchSize} ${sequenceParallel} ${tensorParallel} ${contextParallel} ${beside ? 1 : 0}`;
    let time = this.#slices.get(key);
    if (!time) {
      const slice = { microBatchSize, sequenceLengthTokens: this.job.sequenceLengthTokens, sequenceParallel, tensorParallel, contextParallel };
      time = this.#corrections.apply(slice, this.#composed(slice, beside));
      this.#slices.set(key, time);
    }
    return time;
  }

  /** A slice by its modules and collectives. */
  #composed(slice: LayerSlice, beside: boolean): SliceTime {
    const { gpusPerNode } = this.job.cluster;
    const ring = contextOf(slice);
    const stride = headRanks({ sequenceParallel: slice.sequenceParallel, contextParallel: ring });
    const places = { heads: this.#place(stride, 1), ring: ringPlace(stride, nodesTouched({ size: ring, stride }, gpusPerNode), gpusPerNode) };
    const hop = { size: 2, nodes: places.ring.nodes > 1 ? 2 : 1 };
    const slowdown = beside ? { forward: this.#overlaps.slowdown("point-to-point", "forward", hop).attention, backward: this.#overlaps.slowdown("point-to-point", "backward", hop).attention } : null;
    return this.#sliceTimes.of(slice, places, slowdown);
  }

  /** Depends on the layout only through s_pp and s_tp: the groups are laid over the R ranks of a slice. */
  shardTime(layout: Layout, sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">): ShardTime {
    const key = `${layout.pipelineParallel} ${layout.tensorParallel} ${sharding.parameterSharding} ${sharding.optimizerStateSharding}`;
    let time = this.#shards.get(key);
    if (!time) {
      time = shardTime(this.job, layout, sharding, this.#modules, this.#collectives, this.#overlaps, this.profile.device);
      this.#shards.set(key, time);
    }
    return time;
  }

  /** One message over a stage boundary. */
  boundarySeconds(microBatchSize: number, layout: Layout): number {
    if (layout.pipelineParallel === 1) return 0;
    const { sequenceParallel, tensorParallel, dataParallel } = layout;
    const slice = { microBatchSize, sequenceLengthTokens: this.job.sequenceLengthTokens, sequenceParallel, tensorParallel };
    return this.#collectives.seconds("point-to-point", boundaryBytes(this.job, slice), this.#place(2, dataParallel * sequenceParallel));
  }

  #context(layout: Layout, overlap: MemoryContext["overlap"]): MemoryContext {
    return { job: this.job, layout, overlap, runtimeBytes: this.profile.device.runtimeBytes, threadsPerRank: this.#threadsPerRank };
  }

  #stages(layout: Layout): Stage[] {
    const key = layout.pipelineParallel * 4096 + chunksOf(layout);
    let stages = this.#fullest.get(key);
    if (!stages) this.#fullest.set(key, (stages = fullestStages(this.job.model, layout.pipelineParallel, chunksOf(layout))));
    return stages;
  }

  /** Bytes that the sharding decides, of each stage that can be the fullest. */
  shardBytes(layout: Layout, sharding: Sharding, plan: Pick<Plan, "forwardOverlap" | "backwardOverlap" | "recompute">): StageBytes {
    const context = this.#context(layout, plan);
    return this.#stages(layout).map((stage) => sumLines(this.#memory.shardLines(context, stage, sharding, plan)));
  }

  /** Bytes that the batch decides, of each stage that can be the fullest. */
  batchBytes(layout: Layout, batching: Batching, plan: Pick<Plan, "forwardOverlap" | "backwardOverlap">): StageBytes {
    const context = this.#context(layout, plan);
    return this.#stages(layout).map((stage) => sumLines(this.#memory.batchLines(context, stage, batching)));
  }

  /** Bytes that the batch decides without recomputation, of each stage that can be the fullest, and what a layer that is kept is part of them. */
  batchMemory(layout: Layout, microBatchSize: number, microBatches: number): BatchMemory {
    const context = this.#context(layout, { forwardOverlap: "none", backwardOverlap: "none" });
    const batching = { microBatchSize, microBatches, recompute: false };
    const layerBytes = this.#memory.layerBytes(context, microBatchSize);
    return { layerBytes, stages: this.#stages(layout).map((stage) => ({ stage, microBatches, bytes: sumLines(this.#memory.batchLines(context, stage, batching)) })) };
  }

  /** Memory of a rank of every stage by line. The plan's factors must divide (see `planFault`). */
  stageMemory(plan: Plan): MemoryLines[] {
    const context = this.#context(plan, plan);
    return pipelineStages(this.job.model, plan.pipelineParallel, chunksOf(plan)).map((stage) => ({ ...this.#memory.shardLines(context, stage, plan, plan), ...this.#memory.batchLines(context, stage, plan) }));
  }

  /** Memory of the fullest rank by line. The plan's factors must divide (see `planFault`). */
  memory(plan: Plan): { lines: MemoryLines; bytes: number } {
    const lines = this.stageMemory(plan).reduce((most, other) => (sumLines(other) > sumLines(most) ? other : most));
    return { lines, bytes: sumLines(lines) };
  }

  /** What a plan's step is made of. */
  stepShape(plan: Plan): StepShape {
    return {
      microBatches: plan.microBatches,
      pipelineParallel: plan.pipelineParallel,
      chunks: chunksOf(plan),
      layers: this.job.model.layers,
      recompute: plan.recompute,
      ...(plan.recomputeLayers === undefined ? {} : { recomputeLayers: plan.recomputeLayers }),
      reduceEveryMicroBatch: plan.gradientSharding > 1,
      boundarySeconds: this.boundarySeconds(plan.microBatchSize, plan),
      overlap: plan,
    };
  }

  /** Seconds of one step by cause. */
  time(plan: Plan): TimeBreakdown {
    if (overlapsAny(plan) && this.profile.overlaps.length === 0) this.#warnings.add("slow-down by overlap that the profile lacks, taken as none", "computation and collectives at a time");
    return stepBreakdown(this.sliceTime(plan.microBatchSize, plan), this.shardTime(plan, plan), this.stepShape(plan));
  }

  /** Memory, time and utilisation of a plan whose factors divide. */
  predict(plan: Plan): Prediction {
    const { model, sequenceLengthTokens, globalBatchTokens, precision } = this.job;
    const { device } = this.profile;
    const time = this.time(plan);
    const stepTimeSeconds = totalSeconds(time);
    const ranks = clusterRanks(this.job);
    const tokensPerGpuPerSecond = globalBatchTokens / (stepTimeSeconds * ranks);
    const peak = PRECISION_BYTES[precision].activationBytes === 4 ? device.peakFlopsPerSecondFp32 : device.peakFlopsPerSecondBf16;
    const layers = Math.ceil(model.layers / plan.pipelineParallel);
    const recomputed = recomputedLayers(plan, layers);
    const flops = tokenFlops(model, sequenceLengthTokens, recomputed / layers);
    const slice = this.sliceTime(plan.microBatchSize, plan);
    const outer = plan.pipelineParallel === 1 ? slice.embeddingRooflineSeconds + slice.headRooflineSeconds : Math.max(slice.embeddingRooflineSeconds, slice.headRooflineSeconds);
    const light = plan.microBatches * (layers * slice.layerRooflineSeconds + recomputed * slice.recomputeRooflineSeconds + outer);
    const memory = this.memory(plan);
    return {
      stepTimeSeconds,
      tokensPerGpuPerSecond,
      peakMemoryBytes: memory.bytes,
      memory: memory.lines,
      time,
      mfu: (flops.causal * tokensPerGpuPerSecond) / peak,
      mfuFullAttention: (flops.fullAttention * tokensPerGpuPerSecond) / peak,
      hfu: (flops.executed * tokensPerGpuPerSecond) / peak,
      speedOfLight: (light + this.shardTime(plan, plan).updateRooflineSeconds) / stepTimeSeconds,
    };
  }
}
