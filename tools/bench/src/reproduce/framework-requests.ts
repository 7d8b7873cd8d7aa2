import type { Model, Plan } from "@internevo/domain";
import { CachingAllocator, OutOfDeviceMemory, type Allocation } from "@internevo/simulator";

/*
 * What a framework asks of its caching allocator in a step, tensor by tensor: the paper's ablation of memory
 * management compares this with and without its three measures (appendix "Implementation Detail: Defragmentation").
 * Shapes are those that the published planner counts: nine tensors of hidden width and four of the MLP's width of a
 * layer and micro-batch, 2 bytes an element, whole logits.
 */

export interface ManagedMemory {
  /** Most that was in use at once, and most that was taken from the device. */
  readonly liveBytes: number;
  readonly reservedBytes: number;
  /** Most that lay free in pieces at the end of a pass. */
  readonly strandedBytes: number;
  /** Segments that were given back to the device because it had nothing left, in all steps. */
  readonly swaps: number;
  /** Whether the device could not give what was asked for; the other figures are then those until there. */
  readonly outOfMemory: boolean;
}

const STEPS = 2;
const ELEMENT = 2;
const HIDDEN_TENSORS = 9;
const MLP_TENSORS = 4;
/** Layers whose MLP outputs are one block, and layers of the pinned buffer. */
const CONSOLIDATED = 3;
const PINNED_LAYERS = 2;

/** One rank of the first stage, its tensors on a caching allocator. */
class Rank {
  readonly #allocator: CachingAllocator;
  readonly #plan: Plan;
  readonly #managed: boolean;
  readonly #layers: number;
  readonly #hidden: number;
  readonly #inner: number;
  readonly #logits: number;
  readonly #weights: readonly number[];
  readonly #kept: Allocation[][][] = [];
  #gradients: Allocation[] = [];
  #gathered: Allocation[] = [];
  strandedBytes = 0;

