import {
  allowedBy,
  chunksOf,
  countedDocuments,
  formatBytes,
  keepsGateUpOnHost,
  makesGateUpAgain,
  planLabel,
  PRECISION_BYTES,
  ProblemError,
  recomputedLayers,
  splitKind,
  splitOf,
  usesGpus,
  tokensPerRankPerSecond,
  withoutHeadroom,
  type JobSpec,
  type MemoryLines,
  type MemoryModelName,
  type Plan,
  type Prediction,
  type Profile,
  type TimeBreakdown,
  type TimeModelName,
} from "@internevo/domain";
import {
  clusterRanks,
  GATE_UP,
  type GateUp,
  type Layout,
  type PlanOfJob,
  type Sharding,
} from "@internevo/plan";
import { overlapsAny, sharesBeside } from "./layer-step.ts";
import { boundaryBytes, sliceRoofline, type SliceTime } from "./layer-time.ts";
import { addLines, sumLines, type Batching, type MemoryContext, type MemoryModel } from "./memory.ts";
import { executorMemory } from "./memory-executor.ts";
import { paperMemory } from "./memory-paper.ts";
import { paperTime } from "./paper-time.ts";
import { pricesOf, type Prices } from "./prices.ts";
import { publishedMemory, publishedScheme } from "./published-memory.ts";
import { publishedTime } from "./published-time.ts";
import type { ShardTime } from "./shard-time.ts";
import { fullestStages, layersInFlight, pipelineStages, type Stage } from "./stage.ts";
import { stepBreakdown, totalSeconds, type StepShape } from "./step-time.ts";
import type { TensorBeside } from "./tensor-time.ts";
import { tokenFlops } from "./utilisation.ts";
import { Warnings, type Kept } from "./warnings.ts";

/** The published planner's memory is not among them: it is that of a whole plan. */
const SPLIT_MEMORY: Readonly<Record<Exclude<MemoryModelName, "published">, MemoryModel>> = {
  executor: executorMemory,
  paper: paperMemory,
};

export interface CostModelOptions {
  readonly memoryModel?: MemoryModelName;
  readonly timeModel?: TimeModelName;
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
  /** Of the same in the host's memory; no layer that is recomputed has them. */
  readonly layerHostBytes: number;
  /** What a plan whose backward pass overlaps needs more, of every stage. */
  readonly backwardOverlapBytes: number;
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
  return bytes + (1 - stage.layersHeld(microBatches, k)) * layerBytes;
}

/** Bytes that a rank of a stage keeps in its host's memory where its first k layers are recomputed. */
export const stageHostBytes = (
  { layerHostBytes }: Pick<BatchMemory, "layerHostBytes">,
  { stage, microBatches }: Pick<BatchMemory["stages"][number], "stage" | "microBatches">,
  k: number,
): number => layersInFlight(stage, microBatches, k).kept * layerHostBytes;

/** Why a plan that keeps gate and up in the host's memory has no time; null for plans that have one. */
export function unpricedHost(
  { profile: { device, name } }: Pick<CostModel, "profile">,
  plan: Pick<Plan, "gateUp">,
): string | null {
  if (!keepsGateUpOnHost(plan)) return null;
  return device.toHostBytesPerSecond === undefined || device.toDeviceBytesPerSecond === undefined
    ? `${name} does not say how fast copies to the host and back are (device.toHostBytesPerSecond and toDeviceBytesPerSecond): measure the cluster again`
    : null;
}

/** Numbers of layers that are kept at most of the chunks of stages. */
const MOST_KNOWN_CHUNKS = 4_000_000;

/**
 * Memory and time of the plans of one job on one profile. Everything that several plans share is computed
 * once: times of a slice (b, s_sp, s_tp) and of a sharding (s_pp, s_tp, s_ps, s_oss), which jobs share too,
 * bytes of a sharding and of a batch.
 */
export class CostModel {
  /** On GPUs that have what plans may use: without a headroom. */
  readonly job: JobSpec;
  readonly profile: Profile;
  readonly memoryModel: MemoryModelName;
  readonly timeModel: TimeModelName;
  readonly #threadsPerRank: number;
  readonly #prices: Prices;
  readonly #warnings = new Warnings();
  /** Of the prices that were taken. */
  readonly #warnedOf = new Set<Kept<unknown>["warned"][number]>();
  readonly #fullest = new Map<number, Stage[]>();
  /** Of all stages in it. */
  #knownChunks = 0;

