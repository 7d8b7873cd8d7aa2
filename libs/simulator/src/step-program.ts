import type { Plan } from "@internevo/domain";
import { pipelineSchedule, type PipelineOperation } from "./pipeline-schedule.ts";
import type { LaneName, Task } from "./lanes.ts";

/** Seconds alone of what a unit (a layer, the embedding, the head) does for one micro-batch on one rank. */
export interface UnitWork {
  readonly forwardSeconds: number;
  readonly backwardSeconds: number;
  /** Exposed collectives of sequence or tensor parallelism inside the pass. */
  readonly forwardExposedSeconds: number;
  readonly backwardExposedSeconds: number;
  /** All-gather of the unit's parameters, once for each pass that needs them; 0 when they are not sharded. */
  readonly gatherSeconds: number;
  /** What follows the unit's gradient in every micro-batch: reduce-scatter over s_ps, reduction with s_gs > 1. */
  readonly scatterSeconds: number;
}

export interface StepWork {
  readonly layer: UnitWork;
  readonly embedding: UnitWork;
  /** Forward and backward of the head are one piece of work: it counts as backward. */
  readonly head: UnitWork;
  /** Layers of each virtual stage, in order of the model. */
  readonly layersOfVirtualStage: readonly number[];
  readonly stages: number;
  readonly chunks: number;
  readonly microBatches: number;
  /** One message over a stage boundary. */
  readonly boundarySeconds: number;
  /** Reductions that wait for the end of all micro-batches. */
  readonly reduceOnceSeconds: number;
  readonly updateSeconds: number;
  readonly overlap: Pick<Plan, "forwardOverlap" | "backwardOverlap">;
}

interface UnitPlace {
  readonly kind: "embedding" | "layer" | "head";
  readonly layer: number;
}

/** Units of a virtual stage in forward order. */
function unitsOf(work: StepWork, virtualStage: number): UnitPlace[] {
  const first = work.layersOfVirtualStage.slice(0, virtualStage).reduce((sum, layers) => sum + layers, 0);
  const layers = Array.from({ length: work.layersOfVirtualStage[virtualStage] ?? 0 }, (_, index): UnitPlace => ({ kind: "layer", layer: first + index }));
  const embedding: UnitPlace[] = virtualStage === 0 ? [{ kind: "embedding", layer: -1 }] : [];
  const head: UnitPlace[] = virtualStage === work.layersOfVirtualStage.length - 1 ? [{ kind: "head", layer: first + layers.length }] : [];
  return [...embedding, ...layers, ...head];
}

/** Builds the tasks of one step: what the executor's scheduler issues, on which lane, after what. */
class Program {
  readonly tasks: Task[] = [];
  readonly #work: StepWork;
  /** Last task of each stage's computation. */
  readonly #lastCompute: (number | undefined)[];
  /** Messages that have been sent, by receiver. */
  readonly #messages = new Map<string, number>();
  /** Ends of computations whose gather slot was in use, for the double buffer. */
  readonly #released: number[][];

  constructor(work: StepWork) {
    this.#work = work;
    this.#lastCompute = new Array<number | undefined>(work.stages).fill(undefined);
    this.#released = Array.from({ length: work.stages }, () => []);
  }

