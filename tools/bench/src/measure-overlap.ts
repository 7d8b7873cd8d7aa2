import { join } from "node:path";
import { planLabel, quantile, type JobSpec, type Plan } from "@internevo/domain";
import { hiddenCommunication, type HiddenCommunication } from "./hidden.ts";
import { datasetOf, observePlan, type ObserveOptions, type Place } from "./measure.ts";
import { readTimeline, betweenNorms } from "./timeline.ts";

/** Granularities of overlap, as in the paper's appendix "Implementation Detail: Selective Overlap". */
export const GRANULARITIES = [
  { id: "none", name: "none", forward: "none", backward: "none" },
  { id: "block", name: "by blocks", forward: "block", backward: "block" },
  { id: "intra-layer", name: "always intra-layer", forward: "intra-layer", backward: "intra-layer" },
  {
    id: "selective",
    name: "selective (inter-layer forward, intra-layer backward)",
    forward: "inter-layer",
    backward: "intra-layer",
  },
] as const;
export type GranularityId = (typeof GRANULARITIES)[number]["id"];

/** A way to shard over all ranks whose collectives overlap can hide. */
export interface Sharded {
  readonly name: string;
  readonly plan: (ranks: number, sequences: number) => Omit<Plan, "forwardOverlap" | "backwardOverlap">;
}

const rest = { recompute: false, pipelineParallel: 1, tensorParallel: 1 } as const;

export const SHARDED: readonly Sharded[] = [
  {
    name: "parameters over data ranks (ZeRO-3)",
    plan: (ranks, n) => ({
      ...rest,
      microBatchSize: 1,
      microBatches: n / ranks,
      dataParallel: ranks,
      sequenceParallel: 1,
      parameterSharding: ranks,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    }),
  },
  {
    name: "gradients over data ranks (ZeRO-2)",
    plan: (ranks, n) => ({
      ...rest,
      microBatchSize: 1,
      microBatches: n / ranks,
      dataParallel: ranks,
      sequenceParallel: 1,
      parameterSharding: 1,
      gradientSharding: ranks,
      optimizerStateSharding: ranks,
    }),
  },
  {
    name: "parameters over sequence ranks",
    plan: (ranks, n) => ({
      ...rest,
      microBatchSize: 2,
      microBatches: n / 2,
      dataParallel: 1,
      sequenceParallel: ranks,
      parameterSharding: ranks,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    }),
  },
  {
    name: "tensor ranks (Megatron)",
    plan: (ranks, n) => ({
      ...rest,
      tensorParallel: ranks,
      microBatchSize: 2,
      microBatches: n / 2,
      dataParallel: 1,
      sequenceParallel: ranks,
      parameterSharding: 1,
      gradientSharding: 1,
      optimizerStateSharding: 1,
    }),
  },
];

export interface OverlapRow {
  readonly sharding: string;
  readonly sequenceLengthTokens: number;
  readonly plan: string;
  readonly granularities: readonly {
    readonly id: GranularityId;
    /** Median of each round, and of all of them. */
    readonly rounds: readonly number[];
    readonly stepSeconds: number;
    readonly memoryBytes: number;
    /** Mean over the recorded steps, of the rank that hides least; null without overlap. */
    readonly hidden: (HiddenCommunication & { readonly share: number }) | null;
  }[];
}

