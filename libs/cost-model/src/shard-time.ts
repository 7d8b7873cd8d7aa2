import { PRECISION_BYTES } from "@internevo/domain";
import type { CollectiveTimes, GroupPlace } from "./collectives.ts";
import { computePrecision } from "./layer.ts";
import type { Sharding } from "./memory.ts";
import { nodesTouched } from "./mesh.ts";
import type { ModuleTimes } from "./modules.ts";
import { fullestStages, unitParameters, type JobShape, type Layout } from "./stage.ts";
import { rooflineSeconds, type DevicePeak } from "./work.ts";

/** Seconds of one collective for each kind of unit. */
export interface UnitTimes {
  readonly layer: number;
  readonly embedding: number;
  readonly head: number;
}

/** Seconds that a choice of s_ps and s_oss costs. Gradient sharding (s_gs) only decides how often `reduce` runs. */
export interface ShardTime {
  /** All-gather of a unit's parameters over the s_ps group. */
  readonly gather: UnitTimes;
  /** Reduce-scatter of a unit's gradients over the s_ps group. */
  readonly scatter: UnitTimes;
  /** Reduce-scatter over the s_oss group, then all-reduce of the piece over the replicas. */
  readonly reduce: UnitTimes;
  /** Gradient norm, optimizer step, all-gather of the updated parameters. */
  readonly updateSeconds: number;
  readonly updateRooflineSeconds: number;
}

const up = (value: number, multiple: number): number => Math.ceil(value / multiple) * multiple;

/** Bytes of the loss and norm sums and of the status word: latency, not size. */
const SCALAR_BYTES = 64;
const SCALAR_REDUCTIONS = 3;

/**
 * Times of one (s_ps, s_oss) on a layout. Sizes are those of the padded units (native/MEMORY.md, "What is communicated"):
 * parameters gathered over s_ps; gradients reduce-scattered over s_ps, then over s_oss, then all-reduced over the R/(s_ps·s_oss)
 * replicas of that piece; updated parameters gathered over s_oss.
 */
export function shardTime(job: JobShape, layout: Layout, sharding: Pick<Sharding, "parameterSharding" | "optimizerStateSharding">, modules: ModuleTimes, collectives: CollectiveTimes, device: DevicePeak): ShardTime {
  const { parameterSharding: ps, optimizerStateSharding: oss } = sharding;
  const { pipelineParallel: pp, dataParallel: dp, tensorParallel: tp, sequenceParallel: sp } = layout;
  const bytes = PRECISION_BYTES[job.precision];
  const gpus = job.cluster.gpusPerNode;
  const place = (size: number, stride: number): GroupPlace => ({ size, nodes: nodesTouched({ size, stride }, gpus) });
  const parameterGroup = place(ps, tp);
  const optimizerGroup = place(oss, tp * ps);
  const replicaGroup = place((dp * sp) / tp / (ps * oss), tp * ps * oss);
  const everyone = place(pp * dp * sp, 1);

  const unit = 64 * ps * oss;
  const parameters = unitParameters(job.model, tp);
  const sizes = { layer: up(parameters.layer, unit), embedding: up(parameters.embedding, unit), head: parameters.head > 0 ? up(parameters.head, unit) : 0 };
  const each = (seconds: (elements: number) => number): UnitTimes => ({ layer: seconds(sizes.layer), embedding: seconds(sizes.embedding), head: seconds(sizes.head) });

  const stage = fullestStages(job.model, pp).map(({ layers, hasEmbedding, hasHead }) => {
    const has = { embedding: hasEmbedding ? 1 : 0, head: hasHead && sizes.head > 0 ? 1 : 0 };
    const elements = (layers * sizes.layer + has.embedding * sizes.embedding + has.head * sizes.head) / (ps * oss);
    const gathered = each((size) => collectives.seconds("all-gather", (size / ps) * bytes.parameterBytes, optimizerGroup));
    return { elements, gather: layers * gathered.layer + has.embedding * gathered.embedding + has.head * gathered.head };
  });
  const precision = computePrecision(job.precision);
  const elements = Math.max(...stage.map((one) => one.elements));
  const kernels = (["squared-norm", "adamw"] as const).map((module) => ({ module, pass: "update" as const, precision, elements }));
  return {
    gather: each((size) => collectives.seconds("all-gather", size * bytes.parameterBytes, parameterGroup)),
    scatter: each((size) => collectives.seconds("reduce-scatter", size * bytes.gradientBytes, parameterGroup)),
    reduce: each(
      (size) =>
        collectives.seconds("reduce-scatter", (size / ps) * bytes.gradientBytes, optimizerGroup) +
        collectives.seconds("all-reduce", (size / (ps * oss)) * bytes.gradientBytes, replicaGroup),
    ),
    updateSeconds:
      kernels.reduce((sum, shape) => sum + modules.seconds(shape), 0) +
      Math.max(...stage.map((one) => one.gather)) +
      SCALAR_REDUCTIONS * collectives.seconds("all-reduce", SCALAR_BYTES, everyone),
    updateRooflineSeconds: kernels.reduce((sum, shape) => sum + rooflineSeconds(shape, device), 0),
  };
}
