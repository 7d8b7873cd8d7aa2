import sizes from "../../../native/src/executor_sizes/executor_sizes.json" with { type: "json" };

/** Rows of which the executor has the head's logits at one time. */
export const lossChunkRows = (onGpu: boolean): number =>
  onGpu ? sizes.gpuLossChunkRows : sizes.lossChunkRows;

const FLOAT64_BYTES = 8;
/** Of a row, from each tensor rank. */
export const LOSS_STATISTICS_BYTES = sizes.headStatistics * FLOAT64_BYTES;
