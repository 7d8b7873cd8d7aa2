import {
  ProblemError,
  type JobSpec,
  type ModuleShape,
  type Profile,
  type TimeBreakdown,
} from "@internevo/domain";
import {
  ELEMENT_BYTES,
  layerWeights,
  productWeights,
  publishedParameters,
  type PublishedPlan,
  type PublishedScheme,
} from "./published-plan.ts";

/**
 * Bytes a second of its network, from utils/common.py (`BW`): constants of its A800 cluster, not of a
 * profile.
 */
const NODE_BANDWIDTH = 150 * 2 ** 30;
const INTER_NODE_BANDWIDTH = 100 * 2 ** 30;
/** Ranks that it takes to be on one node, and groups that share the links of one. */
const NODE_RANKS = 8;

/**
 * `wp_penalty_coefficient` of main.py: the part of the shorter that gathers and products lose to each other.
 */
export const PUBLISHED_PENALTY = 0.2;
/** The same of the later version (simulation_train_formulaic.py of feat/new_split_pg). */
export const LATER_PENALTY = 0.1;

/**
 * `overlap_wdp`: of the reduction of gradients what is left over whole buckets of so many elements is not
 * hidden.
 */
const BUCKET_ELEMENTS = 512 * 1024 * 1024;

/** Ranks of a group: how many, and how far apart. */
interface Group {
  readonly size: number;
  readonly stride: number;
}

/** `get_scale_ratio` of ab_cost_model.py: how much larger groups lose between nodes. */
function scalePenalty(size: number): number {
  const step = [16, 32, 64, 256, 512].findIndex((most) => size <= most);
  return step === -1 ? 1.5 : 1 + step / 10;
}

type Operation = "all-to-all" | "all-reduce" | "one-way";

/**
 * `coll_algo_bw` of ab_cost_model.py: bytes that a rank passes on. All-gather, reduce-scatter and broadcast
 * are alike.
 */
function passedOn(op: Operation, bytes: number, size: number): number {
  if (op === "all-reduce") return (2 * bytes * (size - 1)) / size;
  if (op === "all-to-all" && size > 8) return 8 * (bytes / size) * (size - 8 / size);
  return (bytes * (size - 1)) / size;
}

/** `check_pg_is_intra` of parallel_context.py. */
const isWithinNode = ({ size, stride }: Group): boolean =>
  size <= NODE_RANKS && (size - 1) * stride < NODE_RANKS;

/** `get_comm_cost_logic` of ab_cost_model.py: groups that share a node's links wait for each other. */
function collectiveSeconds(op: Operation, bytes: number, group: Group): number {
  const { size, stride } = group;
  if (size <= 1) return 0;
  if (isWithinNode(group)) return passedOn(op, bytes, size) / NODE_BANDWIDTH;
  const shared = bytes * Math.min(stride, NODE_RANKS);
  return passedOn(op, shared, size) / (INTER_NODE_BANDWIDTH / scalePenalty(size));
}

/** A message to the next stage: p2p counts all bytes, at the bandwidth of a pair. */
function messageSeconds(bytes: number, stages: Group): number {
  if (isWithinNode(stages)) return bytes / NODE_BANDWIDTH;
  return (bytes * Math.min(stages.stride, NODE_RANKS)) / INTER_NODE_BANDWIDTH;
}

interface Measured {
  readonly complexity: number;
  readonly seconds: number;
}

const attentionKey = (batch: number, sequence: number, width: number, pass: string): string =>
  `${batch} ${sequence} ${width} ${pass}`;

/** What was measured of products and attention, as the published planner reads it. */
class PublishedMeasurements {
  readonly #products: readonly Measured[];
  readonly #attention = new Map<string, number>();

