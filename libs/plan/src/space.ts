import {
  allowedBy,
  chunksOf,
  contextOf,
  MOST_OF_A_FACTOR,
  PLAN_FIELDS,
  PLAN_ROWS,
  planValue,
  replicaRanks,
  type JobSpec,
  type Plan,
  type PlanConstraints,
  type PlanExtension,
  type PlanFieldValue,
  type RejectionReason,
} from "@internevo/domain";
import { clusterRanks, divisors, divisorsAmong, sequencesPerStep } from "./factors.ts";
import { layoutFault, type Layout, type Sharding } from "./legality.ts";

const { choices: FORWARD } = PLAN_FIELDS.forwardOverlap.value;
const { choices: BACKWARD } = PLAN_FIELDS.backwardOverlap.value;

/** What the executor hides: the granularities of a plan. */
export type OverlapChoice = Pick<Plan, "forwardOverlap" | "backwardOverlap">;

/** Every granularity of both passes, in the order of the space. */
export const OVERLAPS: readonly OverlapChoice[] = FORWARD.flatMap((forwardOverlap) =>
  BACKWARD.map((backwardOverlap) => ({ forwardOverlap, backwardOverlap })),
);

const { recomputeLayers: NO_LAYERS, ...NOT_EXTENDED } = Object.fromEntries(
  PLAN_ROWS.filter(([, { optional }]) => optional === true).map(([field, row]) => [field, row.default]),
) as { readonly [Field in PlanExtension]: PlanFieldValue<Field> };

/**
 * The plans of the paper's ten dimensions, and any overlap: no rings, no chunks, and of the layers all are
 * recomputed or none.
 */
export const PAPER_SPACES: readonly PlanConstraints[] = [
  { recompute: true, ...NOT_EXTENDED },
  { recomputeLayers: NO_LAYERS, ...NOT_EXTENDED },
];

const LAYOUT_FIELDS = [
  "pipelineParallel",
  "dataParallel",
  "tensorParallel",
  "sequenceParallel",
  "contextParallel",
] as const;

/** Whether both split the ranks alike, however many chunks their stages have. */
export const isSameLayout = (a: Layout, b: Layout): boolean =>
  LAYOUT_FIELDS.every((field) => planValue(a, field) === planValue(b, field));

/**
 * Every (s_ps, s_oss, s_gs) over R ranks: s_ps | R, s_oss | R / s_ps, s_gs ∈ {1, s_oss}; in the order of the
 * space.
 */
export function shardingsOf(ranks: number, job?: Pick<JobSpec, "plan">): Sharding[] {
  const list: Sharding[] = [];
  const candidates = divisors(ranks);
  for (const parameterSharding of candidates) {
    if (!allowedBy(job?.plan?.parameterSharding, parameterSharding)) continue;
    for (const optimizerStateSharding of divisorsAmong(candidates, ranks / parameterSharding)) {
      if (!allowedBy(job?.plan?.optimizerStateSharding, optimizerStateSharding)) continue;
      for (const gradientSharding of optimizerStateSharding > 1 ? [1, optimizerStateSharding] : [1]) {
        if (allowedBy(job?.plan?.gradientSharding, gradientSharding))
          list.push({ parameterSharding, gradientSharding, optimizerStateSharding });
      }
    }
  }
  return list;
}

/** What the layers that are not recomputed do with gate and up. */
export type GateUp = NonNullable<Plan["gateUp"]>;
export const GATE_UP: readonly GateUp[] = PLAN_FIELDS.gateUp.value.choices;
/**
 * Numbers of recomputed layers; where all are recomputed, none is left that could make gate and up alone
 * again.
 */
export type RecomputedBy = Readonly<Record<GateUp, readonly number[]>>;

/** How many choices of recomputation there are. */
export const countRecomputed = (by: RecomputedBy): number =>
  GATE_UP.reduce((sum, gateUp) => sum + by[gateUp].length, 0);

/** One layout of the space with what is below it. */
export interface LayoutSpace {
  readonly layout: Layout;
  /** R: ranks of one slice of the model. */
  readonly replicas: number;
  /** Micro-batch sizes; one that is not a number of sequences (null) where the batch does not divide. */
  readonly microBatchSizes: readonly number[] | null;
  /** v: chunks of a stage. */
  readonly chunks: readonly number[];
  /** Recomputed layers of the longest stage, by what the other layers keep: from none to all. */
  readonly recomputed: RecomputedBy;
  /** The first constraint that everything below the layout violates. */
  readonly fault: RejectionReason | null;
}

/** How s_sp ranks share a sequence: heads and a ring, or tensor ranks. */
function arrangementsOf(
  sequenceParallel: number,
  candidates: readonly number[],
): { tensorParallel: number; contextParallel: number }[] {
  const grids = divisorsAmong(candidates, sequenceParallel).map((contextParallel) => ({
    tensorParallel: 1,
    contextParallel,
  }));
  return sequenceParallel > 1 ? [...grids, { tensorParallel: sequenceParallel, contextParallel: 1 }] : grids;
}

const upTo = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, i) => first + i);

