import {
  commonProgram,
  contextOf,
  dimensionSize,
  fateOf,
  headRanks,
  holds,
  PRECISION_BYTES,
  widthOf,
  type Model,
  type Precision,
  type ProgramValue,
} from "@internevo/domain";
import type { GateUp, Layout } from "@internevo/plan";
import { up } from "./stage.ts";

/** A value of a layer on one rank, per row that it has. */
interface SizedValue {
  readonly rows: ProgramValue["rows"];
  readonly bytesPerRow: number;
}

/** The values of a layer that a rank has memory for. */
export interface LayerValues {
  readonly kept: readonly SizedValue[];
  /** What waits in the host's memory. */
  readonly host: readonly SizedValue[];
  readonly workspace: readonly SizedValue[];
  /** Workspaces of one block each, which share their memory. */
  readonly blocks: readonly (readonly SizedValue[])[];
  /** Elements of a row of the residual stream, and of the heads that the rank attends with. */
  readonly hidden: number;
  readonly query: number;
  readonly key: number;
}

const known = new WeakMap<Model, Map<string, LayerValues>>();

/**
 * The values of a layer, which depend on how ranks share heads and products, and on what is made again of a
 * layer that is not recomputed.
 */
export function layerValues(model: Model, precision: Precision, layout: Layout, gateUp: GateUp): LayerValues {
  const tensorRanks = layout.tensorParallel;
  const ranksOfHeads = headRanks(layout);
  let ofModel = known.get(model);
  if (!ofModel) known.set(model, (ofModel = new Map<string, LayerValues>()));
  const key = `${precision} ${tensorRanks} ${ranksOfHeads} ${gateUp}`;
  const made = ofModel.get(key);
  if (made) return made;
  const program = commonProgram(model);
  const flags = {
    tensorParallel: tensorRanks > 1,
    ulysses: tensorRanks === 1 && ranksOfHeads > 1,
    gateUpAgain: gateUp === "again",
    gateUpHost: gateUp === "host",
  };
  const ranks = { tokens: 1, block: tensorRanks, attention: ranksOfHeads, once: 1 };
  const sized = ({ rows, width, type }: ProgramValue): SizedValue => ({
    rows,
    bytesPerRow:
      widthOf(program, model, width, ranks[rows]) *
      (type === "float32" ? 4 : PRECISION_BYTES[precision].activationBytes),
  });
  const there = program.values.filter((value) => holds(value, flags));
  const withFate = (...fates: readonly ReturnType<typeof fateOf>[]): ProgramValue[] =>
    there.filter((value) => fates.includes(fateOf(value, flags)));
  const workspaces = withFate("again", "workspace");
  const blocks = new Set(workspaces.flatMap(({ block }) => block ?? []));
  const values = {
    kept: withFate("kept").map(sized),
    host: withFate("host").map(sized),
    workspace: workspaces.filter(({ block }) => block === undefined).map(sized),
    blocks: [...blocks].map((name) => workspaces.filter(({ block }) => block === name).map(sized)),
    hidden: dimensionSize(program, model, "hidden"),
    query: dimensionSize(program, model, "query", ranksOfHeads),
    key: dimensionSize(program, model, "key", ranksOfHeads),
  };
  ofModel.set(key, values);
  return values;
}

/** Rows of each kind that a rank has of a micro-batch. */
export type LayerRows = Readonly<Record<ProgramValue["rows"], number>>;

export function layerRows(layout: Layout, sequence: number, microBatchSize: number): LayerRows {
  const tokens = (microBatchSize * sequence) / layout.sequenceParallel;
  const attention = (microBatchSize * sequence) / contextOf(layout);
  return { tokens, attention, block: layout.tensorParallel > 1 ? attention : tokens, once: 1 };
}

function bytesOf(values: readonly SizedValue[], rows: LayerRows): number {
  let bytes = 0;
  for (const value of values) bytes += up(rows[value.rows] * value.bytesPerRow, 64);
  return bytes;
}

/** Bytes of what a layer keeps of one micro-batch for its backward pass. */
export const keptBytes = ({ kept }: LayerValues, rows: LayerRows): number => bytesOf(kept, rows);

/** Bytes of what a layer keeps of one micro-batch in the host's memory, which is copied as one block. */
export const hostBytes = ({ host }: LayerValues, rows: LayerRows): number => bytesOf(host, rows);

/** Bytes of the workspace that all layers use. */
export function workspaceBytes({ workspace, blocks }: LayerValues, rows: LayerRows): number {
  let largest = 0;
  for (const block of blocks) largest = Math.max(largest, bytesOf(block, rows));
  return bytesOf(workspace, rows) + largest;
}
