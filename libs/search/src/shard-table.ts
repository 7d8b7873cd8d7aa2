import type { CostModel, PricedSharding, ShardTime, StageBytes } from "@internevo/cost-model";
import type { Profile } from "@internevo/domain";
import {
  GATE_UP,
  OVERLAPS,
  shardingsOf,
  type GateUp,
  type Layout,
  type OverlapChoice,
  type Sharding,
} from "@internevo/plan";

/** 0: no layer of the stage is recomputed; 1: some; 2: all. */
export type Recomputation = 0 | 1 | 2;

/**
 * The shardings of a (s_pp, s_tp) over so many ranks, their times and bytes computed when they are asked for.
 */
export class ShardTable {
  readonly list: readonly Sharding[];
  readonly #layout: Layout;
  readonly #times: (PricedSharding | undefined)[];
  readonly #bytes: (StageBytes | undefined)[] = [];
  #kept = 0;

  constructor(layout: Layout, list: readonly Sharding[]) {
    this.#layout = layout;
    this.list = list;
    this.#times = new Array<PricedSharding | undefined>(list.length);
  }

  /** How many numbers it holds, about. */
  get size(): number {
    return this.list.length + this.#kept;
  }

  time(model: CostModel, index: number): ShardTime {
    return model.take((this.#times[index] ??= model.shardPrice(this.#layout, this.list[index] as Sharding)));
  }

  bytes(
    model: CostModel,
    index: number,
    overlapIndex: number,
    overlap: OverlapChoice,
    kind: Recomputation,
    gateUp: GateUp,
  ): StageBytes {
    const at =
      ((index * OVERLAPS.length + overlapIndex) * GATE_UP.length + GATE_UP.indexOf(gateUp)) * 3 + kind;
    let bytes = this.#bytes[at];
    if (!bytes) {
      this.#bytes[at] = bytes = model.shardBytes(this.#layout, this.list[index] as Sharding, {
        ...overlap,
        recompute: kind === 2,
        ...(kind === 1 ? { recomputeLayers: 1 } : {}),
        gateUp,
      });
      this.#kept += 1;
    }
    return bytes;
  }
}

/**
 * Of one profile so many kinds of jobs are kept, and of each kind so many numbers: some tens of megabytes.
 */
const MOST_KINDS = 8;
const MOST_NUMBERS = 200_000;
const ofProfiles = new WeakMap<Profile, Map<string, Map<string, ShardTable>>>();

/**
 * The tables of a job, and those of former jobs that share them: neither the batch nor the sequence length
 * decides what a sharding takes, and of a layout only s_pp, s_tp and how many ranks have the same slice of
 * the model do.
 */
export function shardTablesOf(model: CostModel): (layout: Layout, ranks: number) => ShardTable {
  const { job, profile } = model;
  let kinds = ofProfiles.get(profile);
  if (!kinds) ofProfiles.set(profile, (kinds = new Map<string, Map<string, ShardTable>>()));
  const { parameterSharding, gradientSharding, optimizerStateSharding } = job.plan ?? {};
  const kind = JSON.stringify([
    job.model,
    job.precision,
    job.cluster.gpusPerNode,
    model.memoryKind,
    parameterSharding,
    gradientSharding,
    optimizerStateSharding,
  ]);
  let tables = kinds.get(kind);
  if (!tables || [...tables.values()].reduce((sum, { size }) => sum + size, 0) > MOST_NUMBERS)
    tables = new Map<string, ShardTable>();
  // What was used now is last, and what was used longest ago is forgotten first.
  kinds.delete(kind);
  kinds.set(kind, tables);
  for (const oldest of kinds.keys()) {
    if (kinds.size <= MOST_KINDS) break;
    kinds.delete(oldest);
  }
  const known = tables;
  return (layout, ranks) => {
    const key = `${layout.pipelineParallel} ${layout.tensorParallel} ${ranks}`;
    let table = known.get(key);
    if (!table) known.set(key, (table = new ShardTable(layout, shardingsOf(ranks, job))));
    return table;
  };
}