/** The micro-batch sizes of layouts with so many data-parallel ranks; null where the batch does not divide. */
function microBatchSizesOf(job: JobSpec): (dataParallel: number) => readonly number[] | null {
  const asked = job.plan ?? {};
  const sequences = sequencesPerStep(job);
  const sizes = divisors(sequences).filter(
    (b) => b <= MOST_OF_A_FACTOR && allowedBy(asked.microBatchSize, b),
  );
  const known = new Map<number, readonly number[] | null>();
  const made = (dataParallel: number): readonly number[] | null => {
    if (sequences % dataParallel !== 0) return null;
    const own = sequences / dataParallel;
    return divisorsAmong(sizes, own).filter(
      (b) => own / b <= MOST_OF_A_FACTOR && allowedBy(asked.microBatches, own / b),
    );
  };
  return (dataParallel) => {
    let list = known.get(dataParallel);
    if (list === undefined) known.set(dataParallel, (list = made(dataParallel)));
    return list;
  };
}

/**
 * The complete space of a job, within what its `plan` allows: s_pp | N; s_sp | N / s_pp; s_tp = s_sp, or 1
 * and a ring of c | s_sp ranks; s_dp the rest; b | B / (S·s_dp), n the rest; v·s_pp ≤ L chunks where there
 * are stages; 0 to ⌈L/s_pp⌉ recomputed layers, and gate and up of the others kept, made again, or kept on the host; shardings as in {@link shardingsOf}; overlap as in {@link
 * OVERLAPS}. A layout whose s_dp does not divide the batch counts once for b.
 */
export function* layoutsOf(job: JobSpec): Generator<LayoutSpace> {
  const ranks = clusterRanks(job);
  const sizesOf = microBatchSizesOf(job);
  const { layers } = job.model;
  const asked = job.plan ?? {};
  const factors = divisors(ranks);
  for (const pipelineParallel of factors) {
    if (!allowedBy(asked.pipelineParallel, pipelineParallel)) continue;
    const most = Math.ceil(layers / pipelineParallel);
    const chunks = pipelineParallel === 1 ? [1] : upTo(1, Math.max(1, Math.floor(layers / pipelineParallel)));
    const layersOf = (gateUp: GateUp): number[] =>
      upTo(0, gateUp === "kept" ? most : most - 1).filter(
        (k) =>
          allowedBy(asked.gateUp, gateUp) &&
          allowedBy(asked.recompute, k === most) &&
          allowedBy(asked.recomputeLayers, k),
      );
    const recomputed = { kept: layersOf("kept"), again: layersOf("again"), host: layersOf("host") };
    const shared = { chunks: chunks.filter((v) => allowedBy(asked.pipelineChunks, v)), recomputed };
    for (const sequenceParallel of divisorsAmong(factors, ranks / pipelineParallel)) {
      const dataParallel = ranks / pipelineParallel / sequenceParallel;
      if (
        !allowedBy(asked.sequenceParallel, sequenceParallel) ||
        !allowedBy(asked.dataParallel, dataParallel)
      )
        continue;
      const microBatchSizes = sizesOf(dataParallel);
      for (const { tensorParallel, contextParallel } of arrangementsOf(sequenceParallel, factors)) {
        if (
          !allowedBy(asked.tensorParallel, tensorParallel) ||
          !allowedBy(asked.contextParallel, contextParallel)
        )
          continue;
        const layout = {
          pipelineParallel,
          dataParallel,
          tensorParallel,
          sequenceParallel,
          ...(contextParallel > 1 ? { contextParallel } : {}),
        };
        yield {
          layout,
          replicas: replicaRanks(layout),
          microBatchSizes,
          ...shared,
          fault:
            layoutFault(layout, job)?.reason ?? (microBatchSizes === null ? "batch-not-divisible" : null),
        };
      }
    }
  }
}

/** What a plan chooses below its layout, batch and sharding. */
export interface Variant {
  readonly chunks: number;
  /** Recomputed layers of the longest stage. */
  readonly recomputed: number;
  readonly gateUp: GateUp;
  readonly overlap: OverlapChoice;
}

/**
 * A plan of the space as plans are written: what the paper's plans do not have is left out where it is as in
 * them.
 */
export function planOf(
  layout: Layout,
  microBatchSize: number,
  microBatches: number,
  sharding: Sharding,
  { chunks, recomputed, gateUp, overlap }: Variant,
  layers: number,
): Plan {
  const all = recomputed === Math.ceil(layers / layout.pipelineParallel);
  return {
    microBatchSize,
    microBatches,
    recompute: all,
    pipelineParallel: layout.pipelineParallel,
    dataParallel: layout.dataParallel,
    tensorParallel: layout.tensorParallel,
    sequenceParallel: layout.sequenceParallel,
    ...(contextOf(layout) > 1 ? { contextParallel: contextOf(layout) } : {}),
    parameterSharding: sharding.parameterSharding,
    gradientSharding: sharding.gradientSharding,
    optimizerStateSharding: sharding.optimizerStateSharding,
    forwardOverlap: overlap.forwardOverlap,
    backwardOverlap: overlap.backwardOverlap,
    ...(chunks > 1 ? { pipelineChunks: chunks } : {}),
    ...(recomputed > 0 && !all ? { recomputeLayers: recomputed } : {}),
    ...(gateUp === "kept" ? {} : { gateUp }),
  };
}

/**
 * What plans have in common that differ only in how the same ranks with the same shards go about the same
 * batches: in overlap, in what is made again, and in how many chunks an interleaved stage has. Of
 * such plans one is worth a trial. Whether a stage has chunks at all changes what is sent, and when: plain
 * and interleaved schedules are apart.
 */
export const familyOf = (plan: Plan): string =>
  [
    plan.pipelineParallel,
    plan.sequenceParallel,
    plan.tensorParallel,
    contextOf(plan),
    chunksOf(plan) > 1,
    plan.microBatchSize,
    plan.parameterSharding,
    plan.optimizerStateSharding,
    plan.gradientSharding,
  ].join(" ");
