import type { Collective, ModuleShape, Placement, Profile } from "@internevo/domain";
import {
  ASSUMED,
  GPU_NAMES,
  GPUS,
  SOURCES,
  usableBytes,
  type AssumptionName,
  type EstimatedGpu,
  type FigureName,
} from "./estimated-gpus.ts";
import { isProduct, workOf } from "./work.ts";

/*
 * Profiles of GPUs that nobody measured here, from what is published of them. Every time is
 *
 *   latency + the longest of (work / (share × rate))
 *
 * with the figures of `gpus/gpus.json`; docs/reference/estimated-gpus.md has formula and figures. The 10th
 * percentile takes every figure at the good end of its uncertainty, the 90th at the bad end, so that the ranges
 * of step times are as wide as what is not known.
 */

const PREFIX = "estimated:";
/** Nodes up to which curves are estimated; more are extrapolated, as from measurements. */
const MOST_NODES = 128;
/** What a profile may hold. */
const MOST_SECONDS = 86_400;

/** Which end of the uncertainty of all figures. */
type End = "good" | "stated" | "bad";

/** The figures of a GPU and its node at one end of their uncertainty. */
class Figures {
  readonly #gpu: EstimatedGpu;
  readonly #end: End;

  constructor(gpu: EstimatedGpu, end: End) {
    this.#gpu = gpu;
    this.#end = end;
  }

  #at({ value, uncertaintyPercent }: { value: number; uncertaintyPercent: number }, more: End): number {
    if (this.#end === "stated") return value;
    const times = 1 + uncertaintyPercent / 100;
    return this.#end === more ? value * times : value / times;
  }

  /** A rate, of which more is better. */
  rate(name: FigureName): number {
    return this.#at(this.#gpu.figures[name], "good");
  }

  /** A share of a rate: at most all of it. */
  share(name: FigureName): number {
    return Math.min(1, this.rate(name));
  }

  assumedShare(name: AssumptionName): number {
    return Math.min(1, this.#at(ASSUMED[name], "good"));
  }

  /** What costs time, of which less is better. */
  cost(name: AssumptionName): number {
    return this.#at(ASSUMED[name], "bad");
  }

  /** Seconds of a module. */
  moduleSeconds(shape: ModuleShape): number {
    const { flops, bytes } = workOf(shape);
    const memory =
      bytes / (this.rate("memoryBandwidthBytesPerSecond") * this.assumedShare("memoryEfficiency"));
    const kernel = this.cost("kernelSeconds");
    if (!isProduct(shape)) return kernel + memory;
    const peak = this.rate(shape.precision === "fp32" ? "peakFp32FlopsPerSecond" : "peakBf16FlopsPerSecond");
    if (shape.module !== "attention")
      return kernel + Math.max(flops / (peak * this.share("productEfficiency")), memory);
    const share = this.share(
      shape.pass === "forward" ? "attentionForwardEfficiency" : "attentionBackwardEfficiency",
    );
    const shortness = 1 + this.cost("attentionHalfTokens") / shape.sequence;
    return kernel + Math.max((shortness * flops) / (peak * share), memory);
  }

  /** Bytes a second that a rank sends to the others of a group inside a node. */
  #linkRate(ranks: number): number {
    const all = this.rate("linkBytesPerSecond") * this.share("linkEfficiency");
    // Where each pair has links of its own, a smaller group has fewer of them.
    return this.#gpu.nodeTopology === "mesh"
      ? (all * (ranks - 1)) / (this.#gpu.figures.gpusPerNode.value - 1)
      : all;
  }

  /** Seconds of a collective of `bytes`, the full tensor, over `perNode` ranks of each of `nodes` nodes. */
  collectiveSeconds(op: Collective, bytes: number, perNode: number, nodes: number): number {
    const ranks = perNode * nodes;
    const network = this.rate("networkBytesPerSecond") * this.assumedShare("networkEfficiency");
    const latency =
      nodes > 1
        ? this.cost("networkLatencySeconds") * (1 + Math.log2(nodes) / 4)
        : this.cost("linkLatencySeconds") * (1 + Math.log2(ranks) / 4);
    const { inside, between } = trafficOf(op, bytes, perNode, nodes);
    const seconds = Math.max(perNode > 1 ? inside / this.#linkRate(perNode) : 0, between / network);
    return latency * (op === "all-reduce" ? 2 : 1) + seconds;
  }
}

/** What each rank sends inside its node, and over its part of the network. */
function trafficOf(
  op: Collective,
  bytes: number,
  perNode: number,
  nodes: number,
): { readonly inside: number; readonly between: number } {
  const ranks = perNode * nodes;
  switch (op) {
    case "all-gather":
    case "reduce-scatter":
      return { inside: (bytes * (ranks - 1)) / ranks, between: (bytes * (nodes - 1)) / nodes / perNode };
    case "all-reduce":
      return {
        inside: (2 * bytes * (ranks - 1)) / ranks,
        between: (2 * bytes * (nodes - 1)) / nodes / perNode,
      };
    case "all-to-all":
      return { inside: (bytes * (perNode - 1)) / ranks, between: (bytes * (ranks - perNode)) / ranks };
    case "broadcast":
      return { inside: bytes, between: nodes > 1 ? bytes / perNode : 0 };
    case "point-to-point":
      return { inside: nodes > 1 ? 0 : bytes, between: nodes > 1 ? bytes : 0 };
  }
}

const powers = (from: number, to: number, step = 1): number[] =>
  Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, k) => 2 ** (from + k * step));

