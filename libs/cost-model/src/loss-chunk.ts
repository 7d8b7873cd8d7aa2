/**
 * Rows of which the executor has the head's logits at one time (lossChunkRows of
 * native/include/internevo/backend.h).
 */
export const lossChunkRows = (onGpu: boolean): number => (onGpu ? 2048 : 256);

/** Of a row, from each tensor rank: three float64. */
export const LOSS_STATISTICS_BYTES = 24;