  constructor(
    { model, sequenceLengthTokens }: { readonly model: Model; readonly sequenceLengthTokens: number },
    plan: Plan,
    managed: boolean,
    allocator: CachingAllocator,
  ) {
    const { hiddenSize: h, ffnHiddenSize: f, heads, kvHeads, vocabularySize } = model;
    const rows = (plan.microBatchSize * sequenceLengthTokens) / plan.sequenceParallel;
    this.#allocator = allocator;
    this.#plan = plan;
    this.#managed = managed;
    this.#layers = Math.ceil(model.layers / plan.pipelineParallel);
    this.#hidden = ELEMENT * rows * h;
    this.#inner = ELEMENT * rows * f;
    this.#logits = plan.pipelineParallel === 1 ? ELEMENT * rows * vocabularySize : 0;
    this.#weights = [h * (h + (2 * h * kvHeads) / heads), h * h, h * f, h * f, h * f].map(
      (elements) => (ELEMENT * elements) / plan.tensorParallel,
    );
    const layer = this.#weights.reduce((sum, bytes) => sum + bytes, 0);
    const ends = (ELEMENT * h * vocabularySize) / plan.sequenceParallel;
    const shards = plan.parameterSharding;
    for (let place = 0; place < this.#layers; place += 1)
      for (const bytes of this.#weights) this.#take(bytes / shards);
    this.#take(ends);
    if (plan.pipelineParallel === 1) this.#take(ends);
    // A master copy and two moments in float32.
    const states = (6 * (this.#layers * layer)) / (shards * plan.optimizerStateSharding) + 6 * ends;
    for (let part = 0; part < 3; part += 1) this.#take(states / 3);
    if (!managed) return;
    this.#take((this.#layers * layer) / shards + 2 * ends);
    if (shards > 1) this.#take(PINNED_LAYERS * layer);
  }

  #take(bytes: number): Allocation {
    return this.#allocator.allocate(Math.max(1, Math.ceil(bytes)));
  }

  #give(list: readonly Allocation[]): void {
    for (const one of list) this.#allocator.free(one);
  }

  /** Parameters of the next layer are gathered while this one computes; those of the former go. */
  #gather(): void {
    if (this.#managed || this.#plan.parameterSharding === 1) return;
    const next = this.#weights.map((bytes) => this.#take(bytes));
    this.#give(this.#gathered);
    this.#gathered = next;
  }

  /** What a layer keeps of its forward pass, in the order in which it is asked for, without its output. */
  #layer(): Allocation[] {
    const own = Array.from({ length: HIDDEN_TENSORS - 1 }, () => this.#take(this.#hidden));
    return [...own, ...Array.from({ length: MLP_TENSORS }, () => this.#take(this.#inner))];
  }

  /** Where the outputs of several layers are one block, the first of them asks for all. */
  #output(layer: number): Allocation[] {
    if (!this.#managed) return [this.#take(this.#hidden)];
    if (layer % CONSOLIDATED > 0) return [];
    return [this.#take(Math.min(CONSOLIDATED, this.#layers - layer) * this.#hidden)];
  }

  forward(): void {
    const kept: Allocation[][] = [];
    this.#gather();
    for (let layer = 0; layer < this.#layers; layer += 1) {
      this.#gather();
      // A consolidated block is asked for before the layer's own tensors; else the output comes last.
      const first = this.#managed ? this.#output(layer) : [];
      const own = this.#layer();
      const output = this.#managed ? first : this.#output(layer);
      if (this.#plan.recompute) this.#give(own);
      kept.push(this.#plan.recompute ? output : [...own, ...output]);
    }
    this.#kept.push(kept);
    this.#look();
  }

  #gradientsOf(first: boolean): void {
    const shards = this.#plan.parameterSharding;
    for (const bytes of this.#weights.toReversed()) {
      const whole = this.#take(bytes);
      // Unmanaged, what the first micro-batch makes becomes the gradient, or its reduced part does.
      if (!this.#managed && first) {
        if (shards === 1) {
          this.#gradients.push(whole);
          continue;
        }
        this.#gradients.push(this.#take(bytes / shards));
      }
      this.#give([whole]);
    }
  }

  backward(first: boolean): void {
    const kept = this.#kept.shift() ?? [];
    const logits = this.#logits > 0 ? [this.#take(this.#logits), this.#take(this.#logits)] : [];
    this.#give(logits);
    let gradient = this.#take(this.#hidden);
    // Blocks of several layers go with the last of them to be needed, which is the first of the model.
    for (const own of kept.toReversed()) {
      this.#gather();
      const again = this.#plan.recompute ? this.#layer() : [];
      const inner = [this.#take(this.#inner), this.#take(this.#inner), this.#take(this.#inner)];
      const next = this.#take(this.#hidden);
      this.#gradientsOf(first);
      this.#give([...inner, gradient, ...again, ...own]);
      gradient = next;
    }
    this.#give([gradient, ...this.#gathered]);
    this.#gathered = [];
    this.#look();
  }

  /** Unmanaged gradients are given back when they were used. */
  update(): void {
    this.#give(this.#gradients);
    this.#gradients = [];
  }

  #look(): void {
    this.strandedBytes = Math.max(this.strandedBytes, this.#allocator.statistics().strandedBytes);
  }
}

/**
 * The requests of a plan's first stage through a caching allocator, in the order of 1F1B.
 * @param managed with a pinned buffer of gathered layers, gradients in one block, and MLP outputs of three
 * layers in one block
 * @param deviceBytes what the allocator may take
 */
export function frameworkMemory(
  job: { readonly model: Model; readonly sequenceLengthTokens: number },
  plan: Plan,
  managed: boolean,
  deviceBytes: number,
): ManagedMemory {
  const allocator = new CachingAllocator(deviceBytes);
  const inFlight = Math.min(plan.pipelineParallel, plan.microBatches);
  // Those that follow ask for the same again.
  const microBatches = Math.min(plan.microBatches, 2 * inFlight + 1);
  let rank: Rank | undefined;
  let outOfMemory = false;
  try {
    rank = new Rank(job, plan, managed, allocator);
    for (let step = 0; step < STEPS; step += 1) {
      for (let begun = 0; begun < inFlight; begun += 1) rank.forward();
      for (let ended = 0; ended < microBatches; ended += 1) {
        rank.backward(ended === 0);
        if (ended + inFlight < microBatches) rank.forward();
      }
      rank.update();
    }
  } catch (error) {
    if (!(error instanceof OutOfDeviceMemory)) throw error;
    outOfMemory = true;
  }
  const { peakAllocatedBytes, peakReservedBytes, deviceFrees } = allocator.statistics();
  return {
    liveBytes: peakAllocatedBytes,
    reservedBytes: peakReservedBytes,
    strandedBytes: rank?.strandedBytes ?? 0,
    swaps: deviceFrees,
    outOfMemory,
  };
}