  constructor(job: JobSpec, profile: Profile, options: CostModelOptions = {}) {
    this.job = withoutHeadroom(job);
    this.profile = profile;
    this.memoryModel = options.memoryModel ?? job.memoryModel;
    this.timeModel = options.timeModel ?? job.timeModel ?? "executor";
    this.#threadsPerRank = options.threadsPerRank ?? 1;
    this.#prices = pricesOf(job, profile, options.timesEstimates);
    this.take(this.#prices.ofProfile);
  }

  /** Sums of a sharding and a batch, as a search takes them. */
  get #memory(): MemoryModel {
    if (this.memoryModel === "published")
      throw new Error("the published planner's memory is that of a whole plan: it has no sums of its parts");
    return SPLIT_MEMORY[this.memoryModel];
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

  /**
   * Whether the plan overlaps matters to a ring, whose messages then travel during attention, and to tensor
   * ranks, which then communicate beside products of the backward pass.
   */
  sliceTime(
    microBatchSize: number,
    layout: Layout & Partial<Pick<Plan, "forwardOverlap" | "backwardOverlap">>,
  ): SliceTime {
    const { forwardOverlap = "none", backwardOverlap = "none" } = layout;
    const split = splitOf(layout);
    const beside = sharesBeside(split, { forwardOverlap, backwardOverlap });
    return this.take(
      this.#prices.slices({ ...split, dataParallel: layout.dataParallel }).of(microBatchSize, beside),
    );
  }

  /** The same for every micro-batch of a layout, without overlap and with it. */
  sliceTimes(layout: Layout): (microBatchSize: number) => readonly [plain: SliceTime, beside: SliceTime] {
    const split = splitOf(layout);
    const prices = this.#prices.slices({ ...split, dataParallel: layout.dataParallel });
    const hides = splitKind(split) === "ring" || this.#prices.hidesTensor(split);
    return (microBatchSize) => {
      const plain = this.take(prices.of(microBatchSize, false));
      return [plain, hides ? this.take(prices.of(microBatchSize, true)) : plain];
    };
  }

  /** What tensor ranks move beside products of the backward pass; null where they wait for all of it. */
  tensorBeside(plan: PlanOfJob): TensorBeside | null {
    if (!this.#prices.hidesTensor(plan) || !sharesBeside(plan, plan)) return null;
    const { microBatchSize, sequenceParallel, tensorParallel } = plan;
    const { sequenceLengthTokens } = this.job;
    return this.take(
      this.#prices.tensorBeside({ microBatchSize, sequenceLengthTokens, sequenceParallel, tensorParallel }),
    );
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
    return `${this.memoryModel} ${this.#threadsPerRank} ${usesGpus(this.job.cluster) ? "gpus" : "cpus"}`;
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
    const known = this.#fullest.get(key);
    if (known) return known;
    const stages = fullestStages(this.job.model, layout.pipelineParallel, chunksOf(layout));
    this.#knownChunks += stages.length * chunksOf(layout);
    if (this.#knownChunks > MOST_KNOWN_CHUNKS) {
      this.#fullest.clear();
      this.#knownChunks = stages.length * chunksOf(layout);
    }
    this.#fullest.set(key, stages);
    return stages;
  }

  /** Bytes that the sharding decides, of each stage that can be the fullest. */
  shardBytes(
    layout: Layout,
    sharding: Sharding,
    plan: Pick<Plan, "forwardOverlap" | "backwardOverlap" | "recompute" | "gateUp">,
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
   * Bytes that the batch decides where no layer is recomputed, of each stage that can be the fullest, and
   * what one layer is part of them.
   */
  batchMemory(layout: Layout, microBatchSize: number, microBatches: number, gateUp: GateUp): BatchMemory {
    const context = this.#context(layout, { forwardOverlap: "none", backwardOverlap: "none" });
    const batching = { microBatchSize, microBatches, recompute: false, gateUp };
    const layerBytes = this.#memory.layerBytes(context, microBatchSize, gateUp);
    const layerHostBytes = this.#memory.layerHostBytes(context, microBatchSize, gateUp);
    const stages = this.#stages(layout).map((stage) => ({
      stage,
      microBatches,
      bytes: sumLines(this.#memory.batchLines(context, stage, batching)),
    }));
    const [first] = stages;
    // Only tensor ranks have buffers that depend on the batch and on overlap.
    const beside = (stage: Stage, alone: number): number =>
      sumLines(
        this.#memory.batchLines(
          this.#context(layout, { forwardOverlap: "none", backwardOverlap: "block" }),
          stage,
          batching,
        ),
      ) - alone;
    return {
      layerBytes,
      layerHostBytes,
      backwardOverlapBytes: first && layout.tensorParallel > 1 ? beside(first.stage, first.bytes) : 0,
      stages,
    };
  }

