import type { ModuleShape, ModuleTime, Profile } from "@internevo/domain";
import { between, Curve, type Point } from "./interpolate.ts";
import type { Warn } from "./warnings.ts";
import { peakFraction } from "./profile-check.ts";
import { isProduct, rooflineSeconds, workOf } from "./work.ts";

/** How much of it a module has: rows, sequences of a batch, or elements. */
export function sizeOf(shape: ModuleShape): number {
  if ("rows" in shape) return shape.rows;
  return shape.module === "attention" ? shape.batch : shape.elements;
}

/** The same module with more or less of it. */
export function resized(shape: ModuleShape, size: number): ModuleShape {
  if ("rows" in shape) return { ...shape, rows: size };
  return shape.module === "attention" ? { ...shape, batch: size } : { ...shape, elements: size };
}

/** Shapes that differ in their size only have equal keys. */
function keyOf(shape: ModuleShape): string {
  const kind = kindOf(shape);
  switch (shape.module) {
    case "linear":
      return `${kind} ${shape.inputs} ${shape.outputs}`;
    case "attention":
      return `${kind} ${shape.sequence} ${shape.heads} ${shape.kvHeads} ${shape.headSize}`;
    case "rope":
      return `${kind} ${shape.heads} ${shape.headSize}`;
    case "embedding":
    case "head-loss":
      return `${kind} ${shape.width} ${shape.vocabulary}`;
    case "adamw":
    case "squared-norm":
    case "accumulate":
      return kind;
    default:
      return `${kind} ${shape.width}`;
  }
}

/**
 * What varies along a curve of one kind of module, and what must be equal for two measurements to lie on one
 * curve.
 */
function axis(shape: ModuleShape): { at: number; fixed: string } {
  switch (shape.module) {
    case "linear":
      return { at: shape.rows, fixed: `${shape.inputs}×${shape.outputs}` };
    case "attention":
      return { at: shape.batch * shape.heads, fixed: `${shape.sequence} ${shape.headSize}` };
    case "embedding":
    case "head-loss":
      return { at: shape.rows, fixed: `${shape.width}×${shape.vocabulary}` };
    case "rope":
      return { at: shape.rows, fixed: `${shape.heads}×${shape.headSize}` };
    case "adamw":
    case "squared-norm":
    case "accumulate":
      return { at: shape.elements, fixed: "" };
    default:
      return { at: shape.rows, fixed: `${shape.width}` };
  }
}

const kindOf = (shape: ModuleShape, pass: string = shape.pass): string =>
  `${shape.module} ${pass} ${shape.precision}`;

/**
 * Attention over a sequence that was not measured: between neighbouring lengths; beyond them at the rate
 * reached there.
 */
const acrossLengths = (
  lengths: readonly number[],
  sequence: number,
  seconds: (index: number) => number,
): number => between(lengths, sequence, seconds, (edge) => (edge === "above" ? 2 : 0));

/**
 * Times of a layer's modules (UPro of the paper). A shape that was measured counts with its median; else time
 * is interpolated over rows (or heads) of the same widths, else over the work at the achieved rate, else it
 * is the roofline of the device, each step down with a warning.
 */
export class ModuleTimes {
  /** What was measured, by key and size. */
  readonly #exact = new Map<string, Map<number, number>>();
  readonly #byWidths = new Map<string, Curve>();
  readonly #byWork = new Map<string, Curve>();
  readonly #sequences = new Map<string, number[]>();
  readonly #device: Profile["device"];
  readonly #warn: Warn;
  readonly #timesEstimates: number;

