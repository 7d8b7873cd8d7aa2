import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CostModel, partsOf, RECOMPUTED_UNITS, UNIT_PRODUCTS } from "@internevo/cost-model";
import {
  planLabel,
  quantile,
  recomputedLayers,
  stepsOf,
  type JobSpec,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { readTimeline } from "@internevo/profiling";
import { passSegment, SEGMENTS, stepParts, type Segment, type StepParts } from "@internevo/profiles";
import { overlayTraces, simulateStep, toTrace, type MeasuredEvent } from "@internevo/simulator";
import { datasetOf, observePlan, type Place } from "./measure.ts";

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * A step of a plan by the kinds of segments of a measured timeline, as predicted; of a pipeline the mean over
 * its stages.
 */
export function predictedParts(costs: CostModel, plan: Plan): StepParts {
  const { layers: all } = costs.job.model;
  const slice = costs.sliceTime(plan.microBatchSize, plan);
  const time = costs.time(planOfJob(plan, costs.job));
  const parts = partsOf(slice);
  const n = plan.microBatches;
  const pp = plan.pipelineParallel;
  const layers = all / pp;
  // What is recomputed runs the forward pass again, up to the products that are kept.
  const again = recomputedLayers(plan, Math.ceil(layers)) * (layers / Math.ceil(layers));
  const forward = (seconds: number): number => n * (layers + again) * seconds;
  const backward = (seconds: number): number => n * layers * seconds;
  const update = time.updateSeconds;
  const every = plan.gradientSharding > 1 || plan.backwardOverlap !== "none";
  const passes =
    n *
    (layers * (slice.forwardSeconds + slice.backwardSeconds) +
      (slice.embeddingSeconds + slice.headSeconds) / pp);
  const staged = pp === 1 ? Math.max(0, time.computeSeconds - passes) : 0;
  return {
    ...Object.fromEntries(
      UNIT_PRODUCTS.map((name, unit) => {
        const seconds = parts.forward[unit] as number;
        return [
          passSegment("forward", name),
          RECOMPUTED_UNITS.includes(unit) ? forward(seconds) : n * layers * seconds,
        ];
      }),
    ),
    "forward attention": forward(parts.forwardAttention),
    "forward communication":
      n * layers * parts.forwardCommunication + n * again * slice.recomputeCommunicationSeconds,
    ...Object.fromEntries(
      UNIT_PRODUCTS.map((name, unit) => [
        passSegment("backward", name),
        backward(parts.backward[unit] as number),
      ]),
    ),
    "backward attention": backward(parts.backwardAttention),
    "backward communication": backward(parts.backwardCommunication),
    embedding: (n * parts.embedding) / pp,
    "embedding communication": (n * parts.embeddingCommunication) / pp,
    head: (n * parts.head) / pp,
    "head communication": (n * parts.headCommunication) / pp,
    // A timeline has no name for what is waited of copies to the host: it is between the others.
    "parameters and gradients":
      (time.hostCopySeconds ?? 0) +
      time.parameterCommunicationSeconds +
      staged +
      (every ? time.gradientCommunicationSeconds : 0),
    pipeline: time.pipelineBubbleSeconds + time.pipelineCommunicationSeconds,
    "begin of the step": 0,
    "reduction at the end": every ? 0 : time.gradientCommunicationSeconds,
    update,
  };
}

export interface SegmentComparison {
  readonly segment: Segment;
  readonly predictedSeconds: number;
  /** Mean over the ranks, median over the steps. */
  readonly measuredSeconds: number;
}

export interface TimelineComparison {
  readonly job: string;
  readonly plan: string;
  readonly predictedSeconds: number;
  readonly measuredSeconds: number;
  readonly segments: readonly SegmentComparison[];
}

export interface TimelineOptions extends Place {
  readonly directory: string;
  readonly steps: number;
  /** Where the trace is written that has both. */
  readonly output: string;
}

/**
 * Runs a plan with its timeline, lays the simulated step over every measured one, and says where the time
 * differs.
 */
export async function compareTimeline(
  spec: JobSpec,
  plan: Plan,
  profile: Profile,
  options: TimelineOptions,
): Promise<TimelineComparison> {
  const { directory, steps, output, clustersFile, signal } = options;
  const path = join(directory, "timeline.json");
  const dataset = await datasetOf(spec, directory);
  // The first step is not counted; of the recorded ones the first says where the next begins.
  const observed = await observePlan({
    spec,
    plan,
    dataset,
    directory,
    steps: steps + 2,
    timeline: { path, firstStep: 2, steps: steps + 1 },
    ...(clustersFile ? { clustersFile } : {}),
    ...(signal ? { signal } : {}),
  });
  if ("code" in observed) throw new Error(`${planLabel(plan)}: ${observed.message}`);
  const costs = new CostModel(spec, profile);
  const ranks = (await readTimeline(path)).map(stepsOf);
  const measured =
    ranks[0]?.map((_, step) => ranks.map((own) => stepParts(own[step] as (typeof own)[number]))) ?? [];
  const predicted = predictedParts(costs, plan);
  const segments = SEGMENTS.map((segment): SegmentComparison => ({
    segment,
    predictedSeconds: predicted[segment] as number,
    measuredSeconds: quantile(
      measured.map((each) => mean(each.map((parts) => parts[segment] as number))),
      0.5,
    ),
  }));
  const { traceEvents } = JSON.parse(await readFile(path, "utf8")) as { traceEvents: MeasuredEvent[] };
  const simulated = toTrace(
    simulateStep(costs, planOfJob(plan, costs.job)).spans,
    ranks.length / plan.pipelineParallel,
  );
  await writeFile(
    output,
    JSON.stringify(
      overlayTraces(
        traceEvents,
        simulated,
        (ranks[0] ?? []).map(({ start }) => start * 1e6),
      ),
    ),
  );
  return {
    job: spec.name,
    plan: planLabel(plan),
    predictedSeconds: costs.predict(planOfJob(plan, costs.job)).stepTimeSeconds,
    measuredSeconds: quantile(
      observed.steps.slice(2).map(({ stepTimeSeconds }) => stepTimeSeconds),
      0.5,
    ),
    segments: segments
      .filter(({ predictedSeconds, measuredSeconds }) => predictedSeconds > 0 || measuredSeconds > 0)
      .sort(
        (a, b) =>
          Math.abs(b.measuredSeconds - b.predictedSeconds) - Math.abs(a.measuredSeconds - a.predictedSeconds),
      ),
  };
}
