import {
  chunksOf,
  contextOf,
  PRECISION_BYTES,
  recomputedLayers,
  type JobSpec,
  type MemoryLines,
  type Plan,
  type Prediction,
  type Profile,
  type TimeBreakdown,
  usesGpus,
} from "@internevo/domain";
import { clusterRanks, type Layout, type PlanOfJob, type Sharding } from "@internevo/plan";
import { overlapsAny } from "./layer-step.ts";
import { boundaryBytes, sliceRoofline, type SliceTime } from "./layer-time.ts";
import { sumLines, type Batching, type MemoryContext, type MemoryModel } from "./memory.ts";
import { executorMemory } from "./memory-executor.ts";
import { paperMemory } from "./memory-paper.ts";
import { pricesOf, type Prices } from "./prices.ts";
import type { ShardTime } from "./shard-time.ts";
import { fullestStages, pipelineStages, type Stage } from "./stage.ts";
import { stepBreakdown, totalSeconds, type StepShape } from "./step-time.ts";
import { tokenFlops } from "./utilisation.ts";
import { Warnings, type Kept } from "./warnings.ts";

export const MEMORY_MODELS: Readonly<Record<JobSpec["memoryModel"], MemoryModel>> = {
  executor: executorMemory,
  paper: paperMemory,
};

export interface CostModelOptions {
  readonly memoryModel?: JobSpec["memoryModel"];
  /** Threads that one rank computes with: their scratch is part of its memory. */
  readonly threadsPerRank?: number;
  /** How many times longer things take that nothing was measured for: 1 but at an end of a range. */
  readonly timesEstimates?: number;
}

const ALONE = { forwardOverlap: "none", backwardOverlap: "none" } as const;

/** Memory of the stages that can be the fullest, in bytes, one number a stage. */
export type StageBytes = readonly number[];

/** A sharding's times, with what was assumed for them. */
export type PricedSharding = Kept<ShardTime>;

/** Bytes of a batch as they depend on how many layers are recomputed (see `recomputedBytes`). */
export interface BatchMemory {
  /** Of one layer and one micro-batch that are not recomputed; as many are needed once where any layer is. */
  readonly layerBytes: number;
  readonly stages: readonly {
    readonly stage: Stage;
    readonly microBatches: number;
    readonly bytes: number;
  }[];
}

/** Bytes of a stage of a batch whose first k layers are recomputed. */
export function recomputedBytes(
  { layerBytes }: BatchMemory,
  { stage, microBatches, bytes }: BatchMemory["stages"][number],
  k: number,
): number {
  if (k === 0) return bytes;
  return bytes + (1 - (stage.layersHeld(microBatches)[Math.min(k, stage.layers)] as number)) * layerBytes;
}

/**
 * Memory and time of the plans of one job on one profile. Everything that several plans share is computed
 * once: times of a slice (b, s_sp, s_tp) and of a sharding (s_pp, s_tp, s_ps, s_oss), which jobs share too,
 * bytes of a sharding and of a batch.
 */
export class CostModel {
  readonly job: JobSpec;
  readonly profile: Profile;
  readonly #memoryModel: JobSpec["memoryModel"];
  readonly #memory: MemoryModel;
  readonly #threadsPerRank: number;
  readonly #prices: Prices;
  readonly #warnings = new Warnings();
  /** Of the prices that were taken. */
  readonly #warnedOf = new Set<Kept<unknown>["warned"][number]>();
  readonly #fullest = new Map<number, Stage[]>();

