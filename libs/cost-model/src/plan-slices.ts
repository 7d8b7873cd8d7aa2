import { splitKey, splitOf, type JobSpec } from "@internevo/domain";
import { layoutsOf } from "@internevo/plan";
import type { LayerSlice } from "./layer.ts";
import { thin } from "./thin.ts";

/** A slice (b, s_sp, s_tp, ring) of the job's plans, and whether a plan cuts it into stages. */
export interface PlanSlice extends LayerSlice {
  readonly inStages: boolean;
}

/**
 * Micro-batch sizes of all layouts together that are looked at. Batches of a few thousand sequences on ten
 * thousand ranks have fewer. One of 10^14 sequences has many millions, and they would take minutes.
 */
export const MOST_SIZES_OF_LAYOUTS = 30_000;

/** A way to split the ranks, and the micro-batch sizes that it may have, ascending. */
interface SizesOfLayout {
  readonly split: ReturnType<typeof splitOf>;
  readonly isInStages: boolean;
  readonly sizes: readonly number[];
}

function sizesOfLayouts(spec: JobSpec): { readonly layouts: SizesOfLayout[]; readonly count: number } {
  const layouts: SizesOfLayout[] = [];
  let count = 0;
  for (const { layout, microBatchSizes, fault } of layoutsOf(spec)) {
    if (fault !== null || microBatchSizes === null) continue;
    count += microBatchSizes.length;
    layouts.push({ split: splitOf(layout), isInStages: layout.pipelineParallel > 1, sizes: microBatchSizes });
  }
  return { layouts, count };
}

/**
 * The layouts of all plans that divide a job. Where they have more sizes than are looked at, only layouts and sizes
 * that the job's `plan` allows; where those are too many, equally many of each layout, with the smallest and the
 * largest.
 */
function layoutsLookedAt({ plan, ...spec }: JobSpec): readonly SizesOfLayout[] {
  const all = sizesOfLayouts(spec);
  if (all.count <= MOST_SIZES_OF_LAYOUTS) return all.layouts;
  const { layouts, count } = plan === undefined ? all : sizesOfLayouts({ ...spec, plan });
  if (count <= MOST_SIZES_OF_LAYOUTS) return layouts;
  const most = Math.max(2, Math.floor(MOST_SIZES_OF_LAYOUTS / layouts.length));
  // Layouts of equally many replicas share one list.
  const thinned = new Map<readonly number[], readonly number[]>();
  return layouts.map((layout) => {
    const sizes = thinned.get(layout.sizes) ?? thin(layout.sizes, most);
    thinned.set(layout.sizes, sizes);
    return { ...layout, sizes };
  });
}

/**
 * The slices of all plans that divide a job, each once, whatever its `plan` allows: a profile serves other plans too.
 * Of a job with very many, some ({@link MOST_SIZES_OF_LAYOUTS}).
 */
export function slicesOf(spec: JobSpec): PlanSlice[] {
  const { sequenceLengthTokens } = spec;
  const slices: { -readonly [Field in keyof PlanSlice]: PlanSlice[Field] }[] = [];
  const bySplit = new Map<string, Map<number, (typeof slices)[number]>>();
  for (const { split, isInStages, sizes } of layoutsLookedAt(spec)) {
    const key = splitKey(split);
    const known = bySplit.get(key) ?? new Map<number, (typeof slices)[number]>();
    bySplit.set(key, known);
    for (const microBatchSize of sizes) {
      const slice = known.get(microBatchSize);
      if (slice !== undefined) {
        slice.inStages ||= isInStages;
        continue;
      }
      const made = { microBatchSize, sequenceLengthTokens, ...split, inStages: isInStages };
      known.set(microBatchSize, made);
      slices.push(made);
    }
  }
  return slices;
}
