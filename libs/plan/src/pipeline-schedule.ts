/** One entry of a stage's order of work. */
export interface PipelineOperation {
  readonly pass: "forward" | "backward";
  readonly microBatch: number;
  /** Virtual stage = chunk · stages + stage. */
  readonly chunk: number;
}

/** Whether micro-batches can take turns between the chunks of every stage. */
export const takesTurns = (microBatches: number, stages: number): boolean => microBatches % stages === 0;

/**
 * The k-th forward or backward of a stage: `stages` micro-batches through one chunk, then the same through
 * the next.
 */
function kth(pass: PipelineOperation["pass"], k: number, stages: number, chunks: number): PipelineOperation {
  if (chunks === 1) return { pass, microBatch: k, chunk: 0 };
  const chunk = Math.floor((k % (stages * chunks)) / stages);
  return {
    pass,
    microBatch: Math.floor(k / (stages * chunks)) * stages + (k % stages),
    chunk: pass === "forward" ? chunk : chunks - 1 - chunk,
  };
}

/**
 * 1F1B, interleaved over `chunks` virtual stages a rank when that is more than 1: the executor's order of
 * work (native/src/trainer/pipeline_schedule.cpp), after Narayanan et al., "Efficient Large-Scale Language
 * Model Training on GPU Clusters Using Megatron-LM", section 2.2.
 * @throws RangeError when chunks > 1 and microBatches is no multiple of stages.
 */
export function pipelineSchedule(
  stage: number,
  stages: number,
  microBatches: number,
  chunks = 1,
): PipelineOperation[] {
  if (chunks > 1 && !takesTurns(microBatches, stages))
    throw new RangeError(
      `microBatches ${microBatches}: interleaving needs a multiple of the ${stages} stages`,
    );
  const total = microBatches * chunks;
  const after = stages - 1 - stage;
  const warmUp = Math.min(total, chunks === 1 ? after : 2 * after + (chunks - 1) * stages);
  const operations: PipelineOperation[] = [];
  for (let k = 0; k < warmUp; k += 1) operations.push(kth("forward", k, stages, chunks));
  for (let k = 0; k < total; k += 1) {
    if (warmUp + k < total) operations.push(kth("forward", warmUp + k, stages, chunks));
    operations.push(kth("backward", k, stages, chunks));
  }
  return operations;
}
