/** A job file of a tiny model on two ranks: a test says only what it is about. */
export const aJob = (over: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: "small",
  model: { hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 },
  sequenceLengthTokens: 128,
  globalBatchTokens: 1024,
  cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
  ...over,
});

/** Of a job file: on GPUs, whose kernels of attention lack heads of this size. So it can be planned, not run. */
export const WIDE_HEADS_ON_GPUS = {
  model: { hiddenSize: 1024, layers: 2, heads: 2, vocabularySize: 256 },
  cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB", device: "cuda" },
} as const;