  constructor(job: JobSpec, profile: Profile, options: CostModelOptions = {}) {
    this.job = job;
    this.profile = profile;
    this.#memoryModel = options.memoryModel ?? job.memoryModel;
    this.#memory = MEMORY_MODELS[this.#memoryModel];
    this.#threadsPerRank = options.threadsPerRank ?? 1;
    this.#prices = pricesOf(job, profile, options.timesEstimates);
    this.take(this.#prices.ofProfile);
  }

  /** What the predictions so far had to assume, each kind once, in order. */
  get warnings(): string[] {
    return this.#warnings.lines;
  }

  /** A price, with what was assumed for it. */
  take<Value>({ value, warned }: Kept<Value>): Value {
    if (warned.length > 0) this.#warnOf(warned);
    return value;
  }

  #warnOf(warned: Kept<unknown>["warned"]): void {
    for (const warning of warned) {
      if (this.#warnedOf.has(warning)) continue;
      this.#warnedOf.add(warning);
      this.#warnings.add(warning.kind, warning.item);
    }
  }

  /** Whether the plan overlaps matters to a ring only: its messages then travel during attention. */
  sliceTime(
    microBatchSize: number,
    layout: Layout & Partial<Pick<Plan, "forwardOverlap" | "backwardOverlap">>,
  ): SliceTime {
    const { sequenceParallel, tensorParallel, forwardOverlap = "none", backwardOverlap = "none" } = layout;
    const contextParallel = contextOf(layout);
    const beside = contextParallel > 1 && overlapsAny({ forwardOverlap, backwardOverlap });
    return this.take(
      this.#prices.slices({ sequenceParallel, tensorParallel, contextParallel }).of(microBatchSize, beside),
    );
  }

  /** The same for every micro-batch of a layout, without overlap and with it. */
  sliceTimes({
    sequenceParallel,
    tensorParallel,
    contextParallel = 1,
  }: Layout): (microBatchSize: number) => readonly [plain: SliceTime, beside: SliceTime] {
    const prices = this.#prices.slices({ sequenceParallel, tensorParallel, contextParallel });
    return (microBatchSize) => {
      const plain = this.take(prices.of(microBatchSize, false));
      return [plain, contextParallel > 1 ? this.take(prices.of(microBatchSize, true)) : plain];
    };
  }

  shardTime(
    layout: Layout,
    sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">,
  ): ShardTime {
    return this.take(this.shardPrice(layout, sharding));
  }

  /** What {@link shardTime} takes: other jobs may take it too. */
  shardPrice(
    layout: Layout,
    sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">,
  ): PricedSharding {
    return this.#prices.shard(layout, sharding);
  }

  /** What the memory of a sharding depends on beside model, precision, layout and profile. */
  get memoryKind(): string {
    return `${this.#memoryModel} ${this.#threadsPerRank} ${usesGpus(this.job.cluster) ? "gpus" : "cpus"}`;
  }

  /** One message over a stage boundary. */
  boundarySeconds(microBatchSize: number, layout: Layout): number {
    if (layout.pipelineParallel === 1) return 0;
    const { sequenceParallel, tensorParallel, dataParallel } = layout;
    const slice = {
      microBatchSize,
      sequenceLengthTokens: this.job.sequenceLengthTokens,
      sequenceParallel,
      tensorParallel,
    };
    return this.take(this.#prices.message(boundaryBytes(this.job, slice), dataParallel * sequenceParallel));
  }

  #context(layout: Layout, overlap: MemoryContext["overlap"]): MemoryContext {
    return {
      job: this.job,
      layout,
      overlap,
      runtimeBytes: this.profile.device.runtimeBytes,
      threadsPerRank: this.#threadsPerRank,
    };
  }

  #stages(layout: Layout): Stage[] {
    const key = layout.pipelineParallel * 4096 + chunksOf(layout);
    let stages = this.#fullest.get(key);
    if (!stages)
      this.#fullest.set(
        key,
        (stages = fullestStages(this.job.model, layout.pipelineParallel, chunksOf(layout))),
      );
    return stages;
  }

  /** Bytes that the sharding decides, of each stage that can be the fullest. */
  shardBytes(
    layout: Layout,
    sharding: Sharding,
    plan: Pick<Plan, "forwardOverlap" | "backwardOverlap" | "recompute">,
  ): StageBytes {
    const context = this.#context(layout, plan);
    return this.#stages(layout).map((stage) =>
      sumLines(this.#memory.shardLines(context, stage, sharding, plan)),
    );
  }

  /** Bytes that the batch decides, of each stage that can be the fullest. */
  batchBytes(
    layout: Layout,
    batching: Batching,
    plan: Pick<Plan, "forwardOverlap" | "backwardOverlap">,
  ): StageBytes {
    const context = this.#context(layout, plan);
    return this.#stages(layout).map((stage) => sumLines(this.#memory.batchLines(context, stage, batching)));
  }

  /**
   * Bytes that the batch decides without recomputation, of each stage that can be the fullest, and what a
   * layer that is kept is part of them.
   */
  batchMemory(layout: Layout, microBatchSize: number, microBatches: number): BatchMemory {
    const context = this.#context(layout, { forwardOverlap: "none", backwardOverlap: "none" });
    const batching = { microBatchSize, microBatches, recompute: false };
    const layerBytes = this.#memory.layerBytes(context, microBatchSize);
    return {
      layerBytes,
      stages: this.#stages(layout).map((stage) => ({
        stage,
        microBatches,
        bytes: sumLines(this.#memory.batchLines(context, stage, batching)),
      })),
    };
  }

  /** Memory of a rank of every stage by line. */
  stageMemory(plan: PlanOfJob): MemoryLines[] {
    const context = this.#context(plan, plan);
    return pipelineStages(this.job.model, plan.pipelineParallel, chunksOf(plan)).map((stage) => ({
      ...this.#memory.shardLines(context, stage, plan, plan),
      ...this.#memory.batchLines(context, stage, plan),
    }));
  }

  /** Memory of the fullest rank by line. */
  memory(plan: PlanOfJob): { lines: MemoryLines; bytes: number } {
    const lines = this.stageMemory(plan).reduce((most, other) =>
      sumLines(other) > sumLines(most) ? other : most,
    );
    return { lines, bytes: sumLines(lines) };
  }

  /** What a plan's step is made of. */
  stepShape(plan: PlanOfJob): StepShape {
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
  time(plan: PlanOfJob): TimeBreakdown {
    if (overlapsAny(plan) && this.profile.overlaps.length === 0)
      this.#warnings.add(
        "slow-down by overlap that the profile lacks, taken as none",
        "computation and collectives at a time",
      );
    return stepBreakdown(
      this.sliceTime(plan.microBatchSize, plan),
      this.shardTime(plan, plan),
      this.stepShape(plan),
    );
  }

  /** Seconds of a step whose parts run one after the other, whatever the plan overlaps. */
  secondsAlone(plan: PlanOfJob): number {
    return totalSeconds(
      stepBreakdown(this.sliceTime(plan.microBatchSize, { ...plan, ...ALONE }), this.shardTime(plan, plan), {
        ...this.stepShape(plan),
        overlap: ALONE,
      }),
    );
  }

  /** Memory, time and utilisation of a plan. */
  predict(plan: PlanOfJob): Prediction {
    const { model, sequenceLengthTokens, globalBatchTokens, precision } = this.job;
    const { device } = this.profile;
    const time = this.time(plan);
    const stepTimeSeconds = totalSeconds(time);
    const ranks = clusterRanks(this.job);
    const tokensPerGpuPerSecond = globalBatchTokens / (stepTimeSeconds * ranks);
    const peak =
      PRECISION_BYTES[precision].activationBytes === 4
        ? device.peakFlopsPerSecondFp32
        : device.peakFlopsPerSecondBf16;
    const layers = Math.ceil(model.layers / plan.pipelineParallel);
    const recomputed = recomputedLayers(plan, layers);
    const flops = tokenFlops(model, sequenceLengthTokens, recomputed / layers);
    const peakOfSlice = sliceRoofline(this.job, { ...plan, sequenceLengthTokens }, device);
    const outer =
      plan.pipelineParallel === 1
        ? peakOfSlice.embeddingSeconds + peakOfSlice.headSeconds
        : Math.max(peakOfSlice.embeddingSeconds, peakOfSlice.headSeconds);
    const light =
      plan.microBatches *
      (layers * peakOfSlice.layerSeconds + recomputed * peakOfSlice.recomputeSeconds + outer);
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
