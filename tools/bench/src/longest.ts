import { largestSequence } from "@internevo/advisor";
import { planLabel, type Failure, type JobSpec, type Plan, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { datasetOf, observePlan, type Place } from "./measure.ts";
import type { System } from "./systems.ts";

/** The longest sequence for which a system has a plan that fits. */
export interface Longest {
  readonly system: System["id"];
  /** 0: not even one unit fits. */
  readonly sequenceLengthTokens: number;
  /** The fastest predicted of the plans that fit at that length. */
  readonly plan: Plan | null;
  readonly peakMemoryBytes: number | null;
  /** One unit further: the plan that needs the least there, and what it needs; null where no plan divides that length. */
  readonly next: { readonly sequenceLengthTokens: number; readonly plan: Plan | null; readonly leastBytes: number | null };
}

export interface LongestOptions {
  readonly unitTokens: number;
  /** Sequences of a step: as many as ranks, so that every number of data ranks divides them. */
  readonly sequences: number;
  readonly signal: AbortSignal;
}

/** Searches a system's spaces one by one. */
export function longestOf(system: System, job: JobSpec, profile: Profile, { unitTokens, sequences, signal }: LongestOptions): Longest {
  const spaces = system.spaces(job.cluster.nodes * job.cluster.gpusPerNode);
  const found = spaces.map((plan) => largestSequence({ ...job, plan }, profile, { unitTokens, sequences, signal }));
  const sequenceLengthTokens = Math.max(...found.map((each) => each.sequenceLengthTokens));
  const [best] = found.flatMap((each) => (each.sequenceLengthTokens === sequenceLengthTokens && each.best ? [each.best] : [])).sort((a, b) => a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds);
  const further = sequenceLengthTokens + unitTokens;
  const closest = spaces.flatMap((plan) => planJob({ ...job, plan, sequenceLengthTokens: further, globalBatchTokens: further * sequences }, profile, { top: 1 }).closest ?? []);
  const [least] = closest.sort((a, b) => a.peakMemoryBytes - b.peakMemoryBytes);
  return {
    system: system.id, sequenceLengthTokens, plan: best?.plan ?? null, peakMemoryBytes: best?.predicted.peakMemoryBytes ?? null,
    next: { sequenceLengthTokens: further, plan: least?.plan ?? null, leastBytes: least?.peakMemoryBytes ?? null },
  };
}

export interface MeasuredLongest extends Longest {
  /** A step of the plan was run at that length. */
  readonly ran: { readonly peakMemoryBytes: number; readonly stepSeconds: number } | { readonly failure: string } | null;
  /** What the trainer said to the plan that needs the least, one unit further. */
  readonly refused: { readonly code: Failure["code"]; readonly message: string } | { readonly peakMemoryBytes: number } | null;
}

/** Runs the plan at the longest length for real, and the least demanding one a unit further. */
export async function measureLongest(longest: Longest, job: JobSpec, options: LongestOptions & Place & { readonly directory: string }): Promise<MeasuredLongest> {
  const { directory, sequences, signal } = options;
  const run = async (sequenceLengthTokens: number, plan: Plan) => {
    const spec = { ...job, sequenceLengthTokens, globalBatchTokens: sequenceLengthTokens * sequences };
    return observePlan({ spec, plan, dataset: await datasetOf(spec, directory), directory, steps: 1, signal });
  };
  const { plan, next } = longest;
  const outcome = plan && (await run(longest.sequenceLengthTokens, plan));
  const beyond = next.plan && (await run(next.sequenceLengthTokens, next.plan));
  if (plan) console.error(`${longest.system}: ${longest.sequenceLengthTokens} tokens, ${planLabel(plan)}`);
  const peakOf = (steps: readonly { readonly peakMemoryBytes: number }[]): number => Math.max(...steps.map(({ peakMemoryBytes }) => peakMemoryBytes));
  return {
    ...longest,
    ran: outcome && ("code" in outcome ? { failure: outcome.message } : { peakMemoryBytes: peakOf(outcome.steps), stepSeconds: outcome.steps.at(-1)?.stepTimeSeconds ?? 0 }),
    refused: beyond && ("code" in beyond ? { code: beyond.code, message: beyond.message } : { peakMemoryBytes: peakOf(beyond.steps) }),
  };
}
