import { DECODER_PROGRAM, operatorsAgainWhen, unitPlace, type Plan } from "@internevo/domain";
import type { PipelineOperation } from "./pipeline-schedule.ts";
import type { GateUp } from "./space.ts";

/**
 * A unit of the model: what is gathered and reduced as one. `module` counts in the order of the forward pass.
 */
export type Unit =
  | { readonly kind: "embedding" | "head" }
  | { readonly kind: "layer"; readonly layer: number; readonly module: number };

/** A unit whose parameters are gathered, in the order in which a stage uses them. */
export interface Gathering {
  readonly unit: Unit;
  /** Whether it is gathered while others are in use. */
  readonly ahead: boolean;
  readonly pass: PipelineOperation["pass"];
  readonly microBatch: number;
  /** The last unit that has to be done with before there is room for it; −1: none. */
  readonly after: number;
  /** Reductions that go first on the lane, because their memory is needed before this unit is. */
  readonly afterReductions: number;
}

/** Units whose gradients are staged and reduced together. */
export interface Reduction {
  readonly units: readonly Unit[];
  /** The last reduction that has to be over before there is room for these gradients; −1: none. */
  readonly after: number;
}

/** What a stage computes of a virtual stage in a pass, in the order of the pass. */
export interface StageLayer {
  readonly layer: number;
  readonly isRecomputed: boolean;
}

/** What the order of a step's gathers and reductions depends on. */
export interface ScheduledStep {
  /** Padded elements of each unit of a layer, in the order of the forward pass. */
  readonly layer: { readonly elements: readonly number[] };
  readonly embedding: { readonly elements: number };
  readonly head: { readonly elements: number };
  /** Layers of each virtual stage, in order of the model. */
  readonly layersOfVirtualStage: readonly number[];
  /** Of each stage, the first so many of its layers are recomputed. */
  readonly recomputedOfStage: readonly number[];
  readonly stages: number;
  readonly chunks: number;
  /** What the layers that are not recomputed do with gate and up. */
  readonly gateUp: GateUp;
  readonly overlap: Pick<Plan, "forwardOverlap" | "backwardOverlap">;
}

const FORWARD_GROUPS = {
  none: [[0], [1], [2], [3]],
  block: [
    [0, 1],
    [2, 3],
  ],
  "inter-layer": [[0, 1, 2, 3]],
  "intra-layer": [[0], [1], [2], [3]],
} as const;
const BACKWARD_GROUPS = {
  none: [[3], [2], [1], [0]],
  block: [
    [3, 2],
    [1, 0],
  ],
  "intra-layer": [[3], [2], [1], [0]],
} as const;
const WHOLE = [[0, 1, 2, 3]] as const;

type BackwardOverlap = Plan["backwardOverlap"];

/** Places of the units whose products a layer makes again under `gateUp: again`. */
export const GATE_UP_UNITS: readonly number[] = [
  ...new Set(
    operatorsAgainWhen(DECODER_PROGRAM, "gateUpAgain").map((operator) =>
      unitPlace(DECODER_PROGRAM, operator, "forward"),
    ),
  ),
];

/**
 * Units that a layer's backward pass uses together, in the order of use. A layer that makes gate and up again
 * begins with their unit, and has the units behind it beside it.
 */
export function backwardGroups(overlap: BackwardOverlap, gateUp: GateUp): readonly (readonly number[])[] {
  const groups: readonly (readonly number[])[] = BACKWARD_GROUPS[overlap];
  if (gateUp !== "again") return groups;
  const first = Math.min(...GATE_UP_UNITS);
  const isLater = (unit: number): boolean => unit >= first;
  const together = groups.flatMap((group) => group.filter(isLater)).sort((a, b) => a - b);
  const earlier = groups.map((group) => group.filter((unit) => !isLater(unit)));
  return [together, ...earlier.filter((group) => group.length > 0)];
}

/** The layers of a chunk of a stage, first to last. */
export function layersOf(work: ScheduledStep, stage: number, chunk: number): StageLayer[] {
  const { stages, layersOfVirtualStage } = work;
  const virtualStage = chunk * stages + stage;
  const first = layersOfVirtualStage.slice(0, virtualStage).reduce((sum, layers) => sum + layers, 0);
  let place = 0;
  for (let earlier = 0; earlier < chunk; earlier += 1)
    place += layersOfVirtualStage[earlier * stages + stage] as number;
  return Array.from({ length: layersOfVirtualStage[virtualStage] as number }, (_, index) => ({
    layer: first + index,
    isRecomputed: place + index < (work.recomputedOfStage[stage] as number),
  }));
}

export const hasEmbedding = (stage: number, { chunk }: Pick<PipelineOperation, "chunk">): boolean =>
  stage === 0 && chunk === 0;
export const hasHead = (
  { stages, chunks }: ScheduledStep,
  stage: number,
  { chunk }: Pick<PipelineOperation, "chunk">,
): boolean => stage === stages - 1 && chunk === chunks - 1;

const elementsOf = (work: ScheduledStep, unit: Unit): number =>
  unit.kind === "layer" ? (work.layer.elements[unit.module] as number) : work[unit.kind].elements;

