import {
  estimatedProfileName,
  findShippedProfile,
  GPU_NAMES,
  GPUS,
  usableBytes,
  type EstimatedGpu,
} from "@internevo/cost-model";
import { didYouMean, ProblemError, type JobSpec } from "@internevo/domain";
import { pointOf, type SweepRow } from "./sweep.ts";

/** The best plan on one kind of GPU. */
export interface GpuRow extends Omit<SweepRow, "value"> {
  /** As `estimated:GPU` names it. */
  readonly gpu: string;
  /** Memory of a GPU that the job was planned with, in place of its own. */
  readonly memoryPerGpuBytes: number;
}

/** @throws ProblemError `profile-missing` for what is no GPU that profiles are estimated for */
function gpuNamed(name: string, field: string): EstimatedGpu {
  if (Object.hasOwn(GPUS, name)) return GPUS[name] as EstimatedGpu;
  throw new ProblemError("profile-missing", `there is no estimated profile of a GPU ${name}`, [
    {
      field,
      value: name,
      message: "is no GPU that a profile is estimated for",
      remedy: `${didYouMean(name, GPU_NAMES)}give some of ${GPU_NAMES.join(", ")}`,
    },
  ]);
}

/** The job on GPUs of a kind: as many nodes and GPUs, each with what memory such a GPU has. */
export const jobOnGpu = (job: JobSpec, gpu: string, field = "gpu"): JobSpec => ({
  ...job,
  cluster: {
    ...job.cluster,
    memoryPerGpuBytes: usableBytes(gpuNamed(gpu, field)),
    profile: estimatedProfileName(gpu),
  },
});

/**
 * The best plan of the job on each kind of GPU, by its estimated profile and with its memory; nodes and GPUs of a
 * node stay the job's. @param field that names the GPUs, for errors
 * @throws ProblemError `profile-missing` for a GPU that nothing is published of here
 */
export function sweepGpus(
  job: JobSpec,
  gpus: readonly string[],
  field = "gpu",
  signal?: AbortSignal,
): GpuRow[] {
  const jobs = gpus.map((gpu) => jobOnGpu(job, gpu, field));
  return jobs.map((changed, index) => {
    signal?.throwIfAborted();
    const gpu = gpus[index] as string;
    const profile = findShippedProfile(estimatedProfileName(gpu));
    if (profile === undefined) throw new Error(`the GPU ${gpu} has no estimated profile`);
    return { gpu, memoryPerGpuBytes: changed.cluster.memoryPerGpuBytes, ...pointOf(changed, profile) };
  });
}