  /** Memory of a rank of every stage by line. */
  stageMemory(plan: PlanOfJob): MemoryLines[] {
    const stages = pipelineStages(this.job.model, plan.pipelineParallel, chunksOf(plan));
    if (this.memoryModel === "published") {
      const lines = publishedMemory(this.job, plan);
      return stages.map(() => lines);
    }
    const context = this.#context(plan, plan);
    return stages.map((stage) =>
      addLines(
        this.#memory.shardLines(context, stage, plan, plan),
        this.#memory.batchLines(context, stage, plan),
      ),
    );
  }

  /** Memory of the fullest rank by line. */
  memory(plan: PlanOfJob): { lines: MemoryLines; bytes: number } {
    if (this.memoryModel === "published") {
      const all = publishedMemory(this.job, plan);
      return { lines: all, bytes: sumLines(all) };
    }
    const lines = this.stageMemory(plan).reduce((most, other) =>
      sumLines(other) > sumLines(most) ? other : most,
    );
    return { lines, bytes: sumLines(lines) };
  }

  /** What the rank that needs most keeps in its host's memory. */
  hostBytes(plan: PlanOfJob): number {
    if (this.memoryModel === "published" || !keepsGateUpOnHost(plan)) return 0;
    const { microBatchSize, microBatches } = plan;
    const layerHostBytes = this.#memory.layerHostBytes(this.#context(plan, plan), microBatchSize, "host");
    return pipelineStages(this.job.model, plan.pipelineParallel, chunksOf(plan)).reduce(
      (most, stage) =>
        Math.max(
          most,
          stageHostBytes({ layerHostBytes }, { stage, microBatches }, recomputedLayers(plan, stage.layers)),
        ),
      0,
    );
  }

  /** What a rank may keep in its host's memory; nothing is known of it where the cluster does not say it. */
  get hostLimitBytes(): number {
    const { hostMemoryBytes, gpusPerNode } = this.job.cluster;
    return hostMemoryBytes === undefined ? Infinity : Math.floor(hostMemoryBytes / gpusPerNode);
  }

  /** Why a plan does not fit the memory of a GPU or of its host; null where it fits both. */
  memoryFault(plan: PlanOfJob): string | null {
    const limit = this.job.cluster.memoryPerGpuBytes;
    const { bytes } = this.memory(plan);
    if (bytes > limit)
      return `needs ${formatBytes(bytes)}, ${formatBytes(bytes - limit)} more than the ${formatBytes(limit)} of a GPU`;
    const host = this.hostBytes(plan);
    if (host <= this.hostLimitBytes) return null;
    return `needs ${formatBytes(host)} of its host's memory, of which a rank has ${formatBytes(this.hostLimitBytes)} (cluster.hostMemory over gpusPerNode)`;
  }

  /** Why the search chooses no plan that keeps gate and up in the host's memory; null where it may. */
  get hostFault(): string | null {
    if (this.timeModel !== "executor" || this.memoryModel !== "executor")
      return "only our own models of memory and time know it";
    const unpriced = unpricedHost(this, { gateUp: "host" });
    if (unpriced !== null) return unpriced;
    const { cluster, plan } = this.job;
    if (plan?.gateUp !== undefined && allowedBy(plan.gateUp, "host")) return null;
    if (!usesGpus(cluster))
      return (
        "ranks on processors have no memory but their host's: " +
        "ask for it with plan.gateUp, or give cluster.device: cuda"
      );
    if (cluster.hostMemoryBytes === undefined)
      return "the cluster does not say how much memory its hosts have: give cluster.hostMemory, or ask for it with plan.gateUp";
    return null;
  }