  constructor({ modules, name }: Profile) {
    const products = new Map<number, number>();
    for (const { shape, medianSeconds } of modules) {
      if (shape.precision !== "bf16") continue;
      if (shape.module === "linear" && shape.pass === "forward")
        products.set(complexityOf(shape), medianSeconds);
      if (shape.module === "attention")
        this.#attention.set(
          attentionKey(shape.batch, shape.sequence, shape.heads * shape.headSize, shape.pass),
          medianSeconds,
        );
    }
    this.#products = [...products]
      .map(([complexity, seconds]) => ({ complexity, seconds }))
      .sort((a, b) => a.complexity - b.complexity);
    if (products.size === 0)
      throw new ProblemError("profile-invalid", `profile ${name} has no bf16 products`, [
        {
          field: "timeModel",
          value: "published",
          message: "reads products and attention in bf16, and the profile has none",
          remedy: "use a profile of GPUs, such as a800-128, or leave timeModel out",
        },
      ]);
  }

  /**
   * `predict_cost` of predict_cost_model.py: the straight line between measured, flat below, proportional
   * above.
   */
  product(complexity: number): number {
    const list = this.#products;
    const [first, last] = [list[0] as Measured, list.at(-1) as Measured];
    if (complexity <= first.complexity) return first.seconds;
    if (complexity >= last.complexity) return (last.seconds * complexity) / last.complexity;
    const at = list.findIndex((one) => one.complexity >= complexity);
    const [low, high] = [list[at - 1] as Measured, list[at] as Measured];
    const part = (complexity - low.complexity) / (high.complexity - low.complexity);
    return low.seconds + part * (high.seconds - low.seconds);
  }

  /** Exactly what was measured (`gen_store_key` of multi_head_attn.py); undefined where it was not. */
  attention(
    batch: number,
    sequence: number,
    width: number,
    pass: "forward" | "backward",
  ): number | undefined {
    return this.#attention.get(attentionKey(batch, sequence, width, pass));
  }
}

/** Products: 2 · rows · inputs · outputs, as the linear benchmark counts. */
const complexityOf = ({
  rows,
  inputs,
  outputs,
}: Pick<Extract<ModuleShape, { module: "linear" }>, "rows" | "inputs" | "outputs">): number =>
  2 * rows * inputs * outputs;

const measurements = new WeakMap<Profile, PublishedMeasurements>();

function measurementsOf(profile: Profile): PublishedMeasurements {
  let known = measurements.get(profile);
  if (!known) measurements.set(profile, (known = new PublishedMeasurements(profile)));
  return known;
}

type PublishedJob = Pick<JobSpec, "model" | "sequenceLengthTokens" | "cluster">;

/** Seconds of one layer and micro-batch, forward and backward. */
interface PublishedLayer {
  readonly productSeconds: number;
  readonly recomputedProductSeconds: number;
  readonly attentionSeconds: number;
  readonly recomputedAttentionSeconds: number;
  readonly sequenceSeconds: number;
  readonly gatherSeconds: number;
}

/**
 * All-to-alls, or gathers and scatters of tensor ranks, of a layer (comm.py: `communication_isp`, `_msp`,
 * `_fsp`).
 */
function sequenceSeconds(
  { model, sequenceLengthTokens }: PublishedJob,
  { sequenceParallel, microBatchSize, recompute }: PublishedPlan,
  scheme: PublishedScheme,
): number {
  const group = { size: sequenceParallel, stride: 1 };
  const bytes = ELEMENT_BYTES * sequenceLengthTokens * microBatchSize * model.hiddenSize;
  const forwards = 4 * (recompute ? 2 : 1);
  if (scheme === "isp")
    return (forwards + 4) * collectiveSeconds("all-to-all", bytes / sequenceParallel, group);
  return (forwards + (scheme === "fsp" ? 6 : 4)) * collectiveSeconds("one-way", bytes, group);
}

function layerOf(
  job: PublishedJob,
  plan: PublishedPlan,
  scheme: PublishedScheme,
  measured: PublishedMeasurements,
): PublishedLayer | null {
  const { model, sequenceLengthTokens } = job;
  const { microBatchSize, sequenceParallel } = plan;
  const tokens = (microBatchSize * sequenceLengthTokens) / sequenceParallel;
  const { queryKeyValue, attentionOutput, feedForward } = productWeights(model);
  const products = [queryKeyValue, attentionOutput, feedForward, feedForward, feedForward].reduce(
    (sum, weights) => sum + measured.product(2 * tokens * weights),
    0,
  );
  const width = Math.floor(model.hiddenSize / sequenceParallel);
  const forward = measured.attention(microBatchSize, sequenceLengthTokens, width, "forward");
  const backward = measured.attention(microBatchSize, sequenceLengthTokens, width, "backward");
  if (forward === undefined || backward === undefined) return null;
  const again = plan.recompute ? 1 : 0;
  return {
    productSeconds: 3 * products,
    recomputedProductSeconds: again * products,
    attentionSeconds: forward + backward,
    recomputedAttentionSeconds: again * forward,
    sequenceSeconds: sequenceSeconds(job, plan, scheme),
    // Two all-gathers and a reduce-scatter of a layer, also where it is recomputed.
    gatherSeconds:
      3 *
      collectiveSeconds("one-way", ELEMENT_BYTES * layerWeights(model), {
        size: plan.parameterSharding,
        stride: 1,
      }),
  };
}

