import { ProblemError, resolveJob } from "@internevo/domain";

/** A job file that nothing is wrong with but what is changed in it. */
export const wholeJobFile = (over: Record<string, unknown> = {}) => ({
  name: "seven",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  ...over,
});

/** Why a job file is refused. @throws Error where it is accepted */
export function refusalOf(written: unknown): ProblemError {
  try {
    resolveJob(written);
  } catch (error) {
    if (error instanceof ProblemError) return error;
    throw error;
  }
  throw new Error("the job was accepted");
}
