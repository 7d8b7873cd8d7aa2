import {
  ATTENTION_UNIT,
  gradientSeconds,
  UNIT_PRODUCTS,
  type Slowdown,
  type TensorBeside,
} from "@internevo/cost-model";
import {
  backwardGroups,
  hasEmbedding,
  hasHead,
  layersOf,
  unitSchedule,
  type Gathering,
  type PipelineOperation,
  type Reduction,
  type StageLayer,
  type Unit,
} from "@internevo/plan";
import { hostTurns, type HostTurn } from "./host-turns.ts";
import type { Task } from "./lanes.ts";
import type { EndWork, StepWork } from "./step-work.ts";

const MODULES = UNIT_PRODUCTS.map((_, module) => module);
const ON_LANE = { lane: "communication", exposed: true } as const;

interface Place {
  readonly layer?: number;
  readonly microBatch: number;
}

/** The tasks of one stage in a step: what the executor's scheduler issues, on which lane, after what. */
export class StageProgram {
  readonly #work: StepWork;
  readonly #stage: number;
  /** Of all stages. */
  readonly #tasks: Task[];
  readonly #gatherings: readonly Gathering[];
  readonly #reductions: readonly Reduction[];
  /** Task of each unit that was gathered. */
  readonly #gathered: number[] = [];
  /** Last task that used each. */
  readonly #released: number[] = [];
  readonly #reduced: number[] = [];
  /** Gradients of the reduction at hand whose units are done. */
  #staged = 0;
  /** Units taken so far, in the order of the schedule. */
  #taken = 0;
  /** Passes of layers where gate and up wait in the host's memory, and how many of them are over. */
  readonly #turns: readonly HostTurn[];
  #turn = 0;
  /** The last copy out of each place on the device, or into it. */
  readonly #copied: [number | undefined, number | undefined] = [undefined, undefined];
  /** What is computed next waits for these. */
  readonly #waits: number[] = [];
  #lastCompute: number | undefined;
  #lastCommunication: number | undefined;

  constructor(work: StepWork, stage: number, operations: readonly PipelineOperation[], tasks: Task[]) {
    this.#work = work;
    this.#stage = stage;
    this.#tasks = tasks;
    const { gatherings, reductions } = unitSchedule(work, stage, operations);
    const gathers = [...work.layer.gather, work.embedding.gatherSeconds, work.head.gatherSeconds].some(
      (seconds) => seconds > 0,
    );
    const stages =
      work.reduceEveryMicroBatch ||
      [...work.layer.scatter, work.embedding.scatterSeconds, work.head.scatterSeconds].some(
        (seconds) => seconds > 0,
      );
    this.#gatherings = gathers ? gatherings : [];
    this.#reductions = stages ? reductions : [];
    this.#turns = work.gateUp === "host" ? hostTurns(work, stage, operations) : [];
    this.#gatherAhead();
  }

  get lastCompute(): number | undefined {
    return this.#lastCompute;
  }

