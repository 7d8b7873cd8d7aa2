import type { JobFile } from "./job-file.ts";
import type { JobSpec } from "./job.ts";
import { writeBytes } from "./units.ts";

/**
 * A resolved job as the job file that stands for it: `resolveJob(writtenJob(spec))` is `spec` again, but for
 * what was counted in its data. What is shown of a job is this, so that it can be changed and submitted again.
 */
export function writtenJob({
  cluster: { memoryPerGpuBytes, hostMemoryBytes, profile, ...cluster },
  data,
  documents: _counted,
  checkpointing,
  ...job
}: JobSpec): JobFile {
  const { nodes, gpusPerNode, name, ...rest } = cluster;
  return {
    ...job,
    ...(data === null ? {} : { data }),
    cluster: {
      name,
      nodes,
      gpusPerNode,
      memoryPerGpu: writeBytes(memoryPerGpuBytes),
      ...(hostMemoryBytes === undefined ? {} : { hostMemory: writeBytes(hostMemoryBytes) }),
      ...rest,
      ...(profile === null ? {} : { profile }),
    },
    ...(checkpointing === null ? {} : { checkpointing }),
  };
}
