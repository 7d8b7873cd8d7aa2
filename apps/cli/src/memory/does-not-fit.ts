import {
  formatBytes,
  largestLinesWords,
  ProblemError,
  readTooMuchMemory,
  tooMuchMemoryWords,
  writeBytes,
  type JobSpec,
  type NamedBytes,
} from "@internevo/domain";

/**
 * What the trainer says of a plan that does not fit, in the words and fields of jobs; undefined where it says
 * something else.
 */
export function doesNotFit(message: string, { cluster }: Pick<JobSpec, "cluster">): ProblemError | undefined {
  const said = readTooMuchMemory(message);
  return said && tooLittleMemory(said.neededBytes, said.limitBytes, said.lines, { cluster });
}

/**
 * That a plan needs more than a job's GPUs have for it. @param lines of what it needs, in any order @param
 * limitBytes less than a GPU's memory where some is kept free
 */
export function tooLittleMemory(
  neededBytes: number,
  limitBytes: number,
  lines: readonly NamedBytes[],
  { cluster }: Pick<JobSpec, "cluster">,
): ProblemError {
  const isLess = limitBytes < cluster.memoryPerGpuBytes;
  const has = isLess ? `the ${formatBytes(limitBytes)} that its headroom leaves of a GPU` : "a GPU has";
  return new ProblemError("no-feasible-plan", tooMuchMemoryWords({ neededBytes, limitBytes }, has), [
    {
      field: "cluster.memoryPerGpu",
      value: writeBytes(cluster.memoryPerGpuBytes),
      message: `is too little for ${largestLinesWords(lines)}`,
      remedy: "use more ranks, more sharding, recomputation or a smaller micro-batch",
    },
  ]);
}