/**
 * Memory is used in turns: what is the last before each that must be done with, if so many of the following
 * may be there at a time.
 */
function windows(sizes: readonly number[], capacity: number): number[] {
  let first = 0;
  let sum = 0;
  return sizes.map((size, index) => {
    sum += size;
    for (; sum > capacity && first < index; first += 1) sum -= sizes[first] as number;
    return first - 1;
  });
}

interface Group {
  readonly units: readonly Unit[];
  readonly ahead: boolean;
  readonly operation: PipelineOperation;
}

function gatherGroups(work: ScheduledStep, stage: number, operations: readonly PipelineOperation[]): Group[] {
  const { forwardOverlap, backwardOverlap } = work.overlap;
  const groups: Group[] = [];
  for (const operation of operations) {
    const ahead = (operation.pass === "forward" ? forwardOverlap : backwardOverlap) !== "none";
    const add = (units: readonly Unit[]): void => void groups.push({ units, ahead, operation });
    const layer = (of: number, modules: readonly (readonly number[])[]): void => {
      for (const group of modules) add(group.map((module) => ({ kind: "layer", layer: of, module })));
    };
    if (operation.pass === "forward") {
      if (hasEmbedding(stage, operation)) add([{ kind: "embedding" }]);
      for (const { layer: of } of layersOf(work, stage, operation.chunk))
        layer(of, FORWARD_GROUPS[forwardOverlap]);
    } else {
      if (hasHead(work, stage, operation)) add([{ kind: "head" }]);
      for (const { layer: of, isRecomputed } of layersOf(work, stage, operation.chunk).reverse())
        layer(of, isRecomputed ? WHOLE : backwardGroups(backwardOverlap, work.gateUp));
    }
  }
  return groups;
}

function reductionGroups(
  work: ScheduledStep,
  stage: number,
  operations: readonly PipelineOperation[],
): Unit[][] {
  const groups: Unit[][] = [];
  for (const operation of operations) {
    if (operation.pass === "forward") continue;
    if (hasHead(work, stage, operation)) groups.push([{ kind: "head" }]);
    for (const { layer } of layersOf(work, stage, operation.chunk).reverse()) {
      for (const modules of BACKWARD_GROUPS[work.overlap.backwardOverlap])
        groups.push(modules.map((module) => ({ kind: "layer", layer, module })));
    }
    if (hasEmbedding(stage, operation)) groups.push([{ kind: "embedding" }]);
  }
  return groups;
}

const isSame = (a: Unit, b: Unit): boolean =>
  a.kind === b.kind &&
  (a.kind !== "layer" || (b.kind === "layer" && a.layer === b.layer && a.module === b.module));

/**
 * What a stage gathers and reduces in a step (native/src/trainer/gather_schedule.h). The pool has room for
 * two of the largest group where a pass gathers ahead, else for one; so has the staging of gradients where
 * reductions run beside the backward pass. Gathers go as far ahead as there is room, and let those reductions
 * pass whose memory is needed first.
 */
export function unitSchedule(
  work: ScheduledStep,
  stage: number,
  operations: readonly PipelineOperation[],
): { readonly gatherings: readonly Gathering[]; readonly reductions: readonly Reduction[] } {
  const size = (units: readonly Unit[]): number =>
    units.reduce((sum, unit) => sum + elementsOf(work, unit), 0);
  const largest = (groups: readonly (readonly Unit[])[]): number =>
    groups.reduce((most, units) => Math.max(most, size(units)), 0);
  const { forwardOverlap, backwardOverlap } = work.overlap;
  const beside = backwardOverlap !== "none";

  const reduced = reductionGroups(work, stage, operations);
  const afterOf = windows(reduced.map(size), (beside ? 2 : 1) * largest(reduced));
  const reductions = reduced.map((units, index): Reduction => ({ units, after: afterOf[index] as number }));
  // The first reduction that needs the place of each.
  const needed: number[] = new Array<number>(reductions.length).fill(reductions.length);
  for (let index = reductions.length - 1; index >= 0; index -= 1) {
    for (
      let before = (reductions[index] as Reduction).after;
      before >= 0 && (needed[before] as number) > index;
      before -= 1
    )
      needed[before] = index;
  }

  const groups = gatherGroups(work, stage, operations);
  const room = (forwardOverlap !== "none" || beside ? 2 : 1) * largest(groups.map(({ units }) => units));
  const roomAfter = windows(
    groups.flatMap(({ units }) => units.map((unit) => elementsOf(work, unit))),
    room,
  );
  let turn = 0;
  let first = 0;
  const gatherings: Gathering[] = [];
  for (const {
    units,
    ahead,
    operation: { pass, microBatch },
  } of groups) {
    if (beside && pass === "backward") {
      const holds = ({ units: staged }: Reduction): boolean =>
        staged.some((one) => units.some((unit) => isSame(one, unit)));
      while (turn < reductions.length && !holds(reductions[turn] as Reduction)) turn += 1;
      while (first < turn && (needed[first] as number) < turn) first += 1;
    }
    for (const unit of units)
      gatherings.push({
        unit,
        ahead,
        pass,
        microBatch,
        after: roomAfter[gatherings.length] as number,
        afterReductions: first,
      });
  }
  return { gatherings, reductions };
}
