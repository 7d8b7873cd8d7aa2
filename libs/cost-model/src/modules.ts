import type { ModuleShape, ModuleTime, Profile } from "@internevo/domain";
import { between, Curve, type Point } from "./interpolate.ts";
import type { Warn } from "./warnings.ts";
import { peakFraction } from "./profile-check.ts";
import { isProduct, rooflineSeconds, workOf } from "./work.ts";

/** Equal shapes have equal keys. */
function keyOf(shape: ModuleShape): string {
  const kind = kindOf(shape);
  switch (shape.module) {
    case "linear": return `${kind} ${shape.rows} ${shape.inputs} ${shape.outputs}`;
    case "attention": return `${kind} ${shape.batch} ${shape.sequence} ${shape.heads} ${shape.kvHeads} ${shape.headSize}`;
    case "rope": return `${kind} ${shape.rows} ${shape.heads} ${shape.headSize}`;
    case "embedding":
    case "head-loss": return `${kind} ${shape.rows} ${shape.width} ${shape.vocabulary}`;
    case "adamw":
    case "squared-norm":
    case "accumulate": return `${kind} ${shape.elements}`;
    default: return `${kind} ${shape.rows} ${shape.width}`;
  }
}

/** What varies along a curve of one kind of module, and what must be equal for two measurements to lie on one curve. */
function axis(shape: ModuleShape): { at: number; fixed: string } {
  switch (shape.module) {
    case "linear": return { at: shape.rows, fixed: `${shape.inputs}×${shape.outputs}` };
    case "attention": return { at: shape.batch * shape.heads, fixed: `${shape.sequence} ${shape.headSize}` };
    case "embedding":
    case "head-loss": return { at: shape.rows, fixed: `${shape.width}×${shape.vocabulary}` };
    case "rope": return { at: shape.rows, fixed: `${shape.heads}×${shape.headSize}` };
    case "adamw":
    case "squared-norm":
    case "accumulate": return { at: shape.elements, fixed: "" };
    default: return { at: shape.rows, fixed: `${shape.width}` };
  }
}

const kindOf = (shape: ModuleShape, pass: string = shape.pass): string => `${shape.module} ${pass} ${shape.precision}`;

/**
 * Times of a layer's modules (UPro of the paper). A shape that was measured counts with its median; else time is
 * interpolated over rows (or heads) of the same widths, else over the work at the achieved rate, else it is the roofline
 * of the device, each step down with a warning.
 */
export class ModuleTimes {
  readonly #exact = new Map<string, number>();
  readonly #byWidths = new Map<string, Curve>();
  readonly #byWork = new Map<string, Curve>();
  readonly #sequences = new Map<string, number[]>();
  readonly #device: Profile["device"];
  readonly #warn: Warn;

  constructor(profile: Profile, warn: Warn) {
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
      this.#exact.set(keyOf(shape), seconds);
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
      if (fraction > 1) warn("modules that the profile says run above the stated peak of the device, so that utilisation may exceed 100 %", `${kind} at ${Math.ceil(100 * fraction)} %`);
    }
    for (const [key, points] of widths) this.#byWidths.set(key, new Curve(points));
    for (const [key, points] of work) this.#byWork.set(key, new Curve(points));
    for (const [key, set] of sequences) this.#sequences.set(key, [...set].sort((a, b) => a - b));
  }

  /** What time grows with: arithmetic where a module is made of products, else traffic. */
  #size(shape: ModuleShape): number {
    const { flops, bytes } = workOf(shape);
    return isProduct(shape) ? flops : bytes;
  }

  /** Seconds of one run of a module; always finite and positive. */
  seconds(shape: ModuleShape): number {
    const exact = this.#exact.get(keyOf(shape));
    if (exact !== undefined) return exact;
    return this.#interpolated(shape) ?? this.#otherPass(shape) ?? this.#roofline(shape);
  }

  #interpolated(shape: ModuleShape): number | undefined {
    const kind = kindOf(shape);
    const { at, fixed } = axis(shape);
    const curve = this.#byWidths.get(`${kind} ${fixed}`);
    if (curve) return curve.seconds(at);
    if (shape.module === "attention") return this.#attention(shape, kind, at);
    return this.#byWork.get(kind)?.seconds(this.#size(shape));
  }

  /** Attention over a sequence that was not measured: between neighbouring lengths; beyond them at the rate reached there. */
  #attention(shape: ModuleShape & { module: "attention" }, kind: string, at: number): number | undefined {
    const lengths = this.#sequences.get(`${kind} ${shape.headSize}`);
    // Another head size: the rate over the work of whatever heads were measured.
    if (!lengths) return this.#byWork.get(kind)?.seconds(this.#size(shape));
    const seconds = (i: number) => (this.#byWidths.get(`${kind} ${lengths[i]} ${shape.headSize}`) as Curve).seconds(at);
    return between(lengths, shape.sequence, seconds, (edge) => (edge === "above" ? 2 : 0));
  }

  /** A backward pass that was not measured, from the forward pass by the ratio of their work. */
  #otherPass(shape: ModuleShape): number | undefined {
    if (shape.pass !== "backward") return undefined;
    const forward = { ...shape, pass: "forward" } as ModuleShape;
    const seconds = this.#exact.get(keyOf(forward)) ?? this.#interpolated(forward);
    if (seconds === undefined) return undefined;
    this.#warn("backward passes that the profile lacks, taken from the forward pass by the ratio of their work", `${shape.module} ${shape.precision}`);
    return seconds * (this.#size(shape) / this.#size(forward));
  }

  #roofline(shape: ModuleShape): number {
    if (shape.module === "head-loss") {
      const linear = this.#headFromLinear(shape);
      if (linear !== undefined) return linear;
    }
    this.#warn("modules that the profile lacks, taken from the peak figures of the device", `${shape.module} ${shape.pass} ${shape.precision}`);
    return rooflineSeconds(shape, this.#device);
  }

  /** The head as what it is made of: three products, and the passes over the logits. */
  #headFromLinear(shape: ModuleShape & { module: "head-loss" }): number | undefined {
    const { rows, width, vocabulary, precision } = shape;
    const product = this.#interpolated({ module: "linear", pass: "forward", precision, rows, inputs: width, outputs: vocabulary });
    if (product === undefined) return undefined;
    this.#warn("modules that the profile lacks, taken as linear products and passes over the logits", `head-loss ${precision}`);
    return 3 * product + (3 * 4 * rows * vocabulary) / this.#device.memoryBandwidthBytesPerSecond;
  }
}