  #add(task: Omit<Task, "after" | "stage">, after: readonly (number | undefined)[]): number {
    this.#tasks.push({
      ...task,
      stage: this.#stage,
      after: [...new Set(after.filter((index) => index !== undefined))],
    });
    return this.#tasks.length - 1;
  }

  /** Something that the computation goes on behind. */
  #inline(name: string, seconds: number, place: Partial<Place>, more: Partial<Task> = {}): void {
    if (seconds === 0 && this.#waits.length === 0) return;
    this.#lastCompute = this.#add({ name, lane: "compute", seconds, ...place, ...more }, [
      this.#lastCompute,
      ...this.#waits.splice(0),
    ]);
    if (more.lane === "communication") this.#lastCommunication = this.#lastCompute;
  }

  /** What is computed next waits for this. */
  #wait(task: number | undefined): void {
    if (task !== undefined) this.#waits.push(task);
  }

  /** A collective beside the computation. */
  #beside(
    name: string,
    seconds: number,
    place: Partial<Place>,
    after: readonly (number | undefined)[],
    slowdown: Slowdown,
  ): number {
    return (this.#lastCommunication = this.#add(
      { name, lane: "communication", seconds, ...place, slowdown, link: this.#work.shardLink },
      after,
    ));
  }

  #secondsOf(what: "gather" | "scatter" | "reduce", unit: Unit): number {
    return unit.kind === "layer"
      ? (this.#work.layer[what][unit.module] as number)
      : this.#work[unit.kind][`${what}Seconds`];
  }

  /** A layer's pass waits for its place on the device, and what comes next is fetched meanwhile. */
  #beginTurn(place: Place): void {
    const turn = this.#turns[this.#turn];
    if (turn === undefined) return;
    this.#wait(this.#copied[turn.place]);
    const next = this.#turns[this.#turn + 1];
    if (next?.fetches === true) this.#copy("gate and up from the host", next, place);
  }

  #endTurn(place: Place): void {
    const turn = this.#turns[this.#turn];
    this.#turn += 1;
    if (turn?.leaves === true) this.#copy("gate and up to the host", turn, place);
  }

  /** Behind what was computed so far. */
  #copy(name: string, { place: at, leaves }: HostTurn, place: Place): void {
    const { toHostSeconds, toDeviceSeconds } = this.#work.layer;
    const seconds = leaves ? toHostSeconds : toDeviceSeconds;
    this.#copied[at] = this.#add({ name, lane: "host", seconds, microBatch: place.microBatch }, [
      this.#lastCompute,
    ]);
  }

  /** Gathers what there is room for, in the order of its use. */
  #gatherAhead(): void {
    for (let next = this.#gathered.length; next < this.#gatherings.length; next += 1) {
      const { unit, ahead, pass, microBatch, after, afterReductions } = this.#gatherings[next] as Gathering;
      if (!ahead || after >= this.#released.length || afterReductions > this.#reduced.length) return;
      const slowdown = this.#work.slowdowns[pass === "forward" ? "forwardGather" : "backwardGather"];
      const place = { microBatch, ...(unit.kind === "layer" ? { layer: unit.layer } : {}) };
      this.#gathered.push(
        this.#beside(
          "all-gather parameters",
          this.#secondsOf("gather", unit),
          place,
          [after < 0 ? undefined : this.#released[after]],
          slowdown,
        ),
      );
    }
  }

  /** Waits for the parameters of the next unit of the schedule. */
  #take(place: Place): void {
    if (this.#gatherings.length === 0) return;
    const at = this.#taken;
    this.#taken += 1;
    if (at >= this.#gathered.length) {
      const { unit } = this.#gatherings[at] as Gathering;
      this.#inline("all-gather parameters", this.#secondsOf("gather", unit), place, ON_LANE);
      this.#gathered.push(this.#lastCompute as number);
      // What is not gathered ahead may be followed by what is.
      this.#gatherAhead();
    } else this.#wait(this.#gathered[at]);
  }

  #release(): void {
    if (this.#gatherings.length === 0) return;
    this.#released.push(this.#lastCompute as number);
    this.#gatherAhead();
  }

  /** Computation of a unit whose gradient is staged waits until there is room for it. */
  #beginGradient(): void {
    const reduction = this.#reductions[this.#reduced.length];
    if (reduction === undefined || this.#staged > 0 || reduction.after < 0) return;
    this.#wait(this.#reduced[reduction.after]);
  }

  #endGradient(unit: Unit, place: Place): void {
    const { reduceEveryMicroBatch: every, overlap, microBatches, slowdowns } = this.#work;
    const overlapped = overlap.backwardOverlap !== "none";
    // What is reduced once a step and beside computation follows the last micro-batch.
    const reduces = every || (overlapped && place.microBatch === microBatches - 1);
    const reduction = this.#reductions[this.#reduced.length];
    this.#staged += 1;
    const units = reduction === undefined ? [unit] : reduction.units;
    if (this.#staged < units.length) return;
    this.#staged = 0;
    let last = this.#lastCompute;
    for (const each of units)
      for (const [name, what, does] of [
        ["reduce-scatter gradients", "scatter", reduction !== undefined],
        ["reduce gradients", "reduce", reduces],
      ] as const) {
        const seconds = does ? this.#secondsOf(what, each) : 0;
        if (seconds === 0) continue;
        if (overlapped) last = this.#beside(name, seconds, place, [this.#lastCompute], slowdowns[what]);
        else {
          this.#inline(name, seconds, place, ON_LANE);
          last = this.#lastCompute;
        }
      }
    if (reduction === undefined) return;
    this.#reduced.push(last as number);
    this.#gatherAhead();
  }

  #end(kind: "embedding" | "head", pass: PipelineOperation["pass"], place: Place): void {
    const work: EndWork = this.#work[kind];
    // The embedding's parameters are not needed for its gradient.
    const uses = pass === (kind === "head" ? "backward" : "forward");
    if (uses) this.#take(place);
    if (pass === "backward") this.#beginGradient();
    this.#inline(kind, pass === "forward" ? work.forwardSeconds : work.backwardSeconds, place);
    this.#exchange(pass === "forward" ? work.forwardExposedSeconds : work.backwardExposedSeconds, place);
    if (uses) this.#release();
    if (pass === "backward") this.#endGradient({ kind }, place);
  }

  /** Ranks that meet in a collective wait for the slowest. */
  #meet(overlapped: boolean, seconds: number, place: Place): void {
    const { unitWaits, layerWaits } = this.#work;
    this.#inline("waits of ranks for one another", (overlapped ? layerWaits : unitWaits) * seconds, place, {
      exposed: true,
    });
  }

  /** Attention, with what is exchanged before and after it. */
  #attend(pass: string, seconds: number, exposedSeconds: number, place: Place): void {
    this.#exchange(exposedSeconds / 2, place);
    this.#inline(`attention ${pass}`, seconds, place, { attention: true });
    this.#exchange(exposedSeconds / 2, place);
  }

  /**
   * Collectives of the sequence or the tensor ranks: by the computing thread, beside what is on the
   * communication lane.
   */
  #exchange(seconds: number, place: Place): void {
    this.#inline("sequence communication", seconds, place, { exposed: true, link: this.#work.sequenceLink });
  }

  /** @param arrival the message that the pass waits for */
  forward(operation: PipelineOperation, arrival: number | undefined): void {
    const { microBatch, chunk } = operation;
    const { layer: work, overlap } = this.#work;
    this.#wait(arrival);
    if (hasEmbedding(this.#stage, operation)) this.#end("embedding", "forward", { microBatch });
    for (const { layer } of layersOf(this.#work, this.#stage, chunk)) {
      const place = { layer, microBatch };
      this.#beginTurn(place);
      for (const module of MODULES) {
        this.#take(place);
        this.#inline(`forward ${UNIT_PRODUCTS[module]}`, work.forward[module] as number, place);
        if (module === ATTENTION_UNIT.forward)
          this.#attend("forward", work.forwardAttentionSeconds, work.forwardExposedSeconds, place);
        this.#release();
      }
      const computed = work.forward.reduce((sum, seconds) => sum + seconds, work.forwardAttentionSeconds);
      if (this.#gatherings.length > 0) this.#meet(overlap.forwardOverlap !== "none", computed, place);
      this.#endTurn(place);
    }
  }

  backward(operation: PipelineOperation, arrival: number | undefined): void {
    const { microBatch, chunk } = operation;
    this.#wait(arrival);
    if (hasHead(this.#work, this.#stage, operation))
      this.#end("head", "backward", {
        layer: this.#work.layersOfVirtualStage.reduce((sum, layers) => sum + layers, 0),
        microBatch,
      });
    for (const each of layersOf(this.#work, this.#stage, chunk).reverse())
      this.#backwardLayer(each, microBatch);
    if (hasEmbedding(this.#stage, operation)) this.#end("embedding", "backward", { microBatch });
  }

  /**
   * What a layer makes again before its backward pass, with the units that this needs.
   * @returns seconds of computation
   */
  #makeAgain(isRecomputed: boolean, place: Place): number {
    const { layer: work, overlap, gateUp } = this.#work;
    if (isRecomputed) {
      for (const _ of MODULES) this.#take(place);
      this.#inline("recompute", work.recomputeSeconds, place);
      this.#exchange(work.recomputeExposedSeconds, place);
      return work.recomputeSeconds;
    }
    if (gateUp !== "again") return 0;
    const [together = []] = backwardGroups(overlap.backwardOverlap, gateUp);
    for (const _ of together) this.#take(place);
    this.#exchange(work.gateUpExposedSeconds, place);
    this.#inline("gate and up again", work.gateUpSeconds, place);
    return work.gateUpSeconds;
  }

  /** The gradients of a unit's product, with what is around it. */
  #differentiate(module: number, place: Place): void {
    const { beside, backward } = this.#work.layer;
    const name = `backward ${UNIT_PRODUCTS[module]}`;
    const seconds = backward[module] as number;
    const products = beside?.products[module] ?? 0;
    if (beside === null || products === 0) {
      this.#inline(name, seconds, place);
      return;
    }
    this.#inline(name, seconds - products, place);
    const gathered = this.#moveActivations("all-gather activations", beside, "gather", place);
    this.#inline(name, gradientSeconds(beside, module), place);
    this.#wait(gathered);
    const scattered = this.#moveActivations("reduce-scatter activations", beside, "scatter", place);
    this.#inline(name, gradientSeconds(beside, module), place);
    this.#wait(scattered);
  }

  /** A collective of tensor ranks beside what is computed next. */
  #moveActivations(
    name: string,
    { slowdowns, gatherSeconds, scatterSeconds }: TensorBeside,
    what: "gather" | "scatter",
    place: Place,
  ): number {
    const slowdown = { product: slowdowns[what], attention: slowdowns[what] };
    const seconds = what === "gather" ? gatherSeconds : scatterSeconds;
    return this.#add(
      { name, lane: "activations", seconds, ...place, slowdown, link: this.#work.sequenceLink },
      [this.#lastCompute, ...this.#waits],
    );
  }

  #backwardLayer({ layer, isRecomputed }: StageLayer, microBatch: number): void {
    const { layer: work, overlap, gateUp } = this.#work;
    const place = { layer, microBatch };
    this.#beginTurn(place);
    const again = this.#makeAgain(isRecomputed, place);
    const [together = []] = backwardGroups(overlap.backwardOverlap, gateUp);
    const taken = gateUp === "again" ? together : [];
    for (const module of [...MODULES].reverse()) {
      if (!isRecomputed && !taken.includes(module)) this.#take(place);
      this.#beginGradient();
      this.#differentiate(module, place);
      if (module === ATTENTION_UNIT.backward)
        this.#attend("backward", work.backwardAttentionSeconds, work.backwardExposedSeconds, place);
      this.#release();
      this.#endGradient({ kind: "layer", layer, module }, place);
    }
    const computed =
      work.backward.reduce((sum, seconds) => sum + seconds, work.backwardAttentionSeconds) + again;
    const overlapped = overlap.backwardOverlap !== "none";
    const reduces =
      this.#work.reduceEveryMicroBatch ||
      (overlapped &&
        microBatch === this.#work.microBatches - 1 &&
        work.reduce.some((seconds) => seconds > 0));
    if (this.#gatherings.length > 0 || reduces) this.#meet(overlapped, computed, place);
    this.#endTurn(place);
  }

  /** A message to the next or the last stage, once the computation is so far. */
  send(pass: PipelineOperation["pass"], microBatch: number): number {
    return this.#add(
      { name: `send ${pass}`, lane: "pipeline", seconds: this.#work.boundarySeconds, microBatch },
      [this.#lastCompute, ...this.#waits],
    );
  }

  /** What of the reductions is left when all passes are over. */
  reduce(): number {
    const { reduceEveryMicroBatch, overlap, reduceOnceSeconds, shareOnceSeconds } = this.#work;
    const left =
      (reduceEveryMicroBatch || overlap.backwardOverlap !== "none" ? 0 : reduceOnceSeconds) +
      shareOnceSeconds;
    return this.#add({ name: "reduce gradients", lane: "communication", seconds: left, exposed: true }, [
      this.#lastCompute,
      this.#lastCommunication,
    ]);
  }

  /** @param reduced the ends of all stages' reductions: the gradient norm makes them wait for one another. */
  update(reduced: readonly number[]): void {
    this.#add({ name: "update", lane: "compute", seconds: this.#work.updateSeconds }, reduced);
  }
}
