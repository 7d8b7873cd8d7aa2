import { clusterRanks, divisors, sequencesPerStep, sequenceSplitFault, tensorSplitFault, type Layout, type Sharding } from "@internevo/cost-model";
import { chunksOf, type JobSpec, type Plan, type RejectionReason } from "@internevo/domain";

/** Every (s_ps, s_oss, s_gs) over R ranks: s_ps | R, s_oss | R / s_ps, s_gs ∈ {1, s_oss}; in the order of the space. */
export function shardingsOf(ranks: number): Sharding[] {
  const list: Sharding[] = [];
  for (const parameterSharding of divisors(ranks)) {
    for (const optimizerStateSharding of divisors(ranks / parameterSharding)) {
      for (const gradientSharding of optimizerStateSharding > 1 ? [1, optimizerStateSharding] : [1]) {
        list.push({ parameterSharding, gradientSharding, optimizerStateSharding });
      }
    }
  }
  return list;
}

/** One layout of the space with what is below it. */
export interface LayoutSpace {
  readonly layout: Layout;
  /** R: ranks of one slice of the model. */
  readonly replicas: number;
  /** Micro-batch sizes; one that is not a number of sequences (null) where the batch does not divide. */
  readonly microBatchSizes: readonly number[] | null;
  /** The first constraint that everything below the layout violates. */
  readonly fault: RejectionReason | null;
}

/**
 * The complete space of a job: s_pp | N; s_sp | N / s_pp; s_tp ∈ {1, s_sp}; s_dp the rest; b | B / (S·s_dp), n the rest;
 * a ∈ {0, 1}; shardings as in {@link shardingsOf}. A layout whose s_dp does not divide the batch counts once for b.
 */
export function* layoutsOf(job: JobSpec): Generator<LayoutSpace> {
  const ranks = clusterRanks(job);
  const sequences = sequencesPerStep(job);
  for (const pipelineParallel of divisors(ranks)) {
    for (const sequenceParallel of divisors(ranks / pipelineParallel)) {
      const dataParallel = ranks / pipelineParallel / sequenceParallel;
      const split = sequenceSplitFault(job, sequenceParallel);
      const divides = sequences % dataParallel === 0;
      const microBatchSizes = divides ? divisors(sequences / dataParallel) : null;
      for (const tensorParallel of sequenceParallel > 1 ? [1, sequenceParallel] : [1]) {
        const layout = { pipelineParallel, dataParallel, tensorParallel, sequenceParallel };
        const tensor = tensorSplitFault(job, tensorParallel) === null ? null : "tensor-not-divisible";
        const fault = pipelineParallel > job.model.layers ? "more-stages-than-layers" : (split ?? tensor ?? (divides ? null : "batch-not-divisible"));
        yield { layout, replicas: (dataParallel * sequenceParallel) / tensorParallel, microBatchSizes, fault };
      }
    }
  }
}

const ORDER = ["pipelineParallel", "sequenceParallel", "tensorParallel", "microBatchSize", "recompute", "parameterSharding", "optimizerStateSharding", "gradientSharding"] as const;

/** The order of the space, which decides between plans of equal time and memory. */
export function comparePlans(a: Plan, b: Plan): number {
  for (const field of ORDER) {
    const difference = Number(a[field]) - Number(b[field]);
    if (difference !== 0) return difference;
  }
  return chunksOf(a) - chunksOf(b) || (a.recomputeLayers ?? 0) - (b.recomputeLayers ?? 0);
}