  /** The job as its space is searched: without what {@link hostFault} excludes. */
  get searchedJob(): JobSpec {
    const { job } = this;
    if (this.hostFault === null) return job;
    const gateUp = GATE_UP.filter((one) => one !== "host" && allowedBy(job.plan?.gateUp, one));
    return { ...job, plan: { ...job.plan, gateUp } };
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
      ...(plan.gateUp === undefined ? {} : { gateUp: plan.gateUp }),
      reduceEveryMicroBatch: plan.gradientSharding > 1,
      boundarySeconds: this.boundarySeconds(plan.microBatchSize, plan),
      overlap: plan,
    };
  }

  /** Seconds of one step by cause; null where the published planner has none. */
  timeIfKnown(plan: PlanOfJob): TimeBreakdown | null {
    if (this.timeModel === "published")
      return publishedTime(this.job, plan, publishedScheme(this.job, plan), this.profile);
    return this.timeModel === "paper" ? this.#paperTime(plan) : this.#executorTime(plan);
  }

  /**
   * Seconds of one step by cause.
   * @throws ProblemError `plan-invalid` where the published planner has none.
   */
  time(plan: PlanOfJob): TimeBreakdown {
    const time = this.timeIfKnown(plan);
    if (time !== null) return time;
    throw new ProblemError("plan-invalid", "the published planner leaves this plan out", [
      {
        field: "timeModel",
        value: planLabel(plan),
        message: `${this.profile.name} has no attention of ${plan.microBatchSize} sequences of ${this.job.sequenceLengthTokens} tokens over ${plan.sequenceParallel} ranks, and it knows only what was measured`,
        remedy: "choose another plan, or the time model executor",
      },
    ]);
  }

  #paperTime(plan: PlanOfJob): TimeBreakdown {
    return paperTime(this.job, plan, this.sliceTime(plan.microBatchSize, plan), (op, bytes, size, stride) =>
      this.take(this.#prices.collective(op, bytes, size, stride)),
    );
  }

  #executorTime(plan: PlanOfJob): TimeBreakdown {
    const unpriced = unpricedHost(this, plan);
    if (unpriced !== null)
      throw new ProblemError("plan-invalid", "the profile does not say how fast copies to the host are", [
        {
          field: "plan.gateUp",
          value: "host",
          message: `keeps gate and up in the host's memory, and ${unpriced}`,
          remedy: "give a profile with these rates, or leave gateUp out",
        },
      ]);
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
    const { model, sequenceLengthTokens, precision } = this.job;
    const { device } = this.profile;
    const time = this.time(plan);
    const stepTimeSeconds = totalSeconds(time);
    const ranks = clusterRanks(this.job);
    const tokensPerGpuPerSecond = tokensPerRankPerSecond(this.job, [
      { steps: 1, seconds: stepTimeSeconds, ranks },
    ]);
    const peak =
      PRECISION_BYTES[precision].activationBytes === 4
        ? device.peakFlopsPerSecondFp32
        : device.peakFlopsPerSecondBf16;
    const layers = Math.ceil(model.layers / plan.pipelineParallel);
    const recomputed = recomputedLayers(plan, layers);
    const gateUpAgain = makesGateUpAgain(plan) ? layers - recomputed : 0;
    const keysShare = countedDocuments(this.job)?.keysShare ?? 1;
    const flops = tokenFlops(
      model,
      sequenceLengthTokens,
      { recomputed: recomputed / layers, gateUpAgain: gateUpAgain / layers },
      keysShare,
    );
    const peakOfSlice = sliceRoofline(this.job, { ...plan, sequenceLengthTokens }, device, keysShare);
    const outer =
      plan.pipelineParallel === 1
        ? peakOfSlice.embeddingSeconds + peakOfSlice.headSeconds
        : Math.max(peakOfSlice.embeddingSeconds, peakOfSlice.headSeconds);
    const light =
      plan.microBatches *
      (layers * peakOfSlice.layerSeconds +
        recomputed * peakOfSlice.recomputeSeconds +
        gateUpAgain * peakOfSlice.gateUpSeconds +
        outer);
    const memory = this.memory(plan);
    const host = this.hostBytes(plan);
    return {
      stepTimeSeconds,
      tokensPerGpuPerSecond,
      peakMemoryBytes: memory.bytes,
      memory: memory.lines,
      ...(host > 0 ? { hostMemoryBytes: host } : {}),
      time,
      mfu: (flops.causal * tokensPerGpuPerSecond) / peak,
      mfuFullAttention: (flops.fullAttention * tokensPerGpuPerSecond) / peak,
      hfu: (flops.executed * tokensPerGpuPerSecond) / peak,
      speedOfLight: (light + this.shardTime(plan, plan).updateRooflineSeconds) / stepTimeSeconds,
    };
  }
}
