import type { ModuleShape } from "@internevo/domain";

/** Work of one module: floating-point operations and bytes through memory, each tensor once. */
export interface Work {
  readonly flops: number;
  readonly bytes: number;
}

const elementBytes = (shape: ModuleShape): number => (shape.precision === "fp32" ? 4 : 2);

/**
 * FLOPs and least memory traffic of a module. A multiply-add is two FLOPs. Attention counts the causal half:
 * forward 2·b·S²·heads·headSize, backward 2.5 times that (the recomputed scores included).
 */
export function workOf(shape: ModuleShape): Work {
  const e = elementBytes(shape);
  switch (shape.module) {
    case "linear": {
      const { rows, inputs, outputs } = shape;
      const passes = shape.pass === "forward" ? 1 : 2;
      return {
        flops: passes * 2 * rows * inputs * outputs,
        bytes: passes * e * (rows * inputs + rows * outputs + inputs * outputs),
      };
    }
    case "attention": {
      const { batch, sequence, heads, kvHeads, headSize } = shape;
      const forward = 2 * batch * sequence * sequence * heads * headSize;
      const tensors = batch * sequence * headSize * (2 * heads + 2 * kvHeads) * e;
      return shape.pass === "forward"
        ? { flops: forward, bytes: tensors }
        : { flops: 2.5 * forward, bytes: 2 * tensors };
    }
    case "rmsnorm":
      return {
        flops: (shape.pass === "forward" ? 4 : 8) * shape.rows * shape.width,
        bytes: (shape.pass === "forward" ? 2 : 4) * e * shape.rows * shape.width,
      };
    case "swiglu":
      return {
        flops: (shape.pass === "forward" ? 5 : 10) * shape.rows * shape.width,
        bytes: (shape.pass === "forward" ? 3 : 5) * e * shape.rows * shape.width,
      };
    case "residual-add":
      return { flops: shape.rows * shape.width, bytes: 3 * e * shape.rows * shape.width };
    case "rope":
      return {
        flops: 3 * shape.rows * shape.heads * shape.headSize,
        bytes: 2 * e * shape.rows * shape.heads * shape.headSize,
      };
    case "embedding":
      return {
        flops: shape.rows * shape.width,
        bytes: (shape.pass === "forward" ? 2 : 3) * e * shape.rows * shape.width,
      };
    case "head-loss": {
      // Logits, gradient of the input, gradient of the weight: three products.
      const { rows, width, vocabulary } = shape;
      return {
        flops: 6 * rows * width * vocabulary,
        bytes: 3 * e * (rows * width + width * vocabulary) + 3 * 4 * rows * vocabulary,
      };
    }
    // Gradient, both moments, master and parameters: read, and all but the gradient written.
    case "adamw":
      return { flops: 12 * shape.elements, bytes: (shape.precision === "fp32" ? 28 : 30) * shape.elements };
    case "squared-norm":
      return { flops: 2 * shape.elements, bytes: 4 * shape.elements };
    case "accumulate":
      return { flops: shape.elements, bytes: 12 * shape.elements };
  }
}

/** Peak figures of a device. */
export interface DevicePeak {
  readonly peakFlopsPerSecondFp32: number;
  readonly peakFlopsPerSecondBf16: number;
  readonly memoryBandwidthBytesPerSecond: number;
}

/** Whether a module is made of products, so that its time is arithmetic; that of others is traffic. */
export const isProduct = (shape: ModuleShape): boolean =>
  shape.module === "linear" || shape.module === "attention" || shape.module === "head-loss";

/** FLOP/s at most, in the precision of a module. */
export const peakOf = (shape: ModuleShape, device: DevicePeak): number =>
  shape.precision === "fp32" ? device.peakFlopsPerSecondFp32 : device.peakFlopsPerSecondBf16;

/** Time of a module at the peak of the device: the larger of arithmetic and memory traffic. */
export function rooflineSeconds(shape: ModuleShape, device: DevicePeak): number {
  const { flops, bytes } = workOf(shape);
  return Math.max(flops / peakOf(shape, device), bytes / device.memoryBandwidthBytesPerSecond);
}