/** Widths of the shapes that stand for all others: the cost model reads others by their work. */
const WIDTH = 4096;
const VOCABULARY = 32_768;
/** Whose attention has curves of its own; others are read by their work. */
const HEAD_SIZES = [64, 128] as const;

/** Shapes over as many sizes as curves need. */
function* shapes(): Generator<ModuleShape> {
  for (const precision of ["bf16", "fp32"] as const) {
    for (const pass of ["forward", "backward"] as const) {
      for (const rows of powers(0, 20))
        yield { module: "linear", pass, precision, rows, inputs: WIDTH, outputs: WIDTH };
      for (const headSize of HEAD_SIZES)
        for (const sequence of powers(7, 22))
          for (const batch of powers(0, 8, 2))
            yield { module: "attention", pass, precision, batch, sequence, heads: 1, kvHeads: 1, headSize };
      for (const rows of powers(0, 22, 2)) {
        for (const module of ["rmsnorm", "swiglu", "residual-add"] as const)
          yield { module, pass, precision, rows, width: WIDTH };
        yield { module: "rope", pass, precision, rows, heads: WIDTH / 128, headSize: 128 };
        yield { module: "embedding", pass, precision, rows, width: WIDTH, vocabulary: VOCABULARY };
      }
    }
    for (const rows of powers(0, 20, 2))
      yield {
        module: "head-loss",
        pass: "forward-backward",
        precision,
        rows,
        width: WIDTH,
        vocabulary: VOCABULARY,
      };
    for (const elements of powers(10, 38, 2))
      for (const module of ["adamw", "squared-norm", "accumulate"] as const)
        yield { module, pass: "update", precision, elements };
  }
}

/** A time and both ends of what it may be; undefined where a profile has no such times. */
function estimate(secondsAt: (end: End) => number) {
  const [p10Seconds, medianSeconds, p90Seconds] = [secondsAt("good"), secondsAt("stated"), secondsAt("bad")];
  return p90Seconds > MOST_SECONDS
    ? []
    : [{ medianSeconds, p10Seconds, p90Seconds, estimated: true as const }];
}

const OPERATIONS = [
  "all-gather",
  "reduce-scatter",
  "all-reduce",
  "all-to-all",
  "broadcast",
  "point-to-point",
] as const satisfies readonly Collective[];

