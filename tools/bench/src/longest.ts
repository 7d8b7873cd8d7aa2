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
  /**
   * One unit further: the plan that needs the least there, and what it needs; null where no plan divides that
   * length.
   */
  readonly next: {
    readonly sequenceLengthTokens: number;
    readonly plan: Plan | null;
    readonly leastBytes: number | null;
  };
}

export interface LongestOptions {
  readonly unitTokens: number;
  /** Sequences of a step: as many as ranks, so that every number of data ranks divides them. */
  readonly sequences: number;
  readonly signal: AbortSignal;
}

/** Searches a system's spaces one by one. */
export function longestOf(
  system: System,
  job: JobSpec,
  profile: Profile,
  { unitTokens, sequences, signal }: LongestOptions,
): Longest {
  const spaces = system.spaces(job.cluster.nodes * job.cluster.gpusPerNode);
  const found = spaces.map((plan) =>
    largestSequence({ ...job, plan }, profile, { unitTokens, sequences, signal }),
  );
  const sequenceLengthTokens = Math.max(...found.map((each) => each.sequenceLengthTokens));
  const [best] = found
    .flatMap((each) => (each.sequenceLengthTokens === sequenceLengthTokens && each.best ? [each.best] : []))
    .sort((a, b) => a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds);
  const further = sequenceLengthTokens + unitTokens;
  const closest = spaces.flatMap(
    (plan) =>
      planJob(
        { ...job, plan, sequenceLengthTokens: further, globalBatchTokens: further * sequences },
        profile,
        { top: 1 },
      ).closest ?? [],
  );
  const [least] = closest.sort((a, b) => a.peakMemoryBytes - b.peakMemoryBytes);
  return {
    system: system.id,
    sequenceLengthTokens,
    plan: best?.plan ?? null,
    peakMemoryBytes: best?.predicted.peakMemoryBytes ?? null,
    next: {
      sequenceLengthTokens: further,
      plan: least?.plan ?? null,
      leastBytes: least?.peakMemoryBytes ?? null,
    },
  };
}

export interface MeasuredLongest extends Longest {
  /**
   * The longest that a step was run at, from the planned one downwards by units: a run's own memory may be
   * above the profile's.
   */
  readonly ran: {
    readonly sequenceLengthTokens: number;
    readonly peakMemoryBytes: number;
    readonly stepSeconds: number;
  } | null;
  /**
   * What was refused: the plan at the lengths above the one that ran, and the least demanding plan beyond the
   * planned length.
   */
  readonly refused: readonly {
    readonly sequenceLengthTokens: number;
    readonly code: Failure["code"];
    readonly message: string;
  }[];
}

/** Units below the planned length at which a plan is tried before it is given up. */
const MOST_ATTEMPTS = 8;

/** Runs the plan at the longest length for real, and the least demanding one a unit further. */
export async function measureLongest(
  longest: Longest,
  job: JobSpec,
  options: LongestOptions & Place & { readonly directory: string },
): Promise<MeasuredLongest> {
  const { directory, sequences, unitTokens, signal } = options;
  const refused: MeasuredLongest["refused"][number][] = [];
  /** Null when there is not enough memory. */
  const run = async (sequenceLengthTokens: number, plan: Plan): Promise<MeasuredLongest["ran"]> => {
    const spec = { ...job, sequenceLengthTokens, globalBatchTokens: sequenceLengthTokens * sequences };
    const outcome = await observePlan({
      spec,
      plan,
      dataset: await datasetOf(spec, directory),
      directory,
      steps: 1,
      signal,
    });
    const what = `${longest.system}, ${sequenceLengthTokens} tokens, ${planLabel(plan)}`;
    if ("code" in outcome) {
      if (outcome.code !== "out-of-memory") throw new Error(`${what}: ${outcome.message}`);
      console.error(`${what}: refused`);
      refused.push({ sequenceLengthTokens, code: outcome.code, message: outcome.message });
      return null;
    }
    console.error(`${what}: ran`);
    return {
      sequenceLengthTokens,
      peakMemoryBytes: Math.max(...outcome.steps.map(({ peakMemoryBytes }) => peakMemoryBytes)),
      stepSeconds: outcome.steps.at(-1)?.stepTimeSeconds ?? 0,
    };
  };
  const { plan, next } = longest;
  if (next.plan && (await run(next.sequenceLengthTokens, next.plan)))
    throw new Error(
      `${longest.system}: a plan ran at ${next.sequenceLengthTokens} tokens, where the planner says that none fits`,
    );
  let ran: MeasuredLongest["ran"] = null;
  for (
    let units = 0;
    plan && ran === null && units < MOST_ATTEMPTS && longest.sequenceLengthTokens > units * unitTokens;
    units += 1
  )
    ran = await run(longest.sequenceLengthTokens - units * unitTokens, plan);
  return { ...longest, ran, refused };
}