export interface OverlapOptions extends Place {
  readonly directory: string;
  readonly rounds: number;
  readonly steps: number;
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Mean of several steps of a rank. */
function meanOf(list: readonly HiddenCommunication[]): HiddenCommunication {
  const waits = [...new Set(list.flatMap((each) => Object.keys(each.waits)))].map(
    (key) => [key, mean(list.map((each) => each.waits[key] ?? 0))] as const,
  );
  const of = (field: Exclude<keyof HiddenCommunication, "waits">): number =>
    mean(list.map((each) => each[field]));
  return {
    laneSeconds: of("laneSeconds"),
    workingSeconds: of("workingSeconds"),
    couldSeconds: of("couldSeconds"),
    hiddenSeconds: of("hiddenSeconds"),
    ownCommunicationSeconds: of("ownCommunicationSeconds"),
    waits: Object.fromEntries(waits.sort((a, b) => b[1] - a[1])),
  };
}

const shareOf = ({ hiddenSeconds, couldSeconds }: HiddenCommunication): number =>
  couldSeconds === 0 ? 1 : hiddenSeconds / couldSeconds;

interface Run {
  readonly seconds: readonly number[];
  /** Losses and gradient norms of all steps, which no granularity may change by a bit. */
  readonly told: string;
  readonly memoryBytes: number;
  readonly hidden: readonly (readonly HiddenCommunication[])[] | null;
}

async function runOnce(
  options: Pick<ObserveOptions, "spec" | "plan" | "dataset">,
  granularity: (typeof GRANULARITIES)[number],
  { directory, steps, clustersFile, signal }: OverlapOptions,
): Promise<Run> {
  const path = join(directory, "timeline.json");
  const { forward, backward } = granularity;
  // The first step is not counted; of the recorded ones the first only says where the next begins.
  const observed = await observePlan({
    ...options,
    directory,
    steps: 1 + steps,
    timeline: { path, firstStep: 1, steps: 1 + steps },
    plan: {
      ...options.plan,
      forwardOverlap: forward === "intra-layer" ? "none" : forward,
      backwardOverlap: backward,
    },
    ...(forward === "intra-layer" ? { forwardOverlap: forward } : {}),
    ...(clustersFile ? { clustersFile } : {}),
    ...(signal ? { signal } : {}),
  });
  if ("code" in observed) throw new Error(`${planLabel(options.plan)}: ${observed.message}`);
  const seconds = observed.steps.slice(1).map((step) => step.stepTimeSeconds);
  const hidden =
    forward === "none"
      ? null
      : (await readTimeline(path)).map((events) =>
          betweenNorms(events).map((step) => hiddenCommunication(step, options.spec.model.layers)),
        );
  const told = observed.steps.map((step) => `${step.loss} ${step.gradientNorm}`).join(", ");
  return {
    seconds,
    told,
    memoryBytes: Math.max(...observed.steps.map((step) => step.peakMemoryBytes)),
    hidden,
  };
}

/** Runs one plan with every granularity, in turns. */
export async function measureOverlap(
  spec: JobSpec,
  sharded: Sharded,
  options: OverlapOptions,
): Promise<OverlapRow> {
  const ranks = spec.cluster.nodes * spec.cluster.gpusPerNode;
  const plan: Plan = {
    ...sharded.plan(ranks, spec.globalBatchTokens / spec.sequenceLengthTokens),
    forwardOverlap: "none",
    backwardOverlap: "none",
  };
  const dataset = await datasetOf(spec, options.directory);
  const runs = new Map<GranularityId, Run[]>(GRANULARITIES.map(({ id }) => [id, []]));
  for (let round = 0; round < options.rounds; round += 1) {
    for (const granularity of round % 2 === 0 ? GRANULARITIES : GRANULARITIES.toReversed())
      runs.get(granularity.id)?.push(await runOnce({ spec, plan, dataset }, granularity, options));
  }
  const told = new Map([...runs].flatMap(([id, list]) => list.map((run) => [run.told, id] as const)));
  if (told.size > 1)
    throw new Error(
      `${sharded.name}, ${spec.sequenceLengthTokens} tokens: granularities give different losses or norms: ${[...told].map(([values, id]) => `${id}: ${values}`).join("; ")}`,
    );
  const granularities = GRANULARITIES.map(({ id }): OverlapRow["granularities"][number] => {
    const own = runs.get(id) ?? [];
    const rounds = own.map(({ seconds }) => quantile(seconds, 0.5));
    // The mean over all recorded steps of each rank; the rank that hides the least of what it could.
    const byRank = Array.from({ length: ranks }, (_, rank) =>
      own.flatMap(({ hidden }) => hidden?.[rank] ?? []),
    );
    const least = byRank.every((list) => list.length === 0)
      ? null
      : byRank.map(meanOf).reduce((worst, each) => (shareOf(each) < shareOf(worst) ? each : worst));
    return {
      id,
      rounds,
      stepSeconds: quantile(rounds, 0.5),
      memoryBytes: Math.max(...own.map(({ memoryBytes }) => memoryBytes)),
      hidden: least && { ...least, share: shareOf(least) },
    };
  });
  for (const { id, stepSeconds, hidden } of granularities)
    console.error(
      `${sharded.name}, ${spec.sequenceLengthTokens} tokens, ${id}: ${(stepSeconds * 1e3).toFixed(0)} ms${hidden ? `, ${(hidden.share * 100).toFixed(0)}% of what could be hidden` : ""}`,
    );
  return {
    sharding: sharded.name,
    sequenceLengthTokens: spec.sequenceLengthTokens,
    plan: planLabel(plan),
    granularities,
  };
}
