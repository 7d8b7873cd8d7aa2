import { CachingAllocator, type Allocation } from "./caching-allocator.ts";

export interface MlpShape {
  readonly layers: number;
  /** Tokens on one rank. */
  readonly rows: number;
  readonly hiddenSize: number;
  readonly ffnHiddenSize: number;
  readonly elementBytes: number;
}

export interface MlpTraceResult {
  /** Bytes of one request for gate, up or their product. */
  readonly requestBytes: number;
  /** Bytes of one MLP output, which outlives its layer until the backward pass. */
  readonly survivorBytes: number;
  /** Stranded bytes after each layer. */
  readonly strandedBytesByLayer: readonly number[];
  /** What is left beside the survivors in one segment, for every segment that holds two or more blocks. */
  readonly lostBytesBySegment: readonly number[];
  readonly reservedBytes: number;
}

/**
 * The forward pass of recomputed MLP layers through a caching allocator (paper, appendix "Defragmentation",
 * its figure of the 65B model at 256K): gate and up are requested, then their product; gate and up end; the
 * output is requested, which lands in one of the freed segments and stays; the product ends.
 * @param consolidateEvery outputs of this many layers are one block, requested when the first of them is
 * needed (the
 *   paper's "memory consolidation in advance" takes 3); 1 for none.
 */
export function mlpForwardTrace(
  shape: MlpShape,
  consolidateEvery = 1,
  deviceBytes = Infinity,
): MlpTraceResult {
  const { layers, rows, hiddenSize, ffnHiddenSize, elementBytes } = shape;
  const requestBytes = rows * ffnHiddenSize * elementBytes;
  const survivorBytes = rows * hiddenSize * elementBytes;
  const allocator = new CachingAllocator(deviceBytes);
  const strandedBytesByLayer: number[] = [];
  for (let layer = 0; layer < layers; layer += 1) {
    const group = Math.min(consolidateEvery, layers - (layer - (layer % consolidateEvery)));
    if (consolidateEvery > 1 && layer % consolidateEvery === 0) allocator.allocate(group * survivorBytes);
    const gate: Allocation = allocator.allocate(requestBytes);
    const up = allocator.allocate(requestBytes);
    const product = allocator.allocate(requestBytes);
    allocator.free(gate);
    allocator.free(up);
    if (consolidateEvery === 1) allocator.allocate(survivorBytes);
    allocator.free(product);
    strandedBytesByLayer.push(allocator.statistics().strandedBytes);
  }
  const lostBytesBySegment = allocator
    .map()
    .filter(({ blocks }) => blocks.length > 1)
    .map(({ blocks }) => blocks.filter(({ free }) => free).reduce((sum, { bytes }) => sum + bytes, 0));
  return {
    requestBytes,
    survivorBytes,
    strandedBytesByLayer,
    lostBytesBySegment,
    reservedBytes: allocator.statistics().reservedBytes,
  };
}
