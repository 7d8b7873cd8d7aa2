import type { Plan } from "@internevo/domain";

/** One rank, one micro-batch, nothing shared or hidden: a test says only what it is about. */
export const aPlan = (over: Partial<Plan> = {}): Plan => ({
  microBatchSize: 1,
  microBatches: 1,
  recompute: false,
  pipelineParallel: 1,
  dataParallel: 1,
  tensorParallel: 1,
  sequenceParallel: 1,
  parameterSharding: 1,
  gradientSharding: 1,
  optimizerStateSharding: 1,
  forwardOverlap: "none",
  backwardOverlap: "none",
  ...over,
});
