import type { MemoryMap, MemoryPiece } from "@internevo/contracts";

/** A stretch of a step, in units of one phase of a forward pass. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/**
 * One pass of a micro-batch, where it stands in a step; `shown` is false for passes that are left out of the
 * picture.
 */
export interface PassSpan extends Span {
  readonly label: string;
  readonly pass: "forward" | "backward";
  readonly shown: boolean;
}

/** Passes that are shown at either end when a step has too many of them. */
const SHOWN_AT_AN_END = 8;

/** Units that a phase takes; a layer of a backward pass works twice as much as of a forward pass. */
const WEIGHT: Readonly<Record<string, number>> = {
  embedding: 0.5,
  "forward attention": 1,
  "forward MLP": 1,
  head: 1,
  "backward MLP": 2,
  "backward attention": 2,
  "embedding gradient": 0.5,
  update: 4,
};
/** Width of what is left out. */
const GAP = 6;

const MAXIMUM_SPANS = 64;

/**
 * The order of work of one step on a stage, laid out as time: not a measurement, but what runs before what.
 * Times are monotonic; passes in the middle of a long step all fall into one gap.
 */
export class StepClock {
  readonly passes: readonly PassSpan[];
  readonly update: Span;
  readonly length: number;
  readonly #map: MemoryMap;
  /** Of every operation: its phases. Key: phase, or phase and layer. */
  readonly #phases: readonly ReadonlyMap<string, Span>[];

  constructor(map: MemoryMap) {
    this.#map = map;
    const { operations, chunks } = map;
    const many = operations.length > 2 * SHOWN_AT_AN_END + 2;
    const hidden = (index: number): boolean =>
      many && index >= SHOWN_AT_AN_END && index < operations.length - SHOWN_AT_AN_END;
    const passes: PassSpan[] = [];
    const phases: ReadonlyMap<string, Span>[] = [];
    let now = 0;
    let gap: Span | undefined;
    for (const [index, { pass, microBatch, chunk }] of operations.entries()) {
      const label = `${pass === "forward" ? "F" : "B"}${microBatch}${chunks.length > 1 ? `·${chunk}` : ""}`;
      if (hidden(index)) {
        if (!gap) {
          gap = { from: now, to: now + GAP };
          now += GAP;
        }
        passes.push({ ...gap, label, pass, shown: false });
        phases.push(new Map());
        continue;
      }
      const from = now;
      const own = new Map<string, Span>();
      const spend = (phase: string, layer?: number): void => {
        const span = { from: now, to: now + (WEIGHT[phase] ?? 1) };
        own.set(layer === undefined ? phase : `${phase} ${layer}`, span);
        now = span.to;
      };
      const { firstLayer, layers } = chunks[chunk] ?? { firstLayer: 0, layers: 0 };
      const order = Array.from({ length: layers }, (_, i) => firstLayer + i);
      if (pass === "forward") {
        if (chunk === 0 && map.stage === 0) spend("embedding");
        for (const layer of order) {
          spend("forward attention", layer);
          spend("forward MLP", layer);
        }
      } else {
        if (this.#hasHead() && chunk === chunks.length - 1) spend("head");
        for (const layer of order.reverse()) {
          spend("backward MLP", layer);
          spend("backward attention", layer);
        }
        if (chunk === 0 && map.stage === 0) spend("embedding gradient");
      }
      passes.push({ from, to: now, label, pass, shown: true });
      phases.push(own);
    }
    this.passes = passes;
    this.#phases = phases;
    this.update = { from: now, to: now + (WEIGHT["update"] as number) };
    this.length = this.update.to;
  }

  /** Only the stage with the head keeps the output of the last layer. */
  #hasHead(): boolean {
    return this.#map.pieces.some(
      ({ lifetime }) => lifetime.kind === "kept" && lifetime.until.phase === "head",
    );
  }

  /** When in the step a piece is in use, in order. With very many spans neighbours are joined. */
  spansOf({ lifetime }: Pick<MemoryPiece, "lifetime">): Span[] {
    switch (lifetime.kind) {
      case "step":
        return [{ from: 0, to: this.length }];
      case "work":
        return join(this.#work(lifetime.phases, lifetime.layers));
      case "kept":
        return this.#kept(lifetime);
    }
  }

  #work(wanted: readonly string[], layers: readonly number[] | undefined): Span[] {
    const phases = new Set(wanted);
    const ofLayers = layers && new Set(layers);
    const spans = this.#phases.flatMap((own, index) => {
      const pass = this.passes[index] as PassSpan;
      if (!pass.shown) return [{ from: pass.from, to: pass.to }];
      return [...own].flatMap(([key, span]) => {
        const [, phase = key, layer] = /^(.*?)(?: (\d+))?$/.exec(key) ?? [];
        return phases.has(phase) &&
          (ofLayers === undefined || layer === undefined || ofLayers.has(Number(layer)))
          ? [span]
          : [];
      });
    });
    return phases.has("update") ? [...spans, this.update] : spans;
  }

  #kept({ chunk, place, from, until }: Extract<MemoryPiece["lifetime"], { kind: "kept" }>): Span[] {
    const inFlight = this.#map.chunks[chunk]?.inFlight ?? 1;
    const begun = new Map<number, number>();
    const spans: Span[] = [];
    const at = (index: number, { layer, phase }: { layer: number; phase: string }): Span => {
      const own = this.#phases[index];
      return own?.get(`${phase} ${layer}`) ?? own?.get(phase) ?? (this.passes[index] as PassSpan);
    };
    for (const [index, operation] of this.#map.operations.entries()) {
      if (operation.chunk !== chunk || operation.microBatch % inFlight !== place) continue;
      if (operation.pass === "forward") begun.set(operation.microBatch, at(index, from).from);
      else spans.push({ from: begun.get(operation.microBatch) ?? 0, to: at(index, until).to });
    }
    return join(spans);
  }
}

/** Joins what touches, and, beyond a bound, what lies nearest. */
function join(spans: readonly Span[]): Span[] {
  const within = (distance: number): Span[] => {
    const joined: Span[] = [];
    for (const span of [...spans].sort((a, b) => a.from - b.from)) {
      const last = joined.at(-1);
      if (last && span.from <= last.to + distance)
        joined[joined.length - 1] = { from: last.from, to: Math.max(last.to, span.to) };
      else joined.push(span);
    }
    return joined;
  };
  for (let distance = 0; ; distance = distance * 2 + 0.5) {
    const joined = within(distance);
    if (joined.length <= MAXIMUM_SPANS) return joined;
  }
}