  /** @param timesEstimates how many times longer modules take that nothing was measured for. */
  constructor(profile: Profile, warn: Warn, timesEstimates = 1) {
    this.#timesEstimates = timesEstimates;
    this.#device = profile.device;
    this.#warn = warn;
    const widths = new Map<string, Point[]>();
    const work = new Map<string, Point[]>();
    const sequences = new Map<string, Set<number>>();
    const fastest = new Map<string, number>();
    const push = (map: Map<string, Point[]>, key: string, point: Point) => {
      const list = map.get(key);
      if (list) list.push(point);
      else map.set(key, [point]);
    };
    for (const { shape, medianSeconds: seconds } of profile.modules as readonly ModuleTime[]) {
      const key = keyOf(shape);
      this.#exact.set(key, (this.#exact.get(key) ?? new Map<number, number>()).set(sizeOf(shape), seconds));
      const kind = kindOf(shape);
      fastest.set(kind, Math.max(fastest.get(kind) ?? 0, peakFraction(shape, seconds, this.#device) ?? 0));
      const { at, fixed } = axis(shape);
      push(widths, `${kind} ${fixed}`, { at, seconds });
      push(work, kind, { at: this.#size(shape), seconds });
      if (shape.module === "attention") {
        const key = `${kind} ${shape.headSize}`;
        sequences.set(key, (sequences.get(key) ?? new Set()).add(shape.sequence));
      }
    }
    for (const [kind, fraction] of fastest) {
      if (fraction > 1)
        warn(
          "modules that the profile says run above the stated peak of the device, so that utilisation may exceed 100%",
          `${kind} at ${Math.ceil(100 * fraction)}%`,
        );
    }
    for (const [key, points] of widths) this.#byWidths.set(key, new Curve(points));
    for (const [key, points] of work) this.#byWork.set(key, new Curve(points));
    for (const [key, set] of sequences)
      this.#sequences.set(
        key,
        [...set].sort((a, b) => a - b),
      );
  }

  /** What time grows with: arithmetic where a module is made of products, else traffic. */
  #size(shape: ModuleShape): number {
    const { flops, bytes } = workOf(shape);
    return isProduct(shape) ? flops : bytes;
  }

  /** Seconds of one run of a module; always finite and positive. */
  seconds(shape: ModuleShape): number {
    const exact = this.#measured(shape);
    if (exact !== undefined) return exact;
    return this.#interpolated(shape) ?? this.#otherPass(shape) ?? this.#roofline(shape)(sizeOf(shape));
  }

  /** {@link seconds} of a module whose size is told later: what does not depend on it is looked up once. */
  along(shape: ModuleShape): (size: number) => number {
    const exact = this.#exact.get(keyOf(shape));
    const others = this.#betweenMeasured(shape);
    if (others !== undefined) return exact === undefined ? others : (size) => exact.get(size) ?? others(size);
    if (exact !== undefined) return (size) => this.seconds(resized(shape, size));
    if (shape.pass !== "backward") return this.#roofline(shape);
    const forward = { ...shape, pass: "forward" } as ModuleShape;
    if (!this.#exact.has(keyOf(forward)) && this.#betweenMeasured(forward) === undefined)
      return this.#roofline(shape);
    const ofForward = this.along(forward);
    return (size) => ofForward(size) * this.#ofBackward(resized(shape, size), resized(forward, size));
  }

  /** What {@link #interpolated} is for every size; undefined where it is undefined. */
  #betweenMeasured(shape: ModuleShape): ((size: number) => number) | undefined {
    const kind = kindOf(shape);
    const curve = this.#byWidths.get(`${kind} ${axis(shape).fixed}`);
    if (shape.module !== "attention") {
      if (curve) return (size) => curve.seconds(size);
      const work = this.#byWork.get(kind);
      return work && ((size) => work.seconds(this.#size(resized(shape, size))));
    }
    const { heads } = shape;
    if (curve) return (size) => curve.seconds(size * heads);
    const lengths = this.#sequences.get(`${kind} ${shape.headSize}`);
    if (lengths) {
      const curves = this.#attentionCurves(lengths, kind, shape.headSize);
      return (size) =>
        acrossLengths(lengths, shape.sequence, (i) => (curves[i] as Curve).seconds(size * heads));
    }
    const work = this.#byWork.get(kind);
    return work && ((size) => work.seconds(this.#size(resized(shape, size))));
  }

  #attentionCurves(lengths: readonly number[], kind: string, headSize: number): Curve[] {
    return lengths.map((length) => this.#byWidths.get(`${kind} ${length} ${headSize}`) as Curve);
  }

  #measured(shape: ModuleShape): number | undefined {
    return this.#exact.get(keyOf(shape))?.get(sizeOf(shape));
  }

  /**
   * Between what was measured of the same widths, or attention over other lengths, else over the work at the
   * achieved rate.
   */
  #interpolated(shape: ModuleShape): number | undefined {
    return this.#betweenMeasured(shape)?.(sizeOf(shape));
  }

  /** A backward pass that was not measured, from the forward pass by the ratio of their work. */
  #otherPass(shape: ModuleShape): number | undefined {
    if (shape.pass !== "backward") return undefined;
    const forward = { ...shape, pass: "forward" } as ModuleShape;
    const seconds = this.#measured(forward) ?? this.#interpolated(forward);
    if (seconds === undefined) return undefined;
    return seconds * this.#ofBackward(shape, forward);
  }

  /** How much more work the backward pass is. */
  #ofBackward(shape: ModuleShape, forward: ModuleShape): number {
    this.#warn(
      "backward passes that the profile lacks, taken from the forward pass by the ratio of their work",
      `${shape.module} ${shape.precision}`,
    );
    return this.#size(shape) / this.#size(forward);
  }

  /** Of a module that was not measured at all, for every size. */
  #roofline(shape: ModuleShape): (size: number) => number {
    const warned = `${shape.module} ${shape.pass} ${shape.precision}`;
    return (
      (shape.module === "head-loss" ? this.#headFromLinear(shape) : undefined) ??
      ((size) => {
        this.#warn("modules that the profile lacks, taken from the peak figures of the device", warned);
        return this.#timesEstimates * rooflineSeconds(resized(shape, size), this.#device);
      })
    );
  }

  /** The head as what it is made of: three products, and the passes over the logits. */
  #headFromLinear({
    width,
    vocabulary,
    precision,
  }: ModuleShape & { module: "head-loss" }): ((rows: number) => number) | undefined {
    const product = this.#betweenMeasured({
      module: "linear",
      pass: "forward",
      precision,
      rows: 1,
      inputs: width,
      outputs: vocabulary,
    });
    return (
      product &&
      ((rows) => {
        this.#warn(
          "modules that the profile lacks, taken as linear products and passes over the logits",
          `head-loss ${precision}`,
        );
        return 3 * product(rows) + (3 * 4 * rows * vocabulary) / this.#device.memoryBandwidthBytesPerSecond;
      })
    );
  }
}