  #add(task: Omit<Task, "after">, after: readonly (number | undefined)[]): number {
    this.tasks.push({ ...task, after: [...new Set(after.filter((index) => index !== undefined))] });
    return this.tasks.length - 1;
  }

  #compute(stage: number, name: string, seconds: number, place: { layer?: number; microBatch?: number }, after: readonly (number | undefined)[] = [], lane: LaneName = "compute"): number | undefined {
    if (seconds === 0 && after.length === 0) return this.#lastCompute[stage];
    const index = this.#add({ name, stage, lane, seconds, ...place, ...(lane === "compute" ? {} : { exposed: true }) }, [this.#lastCompute[stage], ...after]);
    this.#lastCompute[stage] = index;
    return index;
  }

  /** The gather of a unit: behind earlier computation when it overlaps, else waited for. Returns what the computation waits for. */
  #gather(stage: number, seconds: number, overlapped: boolean, place: { layer: number; microBatch: number }, ahead = false): number | undefined {
    if (seconds === 0) return undefined;
    const released = this.#released[stage] as number[];
    // Two slots: a gather may begin when the unit before the last is done with.
    const after = overlapped ? [released.at(ahead ? -1 : -2)] : [this.#lastCompute[stage]];
    return this.#add({ name: "all-gather parameters", stage, lane: "communication", seconds, ...place, exposed: !overlapped }, after);
  }

  #unitWork(unit: UnitPlace): UnitWork {
    return this.#work[unit.kind];
  }

  forward(stage: number, virtualStage: number, { microBatch }: PipelineOperation): void {
    const { overlap } = this.#work;
    const message = this.#messages.get(`forward ${virtualStage} ${microBatch}`);
    let arrival: (number | undefined)[] = [message];
    for (const unit of unitsOf(this.#work, virtualStage)) {
      if (unit.kind === "head") continue; // with the backward pass
      const cost = this.#unitWork(unit);
      const place = { layer: unit.layer, microBatch };
      const gathered = this.#gather(stage, cost.gatherSeconds, overlap.forwardOverlap !== "none", place);
      this.#compute(stage, unit.kind === "layer" ? "forward" : "embedding", cost.forwardSeconds, place, [gathered, ...arrival]);
      this.#compute(stage, "sequence communication", cost.forwardExposedSeconds, place, [], "communication");
      (this.#released[stage] as number[]).push(this.#lastCompute[stage] as number);
      arrival = [];
    }
    this.#send("forward", stage, virtualStage + 1, microBatch);
  }

  backward(stage: number, virtualStage: number, { microBatch }: PipelineOperation): void {
    const { overlap } = this.#work;
    const overlapped = overlap.backwardOverlap !== "none";
    const units = unitsOf(this.#work, virtualStage).reverse();
    const gather = (unit: UnitPlace | undefined, ahead = false): number | undefined =>
      unit === undefined || unit.kind === "embedding" ? undefined : this.#gather(stage, this.#unitWork(unit).gatherSeconds, overlapped, { layer: unit.layer, microBatch }, ahead);
    let arrival: (number | undefined)[] = [this.#messages.get(`backward ${virtualStage} ${microBatch}`)];
    let gathered = gather(units[0]);
    units.forEach((unit, position) => {
      const cost = this.#unitWork(unit);
      const place = { layer: unit.layer, microBatch };
      // The next all-gather is launched before this unit's reduce-scatter.
      const next = overlapped ? gather(units[position + 1], true) : undefined;
      this.#compute(stage, unit.kind === "layer" ? "backward" : unit.kind, cost.backwardSeconds, place, [gathered, ...arrival]);
      this.#compute(stage, "sequence communication", cost.backwardExposedSeconds, place, [], "communication");
      const last = this.#lastCompute[stage];
      if (last !== undefined) (this.#released[stage] as number[]).push(last);
      arrival = [];
      if (cost.scatterSeconds > 0) {
        const scatter = this.#add({ name: "reduce-scatter gradients", stage, lane: "communication", seconds: cost.scatterSeconds, ...place, exposed: !overlapped }, [last]);
        if (!overlapped) this.#lastCompute[stage] = scatter;
      }
      gathered = overlapped ? next : gather(units[position + 1]);
    });
    this.#send("backward", stage, virtualStage - 1, microBatch);
  }

  #send(pass: PipelineOperation["pass"], stage: number, toVirtualStage: number, microBatch: number): void {
    if (toVirtualStage < 0 || toVirtualStage >= this.#work.layersOfVirtualStage.length || this.#work.stages === 1) return;
    const index = this.#add({ name: `send ${pass}`, stage, lane: "pipeline", seconds: this.#work.boundarySeconds, microBatch }, [this.#lastCompute[stage]]);
    this.#messages.set(`${pass} ${toVirtualStage} ${microBatch}`, index);
  }

  /** Reductions and update of every stage, after all its work; the gradient norm makes all stages wait for one another. */
  finish(): void {
    const { stages, reduceOnceSeconds, updateSeconds } = this.#work;
    const reduced = Array.from({ length: stages }, (_, stage) => {
      const lastOf = (lane: LaneName) => this.tasks.findLastIndex((task) => task.stage === stage && task.lane === lane);
      const ends = [lastOf("compute"), lastOf("communication")].filter((index) => index >= 0);
      return this.#add({ name: "reduce gradients", stage, lane: "communication", seconds: reduceOnceSeconds, exposed: true }, ends);
    });
    for (let stage = 0; stage < stages; stage += 1) this.#add({ name: "update", stage, lane: "compute", seconds: updateSeconds }, reduced);
  }
}

/** Tasks of one optimizer step of every pipeline stage. */
export function stepProgram(work: StepWork): Task[] {
  const { stages, chunks, microBatches } = work;
  const program = new Program(work);
  const queues = Array.from({ length: stages }, (_, stage) => pipelineSchedule(stage, stages, microBatches, chunks));
  const at = new Array<number>(stages).fill(0);
  const sent = new Set<string>();
  const virtualStages = stages * chunks;
  // Tasks are listed when their messages are: every stage goes on until it waits for one that is not on its way.
  for (let moved = true; moved; ) {
    moved = false;
    for (let stage = 0; stage < stages; stage += 1) {
      for (;;) {
        const operation = (queues[stage] as PipelineOperation[])[at[stage] as number];
        if (!operation) break;
        const virtualStage = operation.chunk * stages + stage;
        const forward = operation.pass === "forward";
        const needs = forward ? virtualStage > 0 : virtualStage < virtualStages - 1;
        if (needs && !sent.has(`${operation.pass} ${virtualStage} ${operation.microBatch}`)) break;
        program[operation.pass](stage, virtualStage, operation);
        sent.add(`${operation.pass} ${forward ? virtualStage + 1 : virtualStage - 1} ${operation.microBatch}`);
        at[stage] = (at[stage] as number) + 1;
        moved = true;
      }
    }
  }
  program.finish();
  return program.tasks;
}
