import { largestSequence } from "@internevo/advisor";
import { CostModel } from "@internevo/cost-model";
import type { Candidate, JobSpec, PlanConstraints, Prediction, Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { paperJob, paperSpaces, SYSTEM_SPACES, type PaperModel, type SystemId } from "./paper.ts";

/** A row of the paper's table of largest lengths (its section "Sequence Length Scalability"): b = n = 1. */
export interface ScalabilityCase {
  readonly model: PaperModel;
  readonly nodes: number;
  readonly sequenceParallel: number;
  readonly lengthK: number;
  /** MFU that the paper measured. */
  readonly measuredMfu: Readonly<Record<"internevo" | "megatron", number>>;
}

export const SCALABILITY: readonly ScalabilityCase[] = [
  {
    model: "llama-7b",
    nodes: 16,
    sequenceParallel: 32,
    lengthK: 1536,
    measuredMfu: { internevo: 0.8, megatron: 0.35 },
  },
  {
    model: "llama-13b",
    nodes: 10,
    sequenceParallel: 40,
    lengthK: 1200,
    measuredMfu: { internevo: 0.77, megatron: 0.27 },
  },
  {
    model: "llama-30b",
    nodes: 12,
    sequenceParallel: 48,
    lengthK: 960,
    measuredMfu: { internevo: 0.75, megatron: 0.19 },
  },
  {
    model: "llama-65b",
    nodes: 16,
    sequenceParallel: 64,
    lengthK: 512,
    measuredMfu: { internevo: 0.7, megatron: 0.14 },
  },
];

export interface Longest {
  readonly who: SystemId | "internevo-complete";
  /** A multiple of 1024·s_sp: what every number of ranks of the case divides. */
  readonly sequenceLengthTokens: number;
  readonly best: Candidate | null;
  readonly nextTokens: number;
  /** What ends it: the largest lines of the plan that needs the least, at the next length. */
  readonly end: string;
}

export interface ScalabilityResult extends ScalabilityCase {
  /**
   * The paper's length with its s_sp, s_dp = N / s_sp and b = n = 1: InternEvo's plans, Megatron's,
   * DeepSpeed's.
   */
  readonly atPaper: Readonly<
    Record<SystemId, { readonly plan: Candidate["plan"]; readonly predicted: Prediction } | null>
  >;
  readonly longest: readonly Longest[];
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

/** The largest lines of memory, and their sum. */
export function memoryWords(lines: Readonly<Record<string, number>>): string {
  const sorted = Object.entries(lines)
    .sort((a, b) => b[1] - a[1])
    .filter(([, bytes]) => bytes > 1e9);
  const total = Object.values(lines).reduce((sum, bytes) => sum + bytes, 0);
  return `${gigabytes(total)}: ${sorted
    .slice(0, 4)
    .map(([name, bytes]) => `${name} ${gigabytes(bytes)}`)
    .join(", ")}`;
}

/** @param counts sequences of a step that are tried: as many data-parallel ranks, with b = n = 1. */
function longestOf(
  who: Longest["who"],
  job: JobSpec,
  profile: Profile,
  spaces: readonly PlanConstraints[],
  unitTokens: number,
  counts: readonly number[],
): Longest {
  let best: Longest | null = null;
  for (const [plan, sequences] of spaces.flatMap((space) =>
    counts.map(
      (count) => [{ ...space, dataParallel: count, microBatchSize: 1, microBatches: 1 }, count] as const,
    ),
  )) {
    const found = largestSequence({ ...job, plan }, profile, { unitTokens, sequences });
    if (best !== null && found.sequenceLengthTokens <= best.sequenceLengthTokens) continue;
    const next = {
      ...job,
      plan,
      sequenceLengthTokens: found.next.sequenceLengthTokens,
      globalBatchTokens: found.next.sequenceLengthTokens * sequences,
    };
    const { closest } = planJob(next, profile, { top: 1 });
    const end =
      closest === null
        ? "no plan divides it over the cluster"
        : memoryWords(new CostModel(next, profile).memory(planOfJob(closest.plan, next)).lines);
    best = {
      who,
      sequenceLengthTokens: found.sequenceLengthTokens,
      best: found.best,
      nextTokens: found.next.sequenceLengthTokens,
      end,
    };
  }
  return best as Longest;
}

/**
 * Lengths with b = n = 1: each data-parallel rank has one sequence. At the paper's length its own layout;
 * beyond it every layout of one sequence a step, or as many as there.
 */
export function evaluateScalability(row: ScalabilityCase, profile: Profile): ScalabilityResult {
  const ranks = row.nodes * 8;
  const sequences = ranks / row.sequenceParallel;
  const job = paperJob(row.model, row.lengthK, {
    nodes: row.nodes,
    batchTokens: row.lengthK * 1024 * sequences,
  });
  const layout = {
    sequenceParallel: row.sequenceParallel,
    dataParallel: sequences,
    microBatchSize: 1,
    microBatches: 1,
    pipelineParallel: 1,
  };
  const at = (spaces: readonly PlanConstraints[]) => {
    const all = spaces.flatMap(
      (plan) => planJob({ ...job, plan: { ...plan, ...layout } }, profile, { top: 1 }).candidates,
    );
    return all.sort((a, b) => a.predicted.stepTimeSeconds - b.predicted.stepTimeSeconds)[0] ?? null;
  };
  const megatron = SYSTEM_SPACES.megatron(ranks);
  const ulysses = SYSTEM_SPACES.ulysses(ranks);
  const unit = 1024 * row.sequenceParallel;
  const counts = [1, sequences];
  return {
    ...row,
    atPaper: {
      internevo: at(paperSpaces),
      megatron: at(megatron.filter(({ sequenceParallel }) => sequenceParallel === row.sequenceParallel)),
      ulysses: at(ulysses),
    },
    longest: [
      longestOf("internevo-complete", job, profile, [{}], unit, counts),
      longestOf("internevo", job, profile, paperSpaces, unit, counts),
      longestOf("megatron", job, profile, megatron, unit, counts),
      longestOf("ulysses", job, profile, ulysses, unit, counts),
    ],
  };
}