/** What the step ends with: reduction of gradients, then updated parameters to all (`comm_dp_cost`). */
function endOfStep(
  { model }: PublishedJob,
  plan: PublishedPlan,
  scheme: PublishedScheme,
): { reduceSeconds: number; updateSeconds: number } {
  const { layers, ends } = publishedParameters(model, plan);
  const { parameterSharding: ps, optimizerStateSharding: oss, sequenceParallel: sp } = plan;
  const data = { size: plan.dataParallel, stride: sp };
  // s_oss broadcasts of a shard each, one after another.
  const sent = (bytes: number, stride: number): number =>
    oss * collectiveSeconds("one-way", bytes / oss, { size: oss, stride });
  if (scheme !== "isp") {
    const bytes = ELEMENT_BYTES * (layers + ends);
    return { reduceSeconds: collectiveSeconds("all-reduce", bytes, data), updateSeconds: sent(bytes, sp) };
  }
  const replicas = { size: (plan.dataParallel * sp) / ps, stride: ps };
  const left = (elements: number, group: Group): number =>
    collectiveSeconds("all-reduce", ELEMENT_BYTES * (elements % BUCKET_ELEMENTS), group);
  return {
    reduceSeconds: left(layers, replicas) + left(ends, data),
    updateSeconds: Math.max(
      sent(ELEMENT_BYTES * layers, ps),
      2 * collectiveSeconds("one-way", ELEMENT_BYTES * ends, data),
    ),
  };
}

/**
 * Seconds of a step by the published planner (`cal_cost` of noz3_simulator.py); null where it leaves a plan
 * out, because its attention was not measured. A layer takes max(products, gathers) + c · min of both,
 * attention and the communication of its sequence in full. Embedding, head, loss and optimizer take no time.
 */
export function publishedTime(
  job: PublishedJob,
  plan: PublishedPlan,
  scheme: PublishedScheme,
  profile: Profile,
  penalty: number = PUBLISHED_PENALTY,
): TimeBreakdown | null {
  const layer = layerOf(job, plan, scheme, measurementsOf(profile));
  if (layer === null) return null;
  const { pipelineParallel: pp, microBatches: n } = plan;
  const products = layer.productSeconds + layer.recomputedProductSeconds;
  const exposed =
    plan.parameterSharding > 1
      ? Math.max(0, layer.gatherSeconds - products) + penalty * Math.min(products, layer.gatherSeconds)
      : 0;
  const passes = n * Math.ceil(job.model.layers / pp);
  const recomputed = layer.recomputedProductSeconds + layer.recomputedAttentionSeconds;
  const kept = layer.productSeconds + layer.attentionSeconds;
  const whole = kept + recomputed + exposed + layer.sequenceSeconds;
  const message =
    ELEMENT_BYTES *
    Math.floor(job.sequenceLengthTokens / plan.sequenceParallel) *
    plan.microBatchSize *
    job.model.hiddenSize;
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  const { reduceSeconds, updateSeconds } = endOfStep(job, plan, scheme);
  return {
    computeSeconds: passes * kept,
    recomputeSeconds: passes * recomputed,
    sequenceCommunicationSeconds: passes * layer.sequenceSeconds,
    parameterCommunicationSeconds: passes * exposed,
    gradientCommunicationSeconds: reduceSeconds,
    pipelineBubbleSeconds: (pp - 1) * (passes / n) * whole,
    pipelineCommunicationSeconds:
      pp > 1 ? (2 * Math.min(pp, n) + n - 1) * messageSeconds(message, { size: pp, stride: ranks / pp }) : 0,
    updateSeconds,
  };
}