/** Groups that are estimated: parts of a node, one rank a node, whole nodes. */
function groups(gpusPerNode: number): { placement: Placement; perNode: number; nodes: number }[] {
  const inside = powers(1, Math.log2(gpusPerNode)).map((perNode) => ({ perNode, nodes: 1 }));
  const nodes = powers(1, Math.log2(MOST_NODES));
  return [
    ...inside.map((group) => ({ placement: "intra-node" as const, ...group })),
    ...nodes.map((count) => ({ placement: "inter-node" as const, perNode: 1, nodes: count })),
    ...nodes.map((count) => ({ placement: "mixed" as const, perNode: gpusPerNode, nodes: count })),
  ];
}

function made(key: string, gpu: EstimatedGpu): Profile {
  const at: Readonly<Record<End, Figures>> = {
    good: new Figures(gpu, "good"),
    stated: new Figures(gpu, "stated"),
    bad: new Figures(gpu, "bad"),
  };
  const { figures } = gpu;
  const gpusPerNode = figures.gpusPerNode.value;
  const hostBytesPerSecond = figures.hostLinkBytesPerSecond.value * ASSUMED.hostCopyEfficiency.value;
  const used = [...new Set(Object.values(figures).flatMap((one) => ("source" in one ? [one.source] : [])))];
  return {
    schemaVersion: 1,
    name: `${PREFIX}${key}`,
    cluster: { nodes: MOST_NODES, gpusPerNode, memoryPerGpuBytes: usableBytes(gpu) },
    device: {
      name: `${gpu.name}, estimated`,
      kind: "gpu",
      peakFlopsPerSecondFp32: figures.peakFp32FlopsPerSecond.value,
      peakFlopsPerSecondBf16: figures.peakBf16FlopsPerSecond.value,
      memoryBandwidthBytesPerSecond: figures.memoryBandwidthBytesPerSecond.value,
      toHostBytesPerSecond: hostBytesPerSecond,
      toDeviceBytesPerSecond: hostBytesPerSecond,
      runtimeBytes: ASSUMED.runtimeBytes.value,
    },
    executor: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
    collectives: groups(gpusPerNode).flatMap(({ placement, perNode, nodes }) =>
      OPERATIONS.filter((op) => op !== "point-to-point" || perNode * nodes === 2).map((op) => ({
        op,
        groupSize: perNode * nodes,
        placement,
        points: powers(10, 34, 2).flatMap((bytes) =>
          estimate((end) => at[end].collectiveSeconds(op, bytes, perNode, nodes)).map((time) => ({
            bytes,
            ...time,
          })),
        ),
      })),
    ),
    modules: [...shapes()].flatMap((shape) =>
      estimate((end) => at[end].moduleSeconds(shape)).map((time) => ({ shape, ...time })),
    ),
    overlaps: (["all-gather", "reduce-scatter"] as const).map((op) => ({
      op,
      groupSize: gpusPerNode,
      slowdown: ASSUMED.overlapSlowdown.value,
      estimated: true as const,
    })),
    provenance: {
      source: `Estimated, not measured, from published figures: ${used.map((one) => SOURCES[one]?.title ?? one).join("; ")}. Each figure, and what is assumed: docs/reference/estimated-gpus.md.`,
      measuredAt: null,
      versions: {},
      command: null,
      notes: [
        "The ends of each time take every figure at the ends of its stated uncertainty, all to one side.",
        `A node has ${gpusPerNode} GPUs, and each of them ${figures.networkBytesPerSecond.value / 1e9} GB/s of the network.`,
      ],
    },
  };
}

/** Names of the estimated profiles. */
export const ESTIMATED_PROFILES: readonly string[] = GPU_NAMES.map((key) => `${PREFIX}${key}`);

/** The name of the profile of a GPU: of `h100` `estimated:h100`. */
export const estimatedProfileName = (gpu: string): string => `${PREFIX}${gpu}`;

const known = new Map<string, Profile>();

/** An estimated profile by its name; undefined where there is none. */
export function findEstimatedProfile(name: string): Profile | undefined {
  const key = name.startsWith(PREFIX) ? name.slice(PREFIX.length).toLowerCase() : "";
  if (!Object.hasOwn(GPUS, key)) return undefined;
  let profile = known.get(key);
  if (!profile) known.set(key, (profile = made(key, GPUS[key] as EstimatedGpu)));
  return profile;
}
